"""Promotion decisions by the gate or a person: recorded as rows, and activated where positive."""

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.calendar import Calendars
from nvtrader_pipelines.portfolio.costs import CostModel
from nvtrader_pipelines.promotion.active_policy import (
    ActivePolicy,
    activations,
    mirror_pointer,
    read_active,
    read_replaceable,
)
from nvtrader_pipelines.promotion.decision_log import (
    Decision,
    PromotionRow,
    promotion_lock,
    read_promotions,
    write_promotion,
    write_promotions,
)
from nvtrader_pipelines.promotion.eligibility import (
    UNTESTED,
    code_mismatch,
    coverage_warnings,
    require_fit,
    require_usable,
    sealed_run,
    tuning_message,
)
from nvtrader_pipelines.promotion.gate import GateVerdict, PromotionGate, TrackRecord
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.promotion.recency import start_deadline
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, EQUITY_CURVES, PROMOTION_DECISIONS, RUNS, VALIDATION

Clock = Callable[[], datetime]
_CANDIDATES_PER_READ = 64  # bounds the curves in memory


def evaluate_candidate(store: Store, policy: str, by: str, clock: Clock) -> PromotionRow:
    """Let the gate judge a policy; one that passes is active from the next close on.

    Each decision is a row; an equal decision on the same two policies is the same row. The active policy itself is not
    judged. The policy is named as in `find_policy`; `by` requested the decision.

    Raises:
        StorageError: if there is no such policy, or the active one, the gate's settings or the audit cannot be read.
    """
    return evaluate_candidates(store, [find_policy(store, policy)], by, clock)[0]


def evaluate_candidates(store: Store, candidates: Sequence[PolicyRef], by: str, clock: Clock) -> list[PromotionRow]:
    """Let the gate judge policies in turn, and write all rejections in one commit at the end.

    Raises:
        StorageError: as `evaluate_candidate`; earlier decisions stay recorded.
    """
    judge = _Judge(store, clock, candidates)
    with file_lock(promotion_lock(store.home)):
        try:
            decisions = [judge.decide(ref, ("gate", by, "")) for ref in candidates]
        finally:
            recorded = {each.promotion_id: each for each in write_promotions(store, judge.rejected)}
    return [recorded.get(each.promotion_id, each) for each in decisions]


def activate_manually(store: Store, policy: str, by: str, reason: str, clock: Clock) -> PromotionRow:
    """Activate a policy by a person's decision; the verdict of the gate is recorded beside it.

    Raises:
        StorageError: as `evaluate_candidate` and `activate`; the active policy then stays active.
        ValueError: if it would replace another policy without a reason.
    """
    ref = find_policy(store, policy)
    before = read_replaceable(store)
    if before is not None and before.ref != ref and not reason.strip():
        raise ValueError(
            f"{label(before.ref)} trades since {before.activated_at:%Y-%m-%d}; to replace it by {label(ref)}, give a "
            f"reason: {activation_command(ref)}"
        )
    with file_lock(promotion_lock(store.home)):
        return _Judge(store, clock, [ref]).decide(ref, ("person", by, reason))


def read_gate(home: Home) -> PromotionGate:
    """Read the gate of `data/promotion.yaml`, or the default if there is no such file.

    Raises:
        StorageError: if the file is not a valid gate.
    """
    path = home.promotion_file
    if not os.path.lexists(path):  # a dangling symlink is an error, not a missing file
        return PromotionGate()
    return validate_document(read_document(path), PromotionGate, f"{path.name} is not a valid promotion gate")


def label(ref: PolicyRef) -> str:
    """Name of a policy with its run, for sentences."""
    return f"{ref.policy} (run {short_id(ref.run_id)})"


def activation_command(ref: PolicyRef) -> str:
    """Command that activates a policy by hand."""
    _, slash, seed = ref.policy.partition("/")
    return f"`nvtrader policies activate {short_id(ref.run_id)}{slash}{seed} --reason WHY`"


