"""Orders of one account's plans: placed, withdrawn and recorded under its risk controls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

import numpy as np

from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, EventKind, TradingState, event_id, plan_event
from nvtrader_pipelines.execution.brokers.venue import Venue, no_order_reason
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.orders import Order, order_id
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan, block_reason
from nvtrader_pipelines.execution.plan_records import PlanRecord
from nvtrader_pipelines.market.panel import MarketPanel


class KillSwitch(Protocol):
    """Switch that stops or reduces trading; it is read before every order and at every session."""

    def state(self) -> TradingState:
        """Return the state of trading; a switch that cannot be read counts as halted."""
        ...


@dataclass(frozen=True)
class RiskControls:
    """Risk controls of an account, with the clock and author of its audit events."""

    switch: KillSwitch
    findings: Callable[[RebalancePlan, int], Sequence[Finding]]  # of a plan and the session of its decision
    purchase_bans: Callable[[date], Mapping[str, str]]  # names that may not be bought in a session, with the reason
    clock: Callable[[], datetime]
    by: str  # author of events
    replayed_to: date | None = None  # last session of a replay of history; None without one
    first_plan_turnover: float = 0.0  # up to which a policy's first plan waits for nobody
    bot: str = ""  # that trades; empty without one

    def event(self, kind: EventKind, plan: RebalancePlan, details: EventDetails) -> AuditEvent:
        """Make an event of a plan, at the current time."""
        return plan_event(kind, plan, self.clock(), self.by, details)

    def order_placed(self, plan: RebalancePlan, order: Order, **ids: str) -> AuditEvent:
        """Make the event of a placed order."""
        detail = {"order": order.model_dump(mode="json"), **ids}
        details = EventDetails(order_id=order.order_id, symbol=order.symbol, session=order.session, detail=detail)
        return self.event("placed", plan, details)

    def order_cancelled(self, plan: RebalancePlan, symbol: str, reason: str) -> AuditEvent:
        """Make the event of an order that ended without a fill, or with a partial one."""
        return self.event(
            "cancelled", plan, EventDetails(order_id(plan.plan_id, symbol, plan.bot), symbol, reason=reason)
        )

    def order_withdrawn(self, plan: RebalancePlan, order: Order, reason: str) -> AuditEvent:
        """Make the event of an order that was never placed; it holds the order, as no other event does."""
        detail = {"order": order.model_dump(mode="json")}
        return self.event("cancelled", plan, EventDetails(order.order_id, order.symbol, reason=reason, detail=detail))

    def halted(self, account: str, session: date, stop: str) -> AuditEvent:
        """Make the event of a session that the kill switch stopped."""
        return AuditEvent(
            event_id=event_id("halted", account, session),
            kind="halted",
            at=self.clock(),
            by=self.by,
            account=account,
            session=session,
            reason=stop,
        )


OTHER_NAMES = "the active policy trades other names"
NONE_PLACED = "none of its orders could be placed"
TOO_LATE = "its fill session has passed"


class OrderPlacement:
    """Orders of one account at its venue; every method returns the new audit events.

    An interrupted method is finished by calling it again: orders and events have ids and are stored once.
    """

    def __init__(self, panel: MarketPanel, venue: Venue, journal: Journal, controls: RiskControls) -> None:
        self._panel, self._venue, self._journal, self._controls = panel, venue, journal, controls

    def place(self, plan: RebalancePlan, session: date, stop: str | None) -> list[AuditEvent]:
        """Place a plan's orders one by one, until the kill switch is engaged; `stop` says why it is already."""
        decided_at = self._decided_at(plan)
        if blocked := self._cancel_if_blocked(plan, decided_at):
            return blocked
        orders, unplaced = self._venue.orders(plan, decided_at)
        events, remaining = [], list[Order]()
        for order in orders:
            if self._is_recorded(order):
                continue
            state = self._controls.switch.state()
            stop = stop or state.halt_reason
            if stop:
                remaining.append(order)
                continue
            events += self._submit(plan, order, state.reduce_reason)
        events += self._cancel_if_none_placed(plan, orders)
        if stop:
            events += self._stop_placing(plan, remaining, session, stop)
        if not orders or not stop or self._has_placed_orders(plan):
            cancellations = [self._controls.order_cancelled(plan, order.symbol, order.reason) for order in unplaced]
            events += self._journal.append(*cancellations)
        return events if orders else events + self.cancel_plan(plan, no_order_reason(plan, unplaced))

    def unplaced_orders(self, plan: RebalancePlan) -> list[Order]:
        """Orders of a plan for a live venue that are still to be placed; none if the plan is cancelled."""
        if not self._venue.is_live or self._journal.has(event_id("cancelled", plan.plan_id, "")):
            return []
        return [order for order in self._venue.plan_orders(plan.plan_id) if not self._is_recorded(order)]

    def expire(self, record: PlanRecord) -> list[AuditEvent]:
        """Withdraw what is left of a plan whose fill session has passed."""
        unplaced = self.unplaced_orders(record.plan)
        if record.status in {"cleared", "approved"} and not unplaced:
            return self.cancel_plan(record.plan, TOO_LATE)
        return self._withdraw_orders(record.plan, unplaced, TOO_LATE)

    def drop(self, plan: RebalancePlan) -> list[AuditEvent]:
        """Withdraw a plan over other names than those of the active policy."""
        self._venue.cancel_open(OTHER_NAMES)
        events = self._withdraw_orders(plan, self.unplaced_orders(plan), OTHER_NAMES)
        return events if self._has_placed_orders(plan) else events + self.cancel_plan(plan, OTHER_NAMES)

    def cancel_plan(self, plan: RebalancePlan, reason: str) -> list[AuditEvent]:
        """Record that a plan is cancelled as a whole."""
        return self._journal.append(self._controls.event("cancelled", plan, EventDetails(reason=reason)))

    def halt(self, session: date, stop: str) -> list[AuditEvent]:
        """Record that the kill switch stopped a session, and cancel open orders."""
        events = self._journal.append(self._controls.halted(self._journal.account, session, stop))
        self._venue.cancel_open(stop)
        return events

    def record_order_outcomes(self, pending: PlanRecord | None) -> list[AuditEvent]:
        """Record fills and ends of placed orders; at a live venue also those of earlier plans, which may end late."""
        plans = [] if pending is None else [pending.plan]
        if self._venue.is_live:
            plans = [record.plan for record in self._journal.records() if record.status == "placed"]
        return [event for plan in plans if self._has_placed_orders(plan) for event in self._record_outcomes(plan)]

    def _record_outcomes(self, plan: RebalancePlan) -> list[AuditEvent]:
        """Record the outcomes of one plan's orders."""
        outcomes, events = self._venue.fill(plan, self._decided_at(plan)), []
        for fill in outcomes.fills:
            detail = {"fill": fill.model_dump(mode="json")}
            details = EventDetails(order_id=fill.order_id, symbol=fill.symbol, session=fill.session, detail=detail)
            events.append(self._controls.event("filled", plan, details))
            if not fill.complete:
                reason = f"{fill.quantity:.6g} shares were filled; the rest is cancelled"
                events.append(self._controls.order_cancelled(plan, fill.symbol, reason))
        events += [self._controls.order_cancelled(plan, order.symbol, order.reason) for order in outcomes.ended]
        return self._journal.append(*events)

    def _submit(self, plan: RebalancePlan, order: Order, reduce_reason: str | None = None) -> list[AuditEvent]:
        """Place an order, unless it buys a banned name, whose holding may have drifted below its target.

        Nor does one that grows a position while trading is reducing. One that only covers a short position is placed.
        """
        is_purchase, is_short = (order.side == "buy" and order.target_weight > 0.0), order.target_weight < 0.0
        ban = self._controls.purchase_bans(order.session).get(order.symbol) if is_purchase else None
        if is_purchase or (order.side == "sell" and is_short):
            ban = ban or reduce_reason
        if ban is not None:
            return self._journal.append(self._withdraw_order(plan, order, ban))
        receipt = self._venue.submit(order)
        if receipt.status == "rejected":
            return self._journal.append(self._controls.order_withdrawn(plan, order, f"rejected: {receipt.reason}"))
        return self._journal.append(self._controls.order_placed(plan, order, broker_order_id=receipt.broker_order_id))

    def _stop_placing(
        self, plan: RebalancePlan, remaining: Sequence[Order], session: date, stop: str
    ) -> list[AuditEvent]:
        """Withdraw the remaining orders of a plan; at a live venue, also cancel those that are open."""
        if not self._venue.is_live:
            halted = self._controls.halted(self._journal.account, session, stop)
            return self._journal.append(halted) + self._withdraw_orders(plan, remaining, stop)
        events = self.halt(session, stop) + self._withdraw_orders(plan, remaining, stop)
        return events + (self._record_outcomes(plan) if self._has_placed_orders(plan) else [])

    def _cancel_if_blocked(self, plan: RebalancePlan, decided_at: int) -> list[AuditEvent]:
        """Cancel a plan without placed orders that breaches a hard limit by now."""
        if self._has_placed_orders(plan):
            return []
        reason = block_reason(self._controls.findings(plan, decided_at))
        if not reason:
            return []
        orders = self._venue.plan_orders(plan.plan_id)
        return self._withdraw_orders(plan, orders, reason) if orders else self.cancel_plan(plan, reason)

    def _cancel_if_none_placed(self, plan: RebalancePlan, orders: Sequence[Order]) -> list[AuditEvent]:
        """Cancel a plan if all its orders were cancelled before they were placed."""
        if not orders or self._has_placed_orders(plan) or not all(self._is_recorded(order) for order in orders):
            return []
        return self.cancel_plan(plan, NONE_PLACED)

    def _withdraw_orders(self, plan: RebalancePlan, orders: Sequence[Order], reason: str) -> list[AuditEvent]:
        """Withdraw unplaced orders of a plan, and cancel the plan if none of its orders was placed."""
        events = [self._withdraw_order(plan, order, reason) for order in orders]
        if events and not self._has_placed_orders(plan) and all(event.kind == "cancelled" for event in events):
            return self.cancel_plan(plan, reason)
        return self._journal.append(*events)

    def _withdraw_order(self, plan: RebalancePlan, order: Order, reason: str) -> AuditEvent:
        """Cancel an order at the venue, where an interrupted attempt may have placed it, and make its event."""
        is_unfilled = self._venue.cancel(order, reason)
        return (
            self._controls.order_withdrawn(plan, order, reason)
            if is_unfilled
            else self._controls.order_placed(plan, order)
        )

    def _has_placed_orders(self, plan: RebalancePlan) -> bool:
        return any(event.kind == "placed" for event in self._journal.events_of(plan.plan_id))

    def _is_recorded(self, order: Order) -> bool:
        """Whether an order was placed or cancelled already."""
        return any(self._journal.has(event_id(kind, order.plan_id, order.order_id)) for kind in ("placed", "cancelled"))

    def _decided_at(self, plan: RebalancePlan) -> int:
        """Position of the session of a plan's decision."""
        return self._panel.index_of(np.datetime64(plan.session))
