"""Asking the promotion gate: a row for every answer, and the policy that trades where it says yes."""

import dataclasses
import json
import os
from collections.abc import Callable
from datetime import datetime

import polars as pl
from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, activate, read_active
from nvtrader_pipelines.promotion.gate import GateVerdict, PromotionGate, TrackRecord
from nvtrader_pipelines.promotion.library import find_policy
from nvtrader_pipelines.promotion.log import (
    Decision,
    PromotionRow,
    claim_activation,
    promotion_lock,
    settle_claim,
    write_promotion,
)
from nvtrader_pipelines.promotion.recency import start_deadline
from nvtrader_pipelines.promotion.verification import code_mismatch, require_usable, sealed_run
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, EQUITY_CURVES, RUNS, VALIDATION

Clock = Callable[[], datetime]


def evaluate_candidate(store: Store, policy: str, by: str, clock: Clock) -> PromotionRow:
    """Ask the gate whether a policy shall trade; where it says yes, it decides from the next close on.

    The answer is a row, yes or no; what is said again of the same two policies is the same row. The policy that trades
    already is not asked about.

    Args:
        store: where policies, runs and tables are.
        policy: as `policy_cards.named_policy` takes it: an experiment, its version, or the begin of a run's id.
        by: who asks.
        clock: gives UTC.

    Raises:
        StorageError: if there is no such policy, the pointer or the gate's settings are damaged, or the audit cannot
            be read.
    """
    return _decide(store, policy, ("gate", by, ""), clock)


def activate_manually(store: Store, policy: str, by: str, reason: str, clock: Clock) -> PromotionRow:
    """Make a policy the one that trades because a person says so; what the gate says is heard and kept.

    Raises:
        StorageError: as `consider` and `active_policy.activate`; the policy that traded before then still does.
    """
    return _decide(store, policy, ("person", by, reason), clock)


def read_gate(home: Home) -> PromotionGate:
    """The gate of `data/promotion.yaml`; the default where there is no such file.

    Raises:
        StorageError: if the file is no valid gate.
    """
    path = home.promotion_file
    if not os.path.lexists(path):  # a dangling symlink is an error, not a missing file
        return PromotionGate()
    try:
        return PromotionGate.model_validate(read_document(path))
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid promotion gate: {explain(error, PromotionGate)}") from error


def label(ref: PolicyRef) -> str:
    """A policy as a sentence calls it."""
    return f"{ref.policy} (run {short_id(ref.run_id)})"


def activation_command(ref: PolicyRef) -> str:
    """The command by which a person lets a policy trade that the gate did not promote."""
    _, slash, seed = ref.policy.partition("/")
    return f"`nvtrader policies activate {short_id(ref.run_id)}{slash}{seed} --reason WHY`"


def mirror_active(store: Store) -> None:
    """Write every activation of the audit as rows."""
    active = read_active(store)
    rows = [
        {
            **event.model_dump(include={"event_id", "run_id", "policy", "spec_hash", "by", "reason"}),
            **event.detail,
            "snapshot_ids": json.dumps(dict(event.snapshot_ids), sort_keys=True),
            "activated_at": event.at,
            "active": active is not None and event.event_id == active.event.event_id,
        }
        for event in store.audit.events()
        if event.kind == "promoted"
    ]
    store.tables.replace(ACTIVE_POLICY, to_frame(ACTIVE_POLICY, rows), {})


def _decide(store: Store, policy: str, who: tuple[Decision, str, str], clock: Clock) -> PromotionRow:
    """The answer, kept and carried out."""
    decision, by, reason = who
    ref, gate = find_policy(store, policy), read_gate(store.home)
    run = sealed_run(store, ref)
    with file_lock(promotion_lock(store.home)):
        settle_claim(store)
        active = _trading(store, replaceable=decision == "person")
        late = None
        trades_already = active is not None and (active.ref, active.sha256) == (ref, run.sha256)
        if trades_already:
            said = GateVerdict(passed=False, sentence=f"{label(ref)} is the policy that trades already")
        else:
            unusable = _usable(store, run, ref, decision) or code_mismatch(run.code_version)
            said = _refused(ref, unusable) if unusable else _verdict(store, ref, active, gate)
            late = _too_late(store, run) if said.passed or decision == "person" else None
            said = _held_back(said, late) if said.passed and late else said
        row = PromotionRow(
            decision=decision,
            candidate=ref,
            partition_key=run.partition_key,
            spec_hash=run.spec_hash,
            active=active.ref if active else None,
            activation=active.event.event_id if active else None,
            verdict=said,
            activated=not trades_already and (said.passed or decision == "person"),
            gate=gate,
            by=by,
            reason=reason,
            considered_at=clock(),
            warning="; ".join(filter(None, (code_mismatch(run.code_version), late))) or None,
        )
        return row if trades_already else _carry_out(store, row, clock)


def _trading(store: Store, *, replaceable: bool) -> ActivePolicy | None:
    """The policy that trades; a pointer that is damaged counts as none where a person replaces it."""
    try:
        return read_active(store)
    except StorageError:
        if replaceable:
            return None
        raise


def _usable(store: Store, run: SealedRun, ref: PolicyRef, decision: Decision) -> str | None:
    """Why a policy cannot trade, where the gate decides.

    Raises:
        StorageError: the same, where a person does: nobody may activate it.
    """
    try:
        require_usable(store, run, ref.policy)
    except StorageError as error:
        if decision == "person":
            raise
        return str(error)
    return None


