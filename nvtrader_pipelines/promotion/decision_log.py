"""Promotion decisions as rows, activated if the audit has their activation."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import polars as pl

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.execution.audit import event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import activations
from nvtrader_pipelines.promotion.gate import GateVerdict, PromotionGate
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS

Decision = Literal["gate", "person"]
ACTIVATION_KEY = ("run_id", "policy", "by", "considered_at")  # columns that an activation has in the audit
UNCOMPARED_COLUMNS = ("considered_at", "by")  # of two equal decisions


@dataclass(frozen=True)
class PromotionRow:
    """Decision on a candidate, with the active policy and the verdict of the gate."""

    decision: Decision
    candidate: PolicyRef
    partition_key: str
    spec_hash: str
    account: str | None  # that it would trade; None: all
    active: PolicyRef | None
    activation: str | None  # event that activated the active policy, which may have been active before
    verdict: GateVerdict
    activated: bool
    gate: PromotionGate
    by: str
    reason: str
    considered_at: datetime
    warning: str | None = None  # warning on the candidate's run

    @property
    def promotion_id(self) -> str:
        """Identity of the decision: an equal decision on the same two policies is the same row.

        A decision of the gate differs by any figure, by its rule and by the activation it replaces; one of a person by
        the activation it replaces or, without an active policy, by its time.
        """
        if self.decision == "gate":
            content = [json.dumps(self._figures(), sort_keys=True, default=str)]
            if self.verdict.passed and self.activation:  # it may pass, be replaced and pass again
                content.append(self.activation)
        else:
            content = [self.activation or self.considered_at.isoformat(), *([self.account] if self.account else [])]
        return event_id("promoted", self.decision, *self.candidate, *(self.active or ("", "")), *content)

    def row(self) -> dict[str, Any]:
        """Row of the table."""
        return {
            "promotion_id": self.promotion_id,
            "decision": self.decision,
            **self._figures(),
            "activated": self.activated,
            "by": self.by,
            "reason": self.reason,
            "considered_at": self.considered_at,
        }

    def _figures(self) -> dict[str, Any]:
        """Columns of the two policies and of the verdict."""
        active, baseline = self.verdict.against("active"), self.verdict.against("baseline")
        return {
            **self.candidate._asdict(),
            "partition_key": self.partition_key,
            "spec_hash": self.spec_hash,
            "account": self.account,
            "active_run_id": self.active.run_id if self.active else None,
            "active_policy": self.active.policy if self.active else None,
            "passed": self.verdict.passed,
            "sentence": self.verdict.sentence,
            "n_sessions": self.verdict.n_sessions,
            "first_session": self.verdict.first_session,
            "last_session": self.verdict.last_session,
            "sharpe": self.verdict.sharpe,
            "active_sharpe": active.sharpe if active else None,
            "active_difference": active.difference if active else None,
            "active_difference_low": active.low if active else None,
            "active_difference_high": active.high if active else None,
            "best_baseline": baseline.opponent if baseline else None,
            "baseline_sharpe": baseline.sharpe if baseline else None,
            "baseline_difference": baseline.difference if baseline else None,
            "baseline_difference_low": baseline.low if baseline else None,
            "baseline_difference_high": baseline.high if baseline else None,
            "deflated_sharpe": self.verdict.deflated,
            "rule": self.gate.rule,
            "gate": canonical_json(self.gate),
        }


def read_promotions(store: Store) -> pl.DataFrame:
    """Read every decision; a decision that was killed counts as activated if the audit has its activation.

    Raises:
        StorageError: if the audit is damaged.
    """
    kinds = {name: PROMOTION_DECISIONS.schema[name] for name in ACTIVATION_KEY}
    events = [(event.run_id, event.policy, event.by, event.at) for event in activations(store)]
    activations_in_audit = pl.DataFrame(events, schema=kinds, orient="row")
    rows = store.tables.read(PROMOTION_DECISIONS).drop("activated")
    marked = rows.join(
        activations_in_audit.with_columns(activated=True), on=ACTIVATION_KEY, how="left", maintain_order="left"
    )
    return marked.with_columns(pl.col("activated").fill_null(value=False)).select(PROMOTION_DECISIONS.schema.names())


def read_promotions_of(store: Store, ref: PolicyRef) -> pl.DataFrame:
    """Read every decision on a policy, newest first.

    Raises:
        StorageError: as `read_promotions`.
    """
    return read_promotions(store).filter(run_id=ref.run_id, policy=ref.policy).sort("considered_at", descending=True)


def write_promotion(store: Store, row: PromotionRow) -> PromotionRow:
    """Write a decision and return it; an equal one that is stored already is returned instead."""
    return write_promotions(store, [row])[0]


def write_promotions(store: Store, rows: Sequence[PromotionRow]) -> list[PromotionRow]:
    """Write decisions in one commit; return them, or the stored ones that are equal."""
    ids = [row.promotion_id for row in rows]
    given = to_frame(PROMOTION_DECISIONS, [row.row() for row in rows])
    compared = given.drop(UNCOMPARED_COLUMNS).columns
    known = store.tables.read(PROMOTION_DECISIONS, {"promotion_id": ids}).join(
        given, on=compared, how="semi", nulls_equal=True
    )
    origins = {row.pop("promotion_id"): row for row in known.select("promotion_id", *UNCOMPARED_COLUMNS).to_dicts()}
    new = given.filter(~pl.col("promotion_id").is_in(list(origins)))
    if len(new):
        store.tables.replace(PROMOTION_DECISIONS, new, {"promotion_id": new["promotion_id"].to_list()})
    return [dataclasses.replace(row, **origins.get(key, {})) for row, key in zip(rows, ids, strict=True)]


def gate_decisions(store: Store) -> dict[str, dict[str, Any]]:
    """Rows of the gate's last decision on each run, by run."""
    rows = store.tables.read(PROMOTION_DECISIONS).filter(decision="gate").sort("considered_at").to_dicts()
    return {row["run_id"]: row for row in rows}
