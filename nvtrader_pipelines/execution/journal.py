"""Index of one account's audit events for the day loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from nvtrader_pipelines.execution.audit import AuditEvent, AuditLog, EventKind, event_id
from nvtrader_pipelines.execution.book import BookIndex
from nvtrader_pipelines.execution.errors import AuditIncomplete, BookIncomplete
from nvtrader_pipelines.execution.orders import plan_id_of
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records

BEFORE_PLACEMENT = frozenset({"constructed", "blocked", "waiting"})  # statuses of plans without orders


@dataclass(frozen=True)
class Proposal:
    """Decision of a policy for the account."""

    session: date
    plan_id: str | None  # None: no trade
    run_id: str | None
    policy: str | None
    at: datetime


class Journal:
    """Events of one account since its last reset; only this process appends to them while it holds the account."""

    def __init__(self, log: AuditLog, account: str, events: Sequence[AuditEvent] | None = None) -> None:
        """Index the events of an account, which are read unless they are given."""
        self._log = log
        self._ids: set[str] = set()
        self._events_by_plan: dict[str, list[AuditEvent]] = {}
        self._proposals: dict[date, Proposal] = {}
        self._halted: set[date] = set()
        self._accepted: set[date] = set()
        self._reset: str | None = None  # id of the account's last reset
        self.account = account
        self._index(log.events(account) if events is None else events)

    @property
    def is_new_after_reset(self) -> bool:
        """Whether nothing was recorded since the account's last reset."""
        return self._ids == {self._reset}

    def append(self, *events: AuditEvent) -> list[AuditEvent]:
        """Append the events that are new, and return them."""
        own = [event.model_copy(update={"event_id": self._own_id(event.event_id)}) for event in events]
        new = [event for event in own if event.event_id not in self._ids]
        if new:
            self._log.append(new)
            self._index(new)
        return new

    def require_book_covers_audit(self, index: BookIndex) -> None:
        """Raise if the book lacks events that the audit holds: replaying them would place orders twice.

        Raises:
            BookIncomplete: with the missing entries, oldest first.
        """
        events = [event for events in self._events_by_plan.values() for event in events]
        placed, filled = ({e.order_id: e.session for e in events if e.kind == kind} for kind in ("placed", "filled"))
        missing = [
            *((day, f"the state of {day}") for day in self._proposals if day not in index.sessions),
            *((day, f"order {key}") for key, day in placed.items() if key not in index.orders),
            *((day, f"the fill of order {key}") for key, day in filled.items() if key not in index.fills),
        ]
        if missing:
            raise BookIncomplete(
                self.account, [name for _, name in sorted(missing, key=lambda key: (str(key[0]), key[1]))]
            )

    def require_audit_covers_book(self, index: BookIndex, *, late: bool) -> None:
        """Raise if the audit lacks orders or fills that the book holds: their plans would be decided again.

        Orders and fills of an interrupted step do not count: the next attempt records them. With `late`, orders may
        fill after their session, as at a broker.

        Raises:
            AuditIncomplete: with the missing orders and fills.
        """
        known, fills = self._order_ids("placed", "cancelled"), index.fills - self._order_ids("filled")
        orders = {key for key in index.orders if known.isdisjoint((key, plan_id_of(key)))}
        plan_ids = {plan_id_of(key) for key in orders | fills}
        records = [record for plan_id in plan_ids if (record := self.record(plan_id))]
        last = max(index.sessions, default=date.min)
        current = {r.plan.plan_id for r in records if r.plan.session >= last and r.status not in BEFORE_PLACEMENT}
        waiting = {r.plan.plan_id for r in records if late and r.status == "placed"}
        missing = [
            *(f"order {key}" for key in sorted(orders) if plan_id_of(key) not in current),
            *(f"the fill of order {key}" for key in sorted(fills) if plan_id_of(key) not in current | waiting),
        ]
        if missing:
            raise AuditIncomplete(self.account, missing)

    def open_order_ids(self) -> set[str]:
        """Ids of the orders that were placed, and neither filled nor cancelled."""
        return self._order_ids("placed") - self._order_ids("filled", "cancelled")

    def has(self, event: str) -> bool:
        """Whether there is an event with this id."""
        return self._own_id(event) in self._ids

    def record(self, plan_id: str) -> PlanRecord | None:
        """Return the record of a plan; None for an unknown plan."""
        return plan_records(self._events_by_plan.get(plan_id, [])).get(plan_id)

    def records(self) -> Sequence[PlanRecord]:
        """Return the records of all plans, oldest first."""
        records = [self.record(plan_id) for plan_id in self._events_by_plan]
        return [record for record in records if record is not None]

    def events_of(self, plan_id: str) -> Sequence[AuditEvent]:
        """Return the events of a plan and its orders."""
        return self._events_by_plan.get(plan_id, [])

    def proposal(self, session: date) -> Proposal | None:
        """Return the decision at the close of a session; None if there was none."""
        return self._proposals.get(session)

    def proposals(self) -> Sequence[Proposal]:
        """Return all decisions, oldest first."""
        return [self._proposals[session] for session in sorted(self._proposals)]

    def is_halted(self, session: date) -> bool:
        """Whether the kill switch stopped a session."""
        return session in self._halted

    def is_accepted(self, session: date) -> bool:
        """Whether a person accepted the holdings at the close of a session."""
        return session in self._accepted

    def _own_id(self, event: str) -> str:
        """Id of an event, other than that of the same event before the account's last reset."""
        return event if self._reset is None else event_id("reset", self._reset, event)

    def _order_ids(self, *kinds: EventKind) -> set[str]:
        """Ids of the orders, or plan ids for whole plans, that have an event of one of the kinds."""
        events = (event for events in self._events_by_plan.values() for event in events if event.kind in kinds)
        return {event.order_id or event.plan_id or "" for event in events}

    def _index(self, events: Sequence[AuditEvent]) -> None:
        for event in events:
            self._ids.add(event.event_id)
            if event.kind == "reset":
                self._reset = event.event_id
            if event.plan_id is not None:
                self._events_by_plan.setdefault(event.plan_id, []).append(event)
            if event.session is None:
                continue
            if event.kind == "halted":
                self._halted.add(event.session)
            if event.kind == "accepted":
                self._accepted.add(event.session)
            if event.kind == "proposed":
                self._proposals[event.session] = Proposal(
                    event.session, event.plan_id, event.run_id, event.policy, event.at
                )
