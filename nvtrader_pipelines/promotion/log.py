"""Answers about who shall trade, as rows: kept once, and none of them claims an activation that did not come about."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl

from nvtrader_pipelines.components.component import canonical_json
from nvtrader_pipelines.execution.audit import event_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import last_activation
from nvtrader_pipelines.promotion.gate import GateVerdict, PromotionGate
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, write_atomically
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS

Decision = Literal["gate", "person"]
UNCOMPARED_COLUMNS = ("considered_at", "by")


@dataclass(frozen=True)
class PromotionRow:
    """What the gate said of a candidate beside the policy that traded then, and whether it took its place."""

    decision: Decision
    candidate: PolicyRef
    partition_key: str
    spec_hash: str
    active: PolicyRef | None
    activation: str | None  # event of the policy that traded; it may trade, go and come back
    verdict: GateVerdict
    activated: bool
    gate: PromotionGate
    by: str
    reason: str
    considered_at: datetime
    warning: str | None = None  # what must be known of the candidate's run where it trades

    @property
    def promotion_id(self) -> str:
        """The identity of the answer: what is said again of the same two policies is the same row.

        The gate's is another one where a figure or the rule is, and whenever it replaces a policy; a person's with
        every policy that is replaced, and where none is, with the moment.
        """
        format_probability = json.dumps(self._figures(), sort_keys=True, default=str)
        since = [format_probability] if self.decision == "gate" else [self.activation or self.considered_at.isoformat()]
        if self.decision == "gate" and self.verdict.passed and self.activation:  # it may pass, be replaced, pass again
            since.append(self.activation)
        return event_id("promoted", self.decision, *self.candidate, *(self.active or ("", "")), *since)

    def row(self) -> dict[str, Any]:
        """The row of the table."""
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
        """What was asked of whom, and what the gate said of it."""
        over, best = self.verdict.against("active"), self.verdict.against("baseline")
        return {
            **self.candidate._asdict(),
            "partition_key": self.partition_key,
            "spec_hash": self.spec_hash,
            "active_run_id": self.active.run_id if self.active else None,
            "active_policy": self.active.policy if self.active else None,
            "passed": self.verdict.passed,
            "sentence": self.verdict.sentence,
            "n_sessions": self.verdict.n_sessions,
            "first_session": self.verdict.first_session,
            "last_session": self.verdict.last_session,
            "sharpe": self.verdict.sharpe,
            "active_sharpe": over.sharpe if over else None,
            "active_difference": over.difference if over else None,
            "active_low": over.low if over else None,
            "active_high": over.high if over else None,
            "best_baseline": best.opponent if best else None,
            "baseline_sharpe": best.sharpe if best else None,
            "baseline_difference": best.difference if best else None,
            "baseline_low": best.low if best else None,
            "baseline_high": best.high if best else None,
            "deflated_sharpe": self.verdict.deflated,
            "gate": canonical_json(self.gate),
        }


def read_promotions(store: Store) -> pl.DataFrame:
    """Every answer that was ever given, once the row of an activation that died is put right.

    Raises:
        StorageError: if an activation died and nobody can tell whether it came about, as the audit cannot be read.
    """
    if _claim(store.home).exists():
        with file_lock(promotion_lock(store.home)):
            settle_claim(store)
    return store.tables.read(PROMOTION_DECISIONS)


def read_promotions_of(store: Store, ref: PolicyRef) -> pl.DataFrame:
    """What the gate ever said of a policy, the last first.

    Raises:
        StorageError: as `promotions`.
    """
    return read_promotions(store).filter(run_id=ref.run_id, policy=ref.policy).sort("considered_at", descending=True)


def write_promotion(store: Store, row: PromotionRow) -> PromotionRow:
    """Write the answer, unless it is kept already; then as it was given first."""
    key = {"promotion_id": [row.promotion_id]}
    new, known = to_frame(PROMOTION_DECISIONS, [row.row()]), store.tables.read(PROMOTION_DECISIONS, key)
    if known.drop(UNCOMPARED_COLUMNS).equals(new.drop(UNCOMPARED_COLUMNS)):
        by, at = known.select("by", "considered_at").row(0)
        return dataclasses.replace(row, by=by, considered_at=at)
    store.tables.replace(PROMOTION_DECISIONS, new, key)
    return row


@contextlib.contextmanager
def claim_activation(store: Store, row: PromotionRow) -> Iterator[PromotionRow]:
    """Keep an answer while it is acted on; if that fails the row says so, after a kill once the next one looks.

    The caller holds `lock_of`.

    Raises:
        StorageError: if the audit cannot be read; then nothing is kept.
    """
    claim = f"{row.promotion_id} {last_activation(store) or ''}\n"
    write_atomically(_claim(store.home), claim.encode())
    try:
        yield write_promotion(store, row)
    except Exception:
        with contextlib.suppress(OSError, StorageError):  # what failed first is told; the next one who looks settles
            settle_claim(store)
        raise
    _claim(store.home).unlink()


def settle_claim(store: Store) -> None:
    """Put the row of an activation right that died before it came about; the caller holds `lock_of`.

    Raises:
        StorageError: as `promotions`.
    """
    if not _claim(store.home).exists():
        return
    promotion_id, _, before = _claim(store.home).read_text().strip().partition(" ")
    if last_activation(store) == (before or None):
        key = {"promotion_id": [promotion_id]}
        rows = store.tables.read(PROMOTION_DECISIONS, key)
        store.tables.replace(PROMOTION_DECISIONS, rows.with_columns(activated=pl.lit(value=False)), key)
    _claim(store.home).unlink()


def promotion_lock(home: Home) -> Path:
    """The lock of who decides who trades."""
    return home.runtime / ".promotion.lock"


def _claim(home: Home) -> Path:
    """The row that is being acted on, and the last activation before it; there while the row may claim too much."""
    return home.runtime / ".promotion.pending"
