"""The day loop of one account: execute, settle, propose, clear; a step that was killed is finished by the next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.execution.audit import About, AuditEvent, EventKind, event_id, plan_event
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.brokers.venue import InForce, Venue, no_order
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.kill_switch import KillSwitch
from nvtrader_pipelines.execution.orders import Order, order_id
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, blocked_by, blocks
from nvtrader_pipelines.execution.plan_records import TO_BE_TRADED, PlanRecord
from nvtrader_pipelines.execution.proposals import Deployed, is_due, no_trade, plan_of, reasons
from nvtrader_pipelines.execution.reconciliation import refusal, unaccepted
from nvtrader_pipelines.policies.policy import Decision

ACKNOWLEDGED = "soft findings acknowledged by the replay itself"
OTHER_NAMES = "the policy that is active now trades other names"
NONE_PLACED = "none of its orders could be placed"
UNDECIDED = frozenset({"constructed", "waiting"})  # statuses of plans that compliance, or a person, must look at yet
PASSED = "the session it was to be placed for has passed"
EXPIRED = "it was {status} when its fill session came, and so it is not traded"


@dataclass(frozen=True)
class Oversight:
    """Who may stop what the policy wants, and whose name stands under what the loop does."""

    switch: KillSwitch
    findings: Callable[[RebalancePlan, int], Sequence[Finding]]  # of a plan decided at the close of a session
    unbuyable: Callable[[date], Mapping[str, str]]  # names that may not be bought in a session, and why
    clock: Callable[[], datetime]
    by: str


class Trader:
    """One account, session by session; `t` numbers the sessions of the policy's panel."""

    def __init__(self, deployed: Deployed, venue: Venue, journal: Journal, oversight: Oversight) -> None:
        self._deployed, self._venue, self._journal, self._oversight = deployed, venue, journal, oversight
        self._panel = deployed.panel
        self._in_force = InForce(deployed.policy, deployed.run_id, deployed.spec.spec_hash)
        self._reminded = not deployed.is_stateful

    def open_at(self, t: int) -> AccountState:
        """Open the account in cash at the close of session `t`; one that is open stays as it is."""
        return self._venue.open_at(t, self._in_force)

    def execute(self, t: int) -> list[AuditEvent]:
        """Place what was decided at the close before, and note what became of it; what this attempt said."""
        if self._settled(t):
            return []
        self.require_reconciled()
        said, stop = [], self._stopped(t)
        if stop:
            said += self._halt(t, stop)
        record = self._pending(t)
        if record is not None:
            said += self._carried_out(record, t, stop)
        return said + self._told_of_ended(record)

    def _carried_out(self, record: PlanRecord, t: int, stop: str | None) -> list[AuditEvent]:
        """What comes of a plan that was decided before session `t`, which is its fill session or after it."""
        said: list[AuditEvent] = []
        if record.status in UNDECIDED:
            said += self._cancelled(record.plan, EXPIRED.format(status=record.status))
        elif record.status in TO_BE_TRADED and not record.plan.is_over(self._panel.symbols):
            said += self._dropped(record.plan)
        elif record.status in TO_BE_TRADED and self._venue.settles == "with_bars":
            said += self._place(record.plan, t, stop)
        else:
            said += self._passed(record)
        return said

    def _dropped(self, plan: RebalancePlan) -> list[AuditEvent]:
        """A plan over other names than the policy that is active now has: none of it is traded any more."""
        self._venue.cancel_open(OTHER_NAMES)
        said = self._withdrawn(plan, self._left(plan), OTHER_NAMES)
        return said if self._at_broker(plan) else said + self._cancelled(plan, OTHER_NAMES)

    def settle(self, t: int) -> AccountState:
        """Mark the account to the close of session `t`; a NotReconciled where the one before it differs."""
        if not self._settled(t):
            self.require_reconciled()
        record, before = self._pending(t), self._venue.last()
        decided = self._journal.proposal(self._session(t - 1)) is not None
        accepted = before is not None and self._journal.accepted(before.session)
        plan = record.plan if record else None
        return self._venue.settle(t, plan, self._in_force, decided=decided, accepted=accepted)

    def unreconciled(self) -> str | None:
        """Why the account is not traded on from its last close; None where it is.

        What differed there may be explained since, by orders that ended late, or be put right by who has the account.
        """
        state = self._venue.last()
        if state is None or not unaccepted(state, self._journal):
            return None
        self._told_of_ended(None)
        differences = self._venue.unexplained()
        return refusal(self._journal.account, state.session, differences) if differences else None

    def require_reconciled(self) -> None:
        """Refuse to go on from a close at which the account differs: a NotReconciled that names what does."""
        if why := self.unreconciled():
            raise NotReconciled(why)

    def propose(self, t: int) -> RebalancePlan | None:
        """The plan decided at the close of session `t`, now or before; None where none is due, wanted or allowed.

        Raises:
            ExecutionError: if the policy may not decide there, or wants what is no number.
            NotReconciled: if the account differs there.
        """
        self.require_reconciled()
        session = self._session(t)
        known = self._journal.proposal(session)
        if known is not None:
            record = self._decided(t)
            if record is not None or known.plan_id is None:
                return record.plan if record else None
        elif stop := self._stopped(t):
            self._halt(t, stop)
            return None
        elif not is_due(self._deployed, self._journal.proposals(), t):
            return None
        plan, decision = self._decide(t)
        if plan is None:
            self._journal.append(
                no_trade(self._deployed, self._journal.account, session, self._oversight.clock(), self._oversight.by)
            )
            return None
        about = About(reason=reasons(decision))
        constructed = About(detail={"plan": plan.model_dump(mode="json")})
        self._journal.append(self._of("proposed", plan, about), self._of("constructed", plan, constructed))
        return plan

    def clear(self, t: int, *, acknowledge: bool = False) -> list[AuditEvent]:
        """Hold the plan decided at the close of session `t` against compliance; what this attempt said.

        Args:
            t: the session.
            acknowledge: whether soft findings are acknowledged at once, by the replay.
        """
        self.require_reconciled()
        record, said = self._decided(t), []
        if record is None:
            return said
        if record.status in UNDECIDED | TO_BE_TRADED and not record.plan.is_over(self._panel.symbols):
            return self._dropped(record.plan) + self._told_of_ended(record)
        if record.status == "constructed":
            findings = self._oversight.findings(record.plan, t)
            about = About(
                reason=blocked_by(findings), detail={"findings": [each.model_dump(mode="json") for each in findings]}
            )
            said += self._journal.append(self._of("blocked" if blocks(findings) else "cleared", record.plan, about))
            record = self._decided(t) or record
        if record.status == "waiting" and acknowledge:
            at, about = self._oversight.clock(), About(reason=ACKNOWLEDGED)
            said += self._journal.append(plan_event("approved", record.plan, at, "replay", about))
            record = self._decided(t) or record
        if record.status in TO_BE_TRADED and self._venue.settles == "at_market":
            said += self._place(record.plan, t, self._stopped(t))
        return said

    def waits(self, t: int) -> bool:
        """Whether the plan decided at the close of session `t` waits for a person."""
        return (record := self._decided(t)) is not None and record.status == "waiting"

    def finished(self, t: int, *, acknowledge: bool = False) -> bool:
        """Whether nothing is left to do at session `t`, by one who acknowledges soft findings or not."""
        if not self._settled(t):
            return False
        proposal, record = self._journal.proposal(self._session(t)), self._decided(t)
        if proposal is None:
            return self._journal.halted(self._session(t)) or not is_due(self._deployed, self._journal.proposals(), t)
        if record is None:
            return proposal.plan_id is None
        undone = {"constructed"} | ({"waiting"} if acknowledge else set())
        if self._venue.settles == "at_market":
            undone |= {"cleared", "approved"}
        return record.status not in undone and not self._left(record.plan)

    def _place(self, plan: RebalancePlan, t: int, stop: str | None) -> list[AuditEvent]:
        """Place a plan's orders one by one in session `t`, until the switch says no."""
        decided_at = self._panel.index_of(np.datetime64(plan.session))
        if blocked := self._blocked(plan, decided_at):
            return blocked
        orders, unplaced = self._venue.orders(plan, decided_at)
        said, left = [], list[Order]()
        for order in orders:
            if self._known(order):
                continue
            stop = stop or self._oversight.switch.engaged()
            if stop:
                left.append(order)
                continue
            said += self._submit(plan, order)
        said += self._none_placed(plan, orders)
        if stop:
            said += self._held(plan, left, t, stop)
        if not orders or not stop or self._at_broker(plan):
            gone = [self._order_cancelled(plan, each.symbol, each.reason) for each in unplaced]
            said += self._journal.append(*gone)
        return said if orders else said + self._cancelled(plan, no_order(plan, unplaced))

    def _held(self, plan: RebalancePlan, left: Sequence[Order], t: int, stop: str) -> list[AuditEvent]:
        """The switch came while a plan was placed: what is left is not placed, what waits for a market is cancelled."""
        if self._venue.settles == "with_bars":
            return self._say_halted(t, stop) + self._withdrawn(plan, left, stop)
        said = self._halt(t, stop) + self._withdrawn(plan, left, stop)
        return said + (self._told(plan) if self._at_broker(plan) else [])

    def _blocked(self, plan: RebalancePlan, decided_at: int) -> list[AuditEvent]:
        """The plan is cancelled where no order is placed yet and limits, or names, that it breaks came after it."""
        if self._at_broker(plan):
            return []
        hard = blocked_by(self._oversight.findings(plan, decided_at))
        if not hard:
            return []
        booked = self._venue.booked(plan.plan_id)
        return self._withdrawn(plan, booked, hard) if booked else self._cancelled(plan, hard)

    def _submit(self, plan: RebalancePlan, order: Order) -> list[AuditEvent]:
        """Place an order, unless it buys what holdings have drifted below and may not be bought."""
        barred = self._oversight.unbuyable(order.session).get(order.symbol) if order.side == "buy" else None
        if barred is not None:
            return self._journal.append(self._taken_back(plan, order, barred))
        receipt = self._venue.submit(order)
        if receipt.status == "rejected":
            return self._journal.append(self._order_withdrawn(plan, order, f"rejected: {receipt.reason}"))
        return self._journal.append(self._order_placed(plan, order, broker_order_id=receipt.broker_order_id))

    def _none_placed(self, plan: RebalancePlan, orders: Sequence[Order]) -> list[AuditEvent]:
        """The plan is cancelled where each of its orders was, before it was placed."""
        if not orders or self._at_broker(plan) or not all(self._known(order) for order in orders):
            return []
        return self._cancelled(plan, NONE_PLACED)

    def _told_of_ended(self, pending: PlanRecord | None) -> list[AuditEvent]:
        """What became of placed orders; at a market of earlier plans too, as some end after their evening's reading."""
        plans = [] if pending is None else [pending.plan]
        if self._venue.settles == "at_market":
            plans = [each.plan for each in self._journal.records() if each.status == "placed"]
        return [event for plan in plans if self._at_broker(plan) for event in self._told(plan)]

    def _told(self, plan: RebalancePlan) -> list[AuditEvent]:
        """What became of a plan's orders, said once."""
        outcome, events = self._venue.fill(plan, self._panel.index_of(np.datetime64(plan.session))), []
        for fill in outcome.fills:
            detail = {"fill": fill.model_dump(mode="json")}
            about = About(order_id=fill.order_id, symbol=fill.symbol, session=fill.session, detail=detail)
            events.append(self._of("filled", plan, about))
            if not fill.complete:
                reason = f"{fill.quantity:.6g} shares were filled; the rest is not carried on"
                events.append(self._order_cancelled(plan, fill.symbol, reason))
        events += [self._order_cancelled(plan, each.symbol, each.reason) for each in outcome.ended]
        return self._journal.append(*events)

    def _passed(self, record: PlanRecord) -> list[AuditEvent]:
        """What was to be placed at a market before it opened, and was not; be it that no order was made of it yet."""
        left = self._left(record.plan)
        if record.status in {"cleared", "approved"} and not left:
            return self._cancelled(record.plan, PASSED)
        return self._withdrawn(record.plan, left, PASSED)

    def _left(self, plan: RebalancePlan) -> list[Order]:
        """Orders of a plan for a market that were to be placed and were not; none of a plan that is cancelled whole."""
        waiting = self._venue.settles == "at_market" and not self._journal.has(event_id("cancelled", plan.plan_id, ""))
        return [order for order in self._venue.booked(plan.plan_id) if not self._known(order)] if waiting else []

    def _withdrawn(self, plan: RebalancePlan, orders: Sequence[Order], stop: str) -> list[AuditEvent]:
        """The orders that were not to be placed any more; the plan itself where none was."""
        events = [self._taken_back(plan, order, stop) for order in orders]
        if events and not self._at_broker(plan) and all(event.kind == "cancelled" for event in events):
            return self._cancelled(plan, stop)
        return self._journal.append(*events)

    def _taken_back(self, plan: RebalancePlan, order: Order, reason: str) -> AuditEvent:
        """What became of an order that is not to be placed: an attempt that was killed may have placed it."""
        gone = self._venue.cancel(order, reason)
        return self._order_withdrawn(plan, order, reason) if gone else self._order_placed(plan, order)

    def _cancelled(self, plan: RebalancePlan, reason: str) -> list[AuditEvent]:
        return self._journal.append(self._of("cancelled", plan, About(reason=reason)))

    def _order_placed(self, plan: RebalancePlan, order: Order, **more: str) -> AuditEvent:
        detail = {"order": order.model_dump(mode="json"), **more}
        about = About(order_id=order.order_id, symbol=order.symbol, session=order.session, detail=detail)
        return self._of("placed", plan, about)

    def _order_cancelled(self, plan: RebalancePlan, symbol: str, reason: str) -> AuditEvent:
        return self._of("cancelled", plan, About(order_id(plan.plan_id, symbol), symbol, reason=reason))

    def _order_withdrawn(self, plan: RebalancePlan, order: Order, reason: str) -> AuditEvent:
        """The event of an order that was never placed; it carries the order, which no other event does."""
        detail = {"order": order.model_dump(mode="json")}
        return self._of("cancelled", plan, About(order.order_id, order.symbol, reason=reason, detail=detail))

    def _at_broker(self, plan: RebalancePlan) -> bool:
        """Whether some order of a plan was placed."""
        return any(event.kind == "placed" for event in self._journal.events_of(plan.plan_id))

    def _known(self, order: Order) -> bool:
        """Whether an order was placed or cancelled already."""
        return any(self._journal.has(event_id(kind, order.plan_id, order.order_id)) for kind in ("placed", "cancelled"))

    def _stopped(self, t: int) -> str | None:
        """Why session `t` holds; a session that was stopped stays so."""
        stop = self._oversight.switch.engaged()
        if stop is None and self._journal.halted(self._session(t)):
            return "the kill switch stopped this session"
        return stop

    def _halt(self, t: int, stop: str) -> list[AuditEvent]:
        """Say that the switch stopped session `t`, and cancel what is open."""
        said = self._say_halted(t, stop)
        self._venue.cancel_open(stop)
        return said

    def _say_halted(self, t: int, stop: str) -> list[AuditEvent]:
        session = self._session(t)
        event = AuditEvent(
            event_id=self._journal.halt(session),
            kind="halted",
            at=self._oversight.clock(),
            by=self._oversight.by,
            account=self._journal.account,
            session=session,
            reason=stop,
        )
        return self._journal.append(event)

    def _decide(self, t: int) -> tuple[RebalancePlan | None, Decision]:
        if t < self._deployed.first:
            raise ExecutionError(
                f"{self._deployed.policy} of run {self._deployed.run_id} may decide from the close of "
                f"{self._session(self._deployed.first)} on, but is asked at {self._session(t)}, before its tests; "
                "begin later"
            )
        self._remind(t)
        account = self._account_at(t)
        decision = self._deployed.decide(t, account)
        if decision.target is None:
            return None, decision
        if not np.isfinite(decision.target).all():
            raise ExecutionError(
                f"target weights must be numbers, but {self._deployed.policy} wants {decision.target.tolist()} at "
                f"{self._session(t)}; check the market's features of that session"
            )
        return plan_of(self._deployed, self._journal.account, t, account, decision), decision

    def _remind(self, t: int) -> None:
        """Ask a policy with memory once more what it was asked for this account."""
        if self._reminded:
            return
        own = (self._deployed.run_id, self._deployed.policy)
        for proposal in self._journal.proposals():
            if (proposal.run_id, proposal.policy) == own and proposal.session < self._session(t):
                earlier = self._panel.index_of(np.datetime64(proposal.session))
                self._deployed.decide(earlier, self._account_at(earlier))
        self._reminded = True

    def _account_at(self, t: int) -> Account:
        state = self._venue.at(self._session(t))
        if state is None:
            raise ExecutionError(
                f"the account must have been settled at {self._session(t)}, where its policy decides, but was not; "
                "its sessions are traded one after the other"
            )
        return state.account(self._panel.symbols)

    def _pending(self, t: int) -> PlanRecord | None:
        """The plan that was decided before session `t` and may be filled in it, with what became of it."""
        if self._venue.settles == "with_bars":
            return self._decided(t - 1)
        before = [each for each in self._journal.proposals() if each.session < self._session(t)]
        return self._journal.record(before[-1].plan_id) if before and before[-1].plan_id is not None else None

    def _decided(self, t: int) -> PlanRecord | None:
        """The plan decided at the close of session `t`, with what became of it."""
        proposal = self._journal.proposal(self._session(t)) if t >= 0 else None
        return None if proposal is None or proposal.plan_id is None else self._journal.record(proposal.plan_id)

    def _settled(self, t: int) -> bool:
        state = self._venue.last()
        return state is not None and state.session >= self._session(t)

    def _of(self, kind: EventKind, plan: RebalancePlan, about: About) -> AuditEvent:
        return plan_event(kind, plan, self._oversight.clock(), self._oversight.by, about)

    def _session(self, t: int) -> date:
        return self._panel.sessions[t].item()