def mirror_active(store: Store) -> None:
    """Write every activation of the audit to its table, and mark the decisions that it carried out."""
    events = activations(store)
    rows = [
        {
            **event.model_dump(include={"event_id", "run_id", "policy", "spec_hash", "by", "reason"}),
            **event.detail,
            "snapshot_ids": json.dumps(dict(event.snapshot_ids), sort_keys=True),
            "activated_at": event.at,
            "active": event is events[-1],
        }
        for event in events
    ]
    store.tables.replace(ACTIVE_POLICY, to_frame(ACTIVE_POLICY, rows), {})
    decisions = read_promotions(store)
    if not decisions.equals(store.tables.read(PROMOTION_DECISIONS)):  # a decision was killed after its activation
        store.tables.replace(PROMOTION_DECISIONS, decisions, {})


@dataclass(frozen=True, eq=False)
class _Judge:
    """Gate or person that decides on one candidate after the other; tables are read once."""

    store: Store
    clock: Clock
    candidates: Sequence[PolicyRef]
    rejected: list[PromotionRow] = field(default_factory=list)  # not written yet
    records: dict[PolicyRef, TrackRecord] = field(default_factory=dict)  # of active policies
    curves: dict[str, pl.DataFrame] = field(default_factory=dict)  # by run: active policies, next candidates

    def decide(self, ref: PolicyRef, author: tuple[Decision, str, str]) -> PromotionRow:
        """Judge a policy; activate it if it passes or a person decides, else add it to `rejected`."""
        store = self.store
        decision, by, reason = author
        gate, run = read_gate(store.home), sealed_run(store, ref)
        active = read_replaceable(store) if decision == "person" else read_active(store)
        stale = None
        is_active = active is not None and (active.ref, active.sha256) == (ref, run.sha256)
        if decision == "person":
            require_usable(store, run, ref.policy)
            self._require_tested(ref)
        if is_active:
            verdict = GateVerdict(passed=False, sentence=f"{label(ref)} is the active policy already")
        else:
            verdict = self._judge_usable(run, ref, active, gate)
            stale = _staleness_reason(store, run) if verdict.passed or decision == "person" else None
            verdict = _withhold(verdict, stale) if verdict.passed and stale else verdict
        activated = not is_active and (verdict.passed or decision == "person")
        coverage = coverage_warnings(store, self._symbols(run)) if activated else ()
        row = PromotionRow(
            decision=decision,
            candidate=ref,
            partition_key=run.partition_key,
            spec_hash=run.spec_hash,
            active=active.ref if active else None,
            activation=active.event.event_id if active else None,
            verdict=verdict,
            activated=activated,
            gate=gate,
            by=by,
            reason=reason,
            considered_at=self.clock(),
            warning="; ".join(filter(None, (code_mismatch(store, run), stale, *coverage))) or None,
        )
        if is_active:
            mirror_active(store)
            return row
        store.audit.events()  # a damaged audit is reported before a row is written
        if row.activated:
            return _carry_out(store, row)
        self.rejected.append(row)
        return row

    def _judge_usable(
        self, run: SealedRun, ref: PolicyRef, active: ActivePolicy | None, gate: PromotionGate
    ) -> GateVerdict:
        """Judge a candidate; reject one that cannot trade. Slow to open, networks are opened last."""
        try:
            require_fit(self.store, run, ref.policy)
            obstacle = code_mismatch(self.store, run) or tuning_message(self.store, run)
            if obstacle:
                return _rejection(ref, obstacle)
            verdict = self._judge(ref, active, gate)
            if verdict.passed:
                require_usable(self.store, run, ref.policy)
        except StorageError as error:
            return _rejection(ref, error)
        return verdict

    def _judge(self, ref: PolicyRef, active: ActivePolicy | None, gate: PromotionGate) -> GateVerdict:
        """Judge a candidate by the gate; one without valid test results does not pass."""
        try:
            candidate = self._track_record(ref)
            incumbent = self._active_track_record(active.ref) if active else None
            return gate.judge(candidate, incumbent, self._deflated_ratio(ref, candidate.period))
        except (StorageError, ValueError) as error:
            return _rejection(ref, error)

    def _active_track_record(self, ref: PolicyRef) -> TrackRecord:
        """Read the track record of the active policy.

        Raises:
            StorageError: if it has no valid track record.
        """
        try:
            if ref not in self.records:
                self.records[ref] = self._track_record(ref)
            return self.records[ref]
        except (StorageError, ValueError) as error:
            raise StorageError(
                f"it cannot be compared with the active policy {label(ref)}: {error}; until then only a person can "
                "replace it: `nvtrader policies activate`"
            ) from error

    def _track_record(self, ref: PolicyRef) -> TrackRecord:
        """Read net returns of a policy and its run's baselines, in the reported period if it has tests there.

        Raises:
            StorageError: if the run was not tested to the end.
            CodeMismatchError: if this code reads its experiment differently.
            ValueError: if its returns are not a valid track record.
        """
        store = self.store
        spec = store.ledger.read(store.ledger.run(ref.run_id).partition_key)
        rows = self._net_returns(ref).filter(spec_hash=spec.spec_hash)
        period = "all"
        if spec.report_from is not None and len(reported := rows.filter(pl.col("session") >= spec.report_from)):
            period, rows = f"from_{spec.report_from.year}", reported
        own = rows.filter(pl.col("policy") == ref.policy, pl.col("kind") != "baseline")
        self._require_tested(ref)
        baselines = rows.filter(pl.col("kind") == "baseline").partition_by("policy", as_dict=True, maintain_order=True)
        return TrackRecord(
            name=label(ref),
            sessions=own["session"].to_numpy().astype("datetime64[D]"),
            net=own["net_return"].to_numpy(),
            baselines={str(name): each["net_return"].to_numpy() for (name,), each in sorted(baselines.items())},
            periods_per_year=self._calendars.of(spec.market.source).periods_per_year,
            period=period,
            terms=_trading_terms(spec),
        )

    def _require_tested(self, ref: PolicyRef) -> None:
        """Raise if a policy has no returns of its tests, or its run did not finish."""
        own = self._net_returns(ref).filter(pl.col("policy") == ref.policy, pl.col("kind") != "baseline")
        if own.is_empty() or ref.run_id not in self._judged_runs:
            raise StorageError(f"{label(ref)} {UNTESTED.format(ref.policy.partition('/')[0])}")

    def _net_returns(self, ref: PolicyRef) -> pl.DataFrame:
        """Net returns of a run; a candidate's are read with those of the next candidates.

        Planning a read costs more than reading its rows.
        """
        if ref.run_id not in self.curves:
            first = self.candidates.index(ref) if ref in self.candidates else len(self.candidates)
            ahead = self.candidates[first : first + _CANDIDATES_PER_READ]
            if ahead:
                self.curves.clear()
            run_ids = {ref.run_id, *(each.run_id for each in ahead)}
            columns = ["spec_hash", "run_id", "policy", "kind", "session", "net_return"]
            rows = self.store.tables.read(EQUITY_CURVES, {"run_id": sorted(run_ids)}, columns).sort("session")
            self.curves.update({run_id: rows.filter(run_id=run_id) for run_id in run_ids})
        return self.curves[ref.run_id]

    def _deflated_ratio(self, ref: PolicyRef, period: str) -> float | None:
        """Deflated information ratio against the best baseline; None for single seeds."""
        if "/" in ref.policy:
            return None
        rows = self._validation.filter(run_id=ref.run_id, period=period, against="best_baseline")
        return rows["deflated_sharpe"][0] if len(rows) else None

    def _symbols(self, run: SealedRun) -> Sequence[str]:
        return self.store.panels.symbols_and_features(self.store.ledger.read(run.partition_key).market)[0]

    @cached_property
    def _judged_runs(self) -> set[str]:
        """Runs with the row that is written last."""
        return set(self.store.tables.read(RUNS, columns=["run_id"])["run_id"])

    @cached_property
    def _calendars(self) -> Calendars:
        return self.store.read_calendars()

    @cached_property
    def _validation(self) -> pl.DataFrame:
        return self.store.tables.read(VALIDATION)


