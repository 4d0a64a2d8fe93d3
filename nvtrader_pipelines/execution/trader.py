"""Day loop of one account: execute, settle, propose, clear; an interrupted step is finished by the next attempt."""

from datetime import date

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, plan_event
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.brokers.venue import PolicyInForce, Venue
from nvtrader_pipelines.execution.compliance import allow_first_plan
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import OrderPlacement, RiskControls
from nvtrader_pipelines.execution.plan import RebalancePlan, block_reason, is_blocked
from nvtrader_pipelines.execution.plan_records import PLACEABLE, PlanRecord, is_first_plan
from nvtrader_pipelines.execution.proposals import is_due, make_plan, no_trade_event, reduced_plan
from nvtrader_pipelines.execution.reconciliation import open_differences
from nvtrader_pipelines.experiments.deployment import Deployment
from nvtrader_pipelines.policies.policy import Decision

ACKNOWLEDGED = "soft findings acknowledged by the replay"
UNDECIDED = frozenset({"constructed", "waiting"})  # statuses of plans that wait for compliance or for a person
EXPIRED = "it was {status} at its fill session, so it is not traded"


class Trader:
    """Day loop of one account; `t` numbers the sessions of the policy's panel."""

    def __init__(self, deployed: Deployment, venue: Venue, journal: Journal, controls: RiskControls) -> None:
        self._deployed, self._venue, self._journal, self._controls = deployed, venue, journal, controls
        self._panel = deployed.panel
        self._placement = OrderPlacement(deployed.panel, venue, journal, controls)
        self._in_force = PolicyInForce(
            deployed.policy, deployed.run_id, deployed.spec.spec_hash, replayed_to=controls.replayed_to
        )
        self._has_policy_state = not deployed.is_stateful

    def open_at(self, t: int) -> AccountState:
        """Open the account at the close of session `t`; an open account stays unchanged."""
        return self._venue.open_at(t, self._in_force)

    def execute(self, t: int) -> list[AuditEvent]:
        """Place the orders of the pending plan, record outcomes and return the audit events of this attempt."""
        if self._is_settled(t):
            return []
        self.require_reconciled()
        events, stop = [], self._stop_reason(t)
        if stop:
            events += self._placement.halt(self._session(t), stop)
        record = self._pending_record(t)
        if record is not None:
            events += self._execute_plan(record, t, stop)
        return events + self._placement.record_order_outcomes(record)

    def _execute_plan(self, record: PlanRecord, t: int, stop: str | None) -> list[AuditEvent]:
        """Place, expire or drop a plan that was decided before session `t`."""
        if record.status in UNDECIDED:
            return self._placement.cancel_plan(record.plan, EXPIRED.format(status=record.status))
        if record.status in PLACEABLE and not record.plan.has_symbols(self._panel.symbols):
            return self._placement.drop(record.plan)
        if record.status in PLACEABLE and not self._venue.is_live:
            return self._placement.place(record.plan, self._session(t), stop)
        return self._placement.expire(record)

    def settle(self, t: int) -> AccountState:
        """Mark the account to the close of session `t`.

        Raises:
            NotReconciled: if the account has open differences at the close before.
        """
        if not self._is_settled(t):
            self.require_reconciled()
        record, before = self._pending_record(t), self._venue.last()
        decided = self._journal.proposal(self._session(t - 1)) is not None
        accepted = before is not None and self._journal.is_accepted(before.session)
        plan = record.plan if record else None
        return self._venue.settle(t, plan, self._in_force, decided=decided, accepted=accepted)

    def update_outcomes(self) -> None:
        """Record how orders ended since, where there are differences, which a late end may explain."""
        state = self._venue.last()
        if state is not None and open_differences(state, self._journal):
            self._placement.record_order_outcomes(None)

    def open_differences_error(self) -> NotReconciled | None:
        """Error of open differences at the last close; None if the account may trade, as a broker may correct it."""
        state = self._venue.last()
        if state is None or not open_differences(state, self._journal):
            return None
        differences = self._venue.open_differences()
        return NotReconciled(self._journal.account, state.session, differences) if differences else None

    def require_reconciled(self) -> None:
        """Record how orders ended since, and raise if the account has open differences at its last close.

        Raises:
            NotReconciled: with the differences.
        """
        self.update_outcomes()
        if error := self.open_differences_error():
            raise error

    def propose(self, t: int) -> RebalancePlan | None:
        """Decide at the close of session `t`, once; None if no decision is due, it is no trade, or trading is stopped.

        Raises:
            ExecutionError: if the policy may not decide at `t`, or its weights are not finite.
            NotReconciled: if the account has open differences.
        """
        self.require_reconciled()
        session = self._session(t)
        known = self._journal.proposal(session)
        if known is not None:
            record = self._record_at(t)
            if record is not None or known.plan_id is None:
                return record.plan if record else None
        elif stop := self._stop_reason(t):
            self._placement.halt(session, stop)
            return None
        elif not self._is_due(t):
            return None
        plan, decision = self._decide(t)
        if plan is None:
            controls = self._controls
            account, at = self._journal.account, controls.clock()
            self._journal.append(no_trade_event(self._deployed, account, session, at, controls.by, decision))
            return None
        proposed = EventDetails(reason=decision.reasons)
        constructed = EventDetails(detail={"plan": plan.model_dump(mode="json")})
        self._journal.append(
            self._controls.event("proposed", plan, proposed), self._controls.event("constructed", plan, constructed)
        )
        return plan

    def clear(self, t: int, *, acknowledge: bool = False) -> list[AuditEvent]:
        """Check the plan decided at the close of session `t` for compliance; at a live venue, also place its orders.

        With `acknowledge`, the replay acknowledges soft findings at once. Return the new audit events.
        """
        self.require_reconciled()
        record, events = self._record_at(t), []
        if record is None:
            return events
        if record.status in UNDECIDED | PLACEABLE and not record.plan.has_symbols(self._panel.symbols):
            return self._placement.drop(record.plan) + self._placement.record_order_outcomes(record)
        if record.status == "constructed":
            events += self._check(record.plan, t)
            record = self._record_at(t) or record
        if record.status == "waiting" and acknowledge:
            at, details = self._controls.clock(), EventDetails(reason=ACKNOWLEDGED)
            events += self._journal.append(plan_event("approved", record.plan, at, "replay", details))
            record = self._record_at(t) or record
        if record.status in PLACEABLE and self._venue.is_live:
            events += self._placement.place(record.plan, self._session(t), self._stop_reason(t))
        return events

    def _check(self, plan: RebalancePlan, t: int) -> list[AuditEvent]:
        """Record the findings of compliance."""
        findings, allowed = self._controls.findings(plan, t), self._controls.first_plan_turnover
        if allowed and is_first_plan(plan, self._journal.records()):
            findings = allow_first_plan(findings, allowed)
        detail = {"findings": [finding.model_dump(mode="json") for finding in findings]}
        details = EventDetails(reason=block_reason(findings), detail=detail)
        return self._journal.append(
            self._controls.event("blocked" if is_blocked(findings) else "cleared", plan, details)
        )

    def is_waiting(self, t: int) -> bool:
        """Whether the plan decided at the close of session `t` waits for a person."""
        return (record := self._record_at(t)) is not None and record.status == "waiting"

    def is_finished(self, t: int, *, acknowledge: bool = False) -> bool:
        """Whether all steps of session `t` are done, with soft findings acknowledged by the replay or not."""
        if not self._is_settled(t):
            return False
        proposal, record = self._journal.proposal(self._session(t)), self._record_at(t)
        if proposal is None:
            is_halted = self._journal.is_halted(self._session(t))
            return is_halted or not self._is_due(t)
        if record is None:
            return proposal.plan_id is None
        unfinished = {"constructed"} | ({"waiting"} if acknowledge else set())
        if self._venue.is_live:
            unfinished |= {"cleared", "approved"}
        return record.status not in unfinished and not self._placement.unplaced_orders(record.plan)

    def _is_due(self, t: int) -> bool:
        """Whether a decision is due at the close of session `t`: none is after the account lost everything."""
        state = self._venue.at(self._session(t))
        return not (state and state.ruin) and is_due(self._deployed, self._journal.proposals(), t)

    def _stop_reason(self, t: int) -> str | None:
        """Why session `t` does not trade, None if it does; a stopped session stays stopped."""
        stop = self._controls.switch.state().halt_reason
        if stop is None and self._journal.is_halted(self._session(t)):
            return "the kill switch stopped this session"
        return stop

    def _decide(self, t: int) -> tuple[RebalancePlan | None, Decision]:
        """Let the policy decide at the close of session `t`."""
        if t < self._deployed.first:
            raise ExecutionError(
                f"{self._deployed.policy} of run {self._deployed.run_id} may decide from the close of "
                f"{self._session(self._deployed.first)} on, after its training, but session {self._session(t)} is "
                "earlier; start later"
            )
        self._restore_policy_state(t)
        account = self._account_at(t)
        decision = self._deployed.decide(t, account)
        if decision.target is None:
            return None, decision
        if not np.isfinite(decision.target).all():
            raise ExecutionError(
                f"target weights must be finite, but {self._deployed.policy} decided {decision.target.tolist()} at "
                f"{self._session(t)}; check the market's features of that session"
            )
        plan = make_plan(self._deployed, self._journal.account, t, account, decision)
        plan = plan.model_copy(update={"bot": self._controls.bot})
        reason = self._controls.switch.state().reduce_reason
        return (reduced_plan(plan, reason) if reason else plan), decision

    def _restore_policy_state(self, t: int) -> None:
        """Repeat the decisions of a stateful policy before session `t`, once per process."""
        if self._has_policy_state:
            return
        own = (self._deployed.run_id, self._deployed.policy)
        for proposal in self._journal.proposals():
            if (proposal.run_id, proposal.policy) == own and proposal.session < self._session(t):
                earlier = self._panel.index_of(np.datetime64(proposal.session))
                self._deployed.decide(earlier, self._account_at(earlier))
        self._has_policy_state = True

    def _account_at(self, t: int) -> Account:
        state = self._venue.at(self._session(t))
        if state is None:
            raise ExecutionError(
                f"the account must be settled at {self._session(t)} before its policy decides, but is not; trade its "
                "sessions in order"
            )
        return state.account(self._panel.symbols)

    def _pending_record(self, t: int) -> PlanRecord | None:
        """Record of the plan decided before session `t` that may be filled in it."""
        if not self._venue.is_live:
            return self._record_at(t - 1)
        before = [proposal for proposal in self._journal.proposals() if proposal.session < self._session(t)]
        return self._journal.record(before[-1].plan_id) if before and before[-1].plan_id is not None else None

    def _record_at(self, t: int) -> PlanRecord | None:
        """Record of the plan decided at the close of session `t`."""
        proposal = self._journal.proposal(self._session(t)) if t >= 0 else None
        return None if proposal is None or proposal.plan_id is None else self._journal.record(proposal.plan_id)

    def _is_settled(self, t: int) -> bool:
        state = self._venue.last()
        return state is not None and state.session >= self._session(t)

    def _session(self, t: int) -> date:
        return self._panel.sessions[t].item()