def _too_late(store: Store, run: SealedRun) -> str | None:
    """Why only a replay could begin with a policy, whose tests are too old; None where an account could today."""
    tested_to, last = (
        run.as_parent.window[1],
        store.panels.read(store.ledger.read(run.partition_key).market).sessions[-1].item(),
    )
    until = start_deadline(tested_to)
    if last < until:
        return None
    return (  # the market's end is not named: it moves on, and the answer stays the same row
        f"it was tested to {tested_to} and may begin to trade until {until}, but the market goes on, so an account "
        "could begin with it only in a replay of the past (`nvtrader trade --from`); run it on the market as it is now"
    )


def _held_back(said: GateVerdict, why: str) -> GateVerdict:
    """The verdict on a policy that passes by its figures, but has something else against it."""
    sentence = said.sentence.replace("is promoted", f"is not promoted: {why}; by its figures it would be", 1)
    return dataclasses.replace(said, passed=False, sentence=sentence)


def _verdict(store: Store, ref: PolicyRef, active: ActivePolicy | None, gate: PromotionGate) -> GateVerdict:
    """What the gate says; what was not tested, or has no sound figures, does not pass it."""
    try:
        candidate = _track_record(store, ref)
        trading = _of_active(store, active.ref) if active else None
        return gate.judge(candidate, trading, _deflated(store, ref, candidate.period))
    except (StorageError, ValueError) as error:
        return _refused(ref, error)


def _of_active(store: Store, ref: PolicyRef) -> TrackRecord:
    """The track record of the policy that trades.

    Raises:
        StorageError: if there is none that a candidate can be held against.
    """
    try:
        return _track_record(store, ref)
    except (StorageError, ValueError) as error:
        raise StorageError(
            f"it cannot be held against {label(ref)}, which is active: {error}; while that lasts only a person "
            "replaces it: `nvtrader policies activate`"
        ) from error


def _refused(ref: PolicyRef, why: object) -> GateVerdict:
    return GateVerdict(passed=False, sentence=f"{label(ref)} is not promoted: {why}")


def _carry_out(store: Store, row: PromotionRow, clock: Clock) -> PromotionRow:
    """Keep the answer and act on it; what a kill stopped in between, the next attempt does."""
    if not row.activated:
        return write_promotion(store, row)
    why = row.verdict.sentence if row.decision == "gate" else row.reason
    with claim_activation(store, row) as kept:
        activate(store, row.candidate, row.by, why, clock)
    mirror_active(store)
    return kept


def _track_record(store: Store, ref: PolicyRef) -> TrackRecord:
    """A policy's account and the baselines of its run, in its reported period where some of its tests are there.

    Raises:
        StorageError: if the run was not tested to the end.
        CodeMismatchError: if its experiment means something else to this code.
        ValueError: if its figures are not those of a track record.
    """
    found = store.ledger.run(ref.run_id)
    spec = store.ledger.read(found.partition_key)
    columns = ["policy", "kind", "session", "net_return"]
    where = {"spec_hash": [spec.spec_hash], "run_id": [ref.run_id]}
    rows = store.tables.read(EQUITY_CURVES, where, columns).sort("session")
    reported = rows.filter(pl.col("session") >= spec.report_from)
    period = "all" if reported.is_empty() else f"from_{spec.report_from.year}"
    rows = rows if reported.is_empty() else reported
    own = rows.filter(pl.col("policy") == ref.policy, pl.col("kind") != "baseline")
    if (
        own.is_empty() or store.tables.read(RUNS, {"run_id": [ref.run_id]}, ["run_id"]).is_empty()
    ):  # it is a run's last row
        raise StorageError(f"{label(ref)} was not tested to the end; `nvtrader experiments run {spec.name}` judges it")
    baselines = rows.filter(pl.col("kind") == "baseline").partition_by("policy", as_dict=True, maintain_order=True)
    return TrackRecord(
        name=label(ref),
        sessions=own["session"].to_numpy().astype("datetime64[D]"),
        net=own["net_return"].to_numpy(),
        baselines={str(name): each["net_return"].to_numpy() for (name,), each in sorted(baselines.items())},
        period=period,
        terms=_terms(spec),
    )


def _terms(spec: ExperimentSpec) -> dict[str, str]:
    """What must be the same for returns to be compared."""
    return {
        "market": spec.market.source,
        "fill": spec.environment.fill,
        "cost of trading": " and ".join(sorted(map(_worded, spec.environment.cost_models))) or "none",
    }


def _worded(model: CostModel) -> str:
    """A cost model as a sentence takes it; numbers are whole, so that two models never read the same."""
    settings = [f"{name} {value}".replace("_", " ") for name, value in model if name != "kind"]
    return f"{model.kind.replace('_', ' ')} ({', '.join(settings)})"


def _deflated(store: Store, ref: PolicyRef, period: str) -> float | None:
    """The deflated information ratio against the best baseline; of single seeds it is not known."""
    if "/" in ref.policy:
        return None
    rows = store.tables.read(VALIDATION).filter(
        pl.col("run_id") == ref.run_id, pl.col("period") == period, pl.col("against") == "best_baseline"
    )
    return rows["deflated_sharpe"][0] if len(rows) else None