def _staleness_reason(store: Store, run: SealedRun) -> str | None:
    """Reason why the tests of a policy are too old for an account opened today, or None."""
    tested_to = run.as_parent.window[1]
    last = store.panels.read(store.ledger.read(run.partition_key).market).sessions[-1].item()
    until = start_deadline(tested_to, store.calendar_of(run.partition_key))
    if last < until:
        return None
    return (  # without the market's last session, so that later sessions give the same row
        f"it was tested to {tested_to} and may begin to trade until {until}, but the market has later sessions, so it "
        "could only trade in a replay of the past (`nvtrader trade --from`); run it on the current market"
    )


def _withhold(verdict: GateVerdict, reason: str) -> GateVerdict:
    """Turn a passing verdict into a rejection for a reason outside its figures."""
    sentence = verdict.sentence.replace("is promoted", f"is not promoted: {reason}; by its figures it would be", 1)
    return dataclasses.replace(verdict, passed=False, sentence=sentence)


def _rejection(ref: PolicyRef, reason: object) -> GateVerdict:
    return GateVerdict(passed=False, sentence=f"{label(ref)} is not promoted: {reason}")


def _carry_out(store: Store, row: PromotionRow) -> PromotionRow:
    """Record the decision and activate the policy; after a kill the next attempt completes both."""
    first = write_promotion(store, dataclasses.replace(row, activated=False))  # perhaps of an earlier attempt
    row = dataclasses.replace(first, activated=True)
    reason = row.verdict.sentence if row.decision == "gate" else row.reason
    activate(store, row.candidate, row.by, reason, row.considered_at)
    write_promotion(store, row)
    mirror_active(store)
    return row


