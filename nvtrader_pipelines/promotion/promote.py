"""Promotion decisions by the gate or a person: recorded as rows, and activated where positive."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.findings import deflated_ratio
from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.promotion.active_policy import (
    ActivePolicy,
    activations,
    mirror_pointer,
    newest_activations,
    read_active,
    read_replaceable,
)
from nvtrader_pipelines.promotion.decision_log import (
    Decision,
    PromotionRow,
    read_promotions,
    write_promotion,
    write_promotions,
)
from nvtrader_pipelines.promotion.eligibility import (
    code_mismatch,
    coverage_warnings,
    require_fit,
    require_usable,
    sealed_run,
    tuning_message,
)
from nvtrader_pipelines.promotion.gate import GateVerdict, PromotionGate
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.promotion.recency import start_deadline
from nvtrader_pipelines.promotion.track_records import TrackRecords
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock, has_file
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, PROMOTION_DECISIONS, VALIDATION

Clock = Callable[[], datetime]


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
    judge = PromotionJudge(store, clock, TrackRecords(store, candidates))
    with store.lock("promotion"):
        try:
            decisions = [judge.decide(ref, ("gate", by, "")) for ref in candidates]
        finally:
            recorded = {promotion.promotion_id: promotion for promotion in write_promotions(store, judge.rejected)}
    return [recorded.get(decision.promotion_id, decision) for decision in decisions]


def activate_manually(
    store: Store, policy: str, by: str, reason: str, clock: Clock, account: str | None = None
) -> PromotionRow:
    """Activate a policy by a person's decision, for all accounts or for one; the gate's verdict is recorded beside it.

    Raises:
        StorageError: as `evaluate_candidate` and `activate`; the active policy then stays active.
        ValueError: if it would replace another policy without a reason.
    """
    ref = find_policy(store, policy)
    before = read_replaceable(store, account)
    if before is not None and before.ref != ref and not reason.strip():
        raise ValueError(
            f"{before.ref.label} trades since {before.activated_at:%Y-%m-%d}; to replace it by {ref.label}, give a "
            f"reason: {activation_command(ref)}"
        )
    with store.lock("promotion"):
        return PromotionJudge(store, clock, TrackRecords(store, [ref]), account).decide(ref, ("person", by, reason))


def read_gate(home: Home) -> PromotionGate:
    """Read the gate of `data/promotion.yaml`, or the default if there is no such file.

    Raises:
        StorageError: if the file is not a valid gate.
    """
    path = home.promotion_file
    if not has_file(path):
        return PromotionGate()
    return validate_document(read_document(path), PromotionGate, f"{path.name} is not a valid promotion gate")


def activation_command(ref: PolicyRef) -> str:
    """Command that activates a policy by hand."""
    _, slash, seed = ref.policy.partition("/")
    return f"`nvtrader policies activate {short_id(ref.run_id)}{slash}{seed} --reason WHY`"


def mirror_active(store: Store) -> None:
    """Write every activation of the audit to its table, and mark the decisions that it carried out."""
    events = activations(store)
    newest = newest_activations(store).values()
    rows = [
        {
            **event.model_dump(include={"event_id", "run_id", "policy", "spec_hash", "by", "reason"}),
            **event.detail,
            "snapshot_ids": json.dumps(dict(event.snapshot_ids), sort_keys=True),
            "activated_at": event.at,
            "account": event.account,
            "active": event in newest,
        }
        for event in events
    ]
    store.tables.replace(ACTIVE_POLICY, to_frame(ACTIVE_POLICY, rows), {})
    decisions = read_promotions(store)
    if not decisions.equals(store.tables.read(PROMOTION_DECISIONS)):  # a decision was killed after its activation
        store.tables.replace(PROMOTION_DECISIONS, decisions, {})


@dataclass(frozen=True, eq=False)
class PromotionJudge:
    """Gate or person that decides on one candidate after the other; tables are read once."""

    store: Store
    clock: Clock
    records: TrackRecords
    account: str | None = None  # whose policy is replaced; None: that of all
    rejected: list[PromotionRow] = field(default_factory=list)  # not written yet

    def decide(self, ref: PolicyRef, author: tuple[Decision, str, str]) -> PromotionRow:
        """Judge a policy; activate it if it passes or a person decides, else add it to `rejected`."""
        store = self.store
        decision, by, reason = author
        gate, run = read_gate(store.home), sealed_run(store, ref)
        active = read_replaceable(store, self.account) if decision == "person" else read_active(store)
        stale = None
        is_active = active is not None and (active.ref, active.sha256) == (ref, run.sha256)
        if decision == "person":
            require_usable(store, run, ref.policy)
            self.records.require_tested(ref)
        if is_active:
            verdict = GateVerdict(passed=False, sentence=f"{ref.label} is the active policy already")
        else:
            verdict = self._judge_usable(run, ref, active, gate)
            stale = _staleness_reason(store, run) if verdict.passed or decision == "person" else None
            verdict = _withhold(verdict, stale) if verdict.passed and stale else verdict
        activated = not is_active and (verdict.passed or decision == "person")
        coverage = coverage_warnings(store, _market_symbols(store, run)) if activated else ()
        row = PromotionRow(
            decision=decision,
            candidate=ref,
            partition_key=run.partition_key,
            spec_hash=run.spec_hash,
            account=self.account,
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
            candidate = self.records.read(ref)
            incumbent = self.records.read_active(active.ref) if active else None
            is_seed = "/" in ref.policy
            deflated = None if is_seed else deflated_ratio(self._validation, ref.run_id, candidate.period)
            return gate.judge(candidate, incumbent, deflated)
        except (StorageError, ValueError) as error:
            return _rejection(ref, error)

    @cached_property
    def _validation(self) -> pl.DataFrame:
        return self.store.tables.read(VALIDATION)


def _market_symbols(store: Store, run: SealedRun) -> Sequence[str]:
    return store.panels.symbols_and_features(store.ledger.read(run.partition_key).market)[0]


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
    return GateVerdict(passed=False, sentence=f"{ref.label} is not promoted: {reason}")


def _carry_out(store: Store, row: PromotionRow) -> PromotionRow:
    """Record the decision and activate the policy; after a kill the next attempt completes both."""
    first = write_promotion(store, dataclasses.replace(row, activated=False))  # perhaps of an earlier attempt
    row = dataclasses.replace(first, activated=True)
    reason = row.verdict.sentence if row.decision == "gate" else row.reason
    activate(store, row.candidate, row.by, reason, row.considered_at, row.account)
    write_promotion(store, row)
    mirror_active(store)
    return row


def activate(
    store: Store, ref: PolicyRef, by: str, reason: str, at: datetime, account: str | None = None
) -> ActivePolicy:
    """Activate a policy from the next close on, for all accounts or for one; if it is active, nothing changes.

    All checks precede the write: on an error the previous policy stays active.

    Raises:
        StorageError: if the run is unknown, not sealed, lacks the policy or is validation-only, its files are missing,
            changed or do not open on the current market, its limits are looser than the desk's, or the audit is
            damaged.
    """
    candidate = new_activation(store, ref, by, reason, at, account)
    with file_lock(store.home.runtime / ".active_policy.lock"):
        before = read_replaceable(store, account)
        if before is not None and (before.ref, before.sha256, before.account) == (
            candidate.ref,
            candidate.sha256,
            account,
        ):
            return before
        previous = {"previous_run_id": before.run_id, "previous_policy": before.policy} if before else {}
        active = candidate.model_copy(update=previous)
        store.audit.append([active.event])
        mirror_pointer(store)
    return active


def new_activation(
    store: Store, ref: PolicyRef, by: str, reason: str, at: datetime, account: str | None = None
) -> ActivePolicy:
    """Make the activation of a policy, and write nothing.

    Raises:
        StorageError: as `activate`.
    """
    run = sealed_run(store, ref)
    return ActivePolicy(
        account=account,
        partition_key=run.partition_key,
        run_id=run.run_id,
        policy=ref.policy,
        sha256=run.sha256,
        spec_hash=run.spec_hash,
        snapshot_ids=run.snapshot_ids,
        symbols=require_usable(store, run, ref.policy),
        code_version=run.code_version,
        installed=code_of(store.ledger.read(run.partition_key)),
        activated_at=at,
        by=by,
        reason=reason,
    )