def _trading_terms(spec: ExperimentSpec) -> dict[str, str]:
    """Terms that must be equal for returns to be comparable."""
    return {
        "market": spec.market.source,
        "fill": spec.environment.fill,
        "cost of trading": " and ".join(sorted(map(_format_cost_model, spec.environment.cost_models))) or "none",
    }


def _format_cost_model(model: CostModel) -> str:
    """Format a cost model for a sentence, with unrounded numbers so that different models differ."""
    settings = [f"{name} {value}".replace("_", " ") for name, value in model if name != "kind"]
    return f"{model.kind.replace('_', ' ')} ({', '.join(settings)})"


def activate(store: Store, ref: PolicyRef, by: str, reason: str, at: datetime) -> ActivePolicy:
    """Activate a policy from the next close on; the active policy itself is left unchanged.

    All checks precede the write: on an error the previous policy stays active.

    Raises:
        StorageError: if the run is unknown, not sealed, lacks the policy or is validation-only, its files are missing,
            changed or do not open on the current market, its limits are looser than the desk's, or the audit is
            damaged.
    """
    run = sealed_run(store, ref)
    symbols = require_usable(store, run, ref.policy)
    with file_lock(store.home.runtime / ".active_policy.lock"):
        before = read_replaceable(store)
        if before is not None and (before.ref, before.sha256) == (PolicyRef(run.run_id, ref.policy), run.sha256):
            return before
        active = ActivePolicy(
            partition_key=run.partition_key,
            run_id=run.run_id,
            policy=ref.policy,
            sha256=run.sha256,
            spec_hash=run.spec_hash,
            snapshot_ids=run.snapshot_ids,
            symbols=symbols,
            code_version=run.code_version,
            installed=code_of(store.ledger.read(run.partition_key)),
            activated_at=at,
            by=by,
            reason=reason,
            previous_run_id=before.run_id if before else None,
            previous_policy=before.policy if before else None,
        )
        store.audit.append([active.event])
        mirror_pointer(store)
    return active
