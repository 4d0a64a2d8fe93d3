"""One account's audit as the day loop reads it: what was decided when, what became of it, what was said already."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from nvtrader_pipelines.execution.audit import AuditEvent, AuditLog, EventKind, event_id
from nvtrader_pipelines.execution.book import PUT_BACK, Kept
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import plan_of
from nvtrader_pipelines.execution.plan_records import PlanRecord, plan_records

UNPLACED = frozenset({"constructed", "blocked", "waiting"})  # statuses of plans of which no order can be placed yet


@dataclass(frozen=True)
class Proposal:
    """A decision of a policy for the account."""

    session: date
    plan_id: str | None  # None: it wants no trade
    run_id: str | None
    policy: str | None
    at: datetime


class Journal:
    """The events of one account, which only this process appends to while it has them."""

    def __init__(self, log: AuditLog, account: str) -> None:
        self._log = log
        self._ids: set[str] = set()
        self._of_plan: dict[str, list[AuditEvent]] = {}
        self._proposals: dict[date, Proposal] = {}
        self._halted: set[date] = set()
        self._accepted: set[date] = set()
        self.account = account
        self._index(log.events(account))

    def append(self, *events: AuditEvent) -> list[AuditEvent]:
        """Keep those that are not kept yet; them."""
        new = [event for event in events if event.event_id not in self._ids]
        if new:
            self._log.append(new)
            self._index(new)
        return new

    def require_kept(self, kept: Kept) -> None:
        """Refuse a book that has not all that was said of its account, since what was said is not done again.

        Raises:
            ExecutionError: naming what is missing first.
        """
        said = [event for events in self._of_plan.values() for event in events]
        placed, filled = ({e.order_id: e.session for e in said if e.kind == kind} for kind in ("placed", "filled"))
        missing = [
            *((day, f"the state of {day}") for day in self._proposals if day not in kept.sessions),
            *((day, f"order {key}") for key, day in placed.items() if key not in kept.orders),
            *((day, f"the fill of order {key}") for key, day in filled.items() if key not in kept.fills),
        ]
        if missing:
            raise ExecutionError(
                f"the book of an account must have all that the audit tells of it, but that of {self.account} lacks "
                f"{min(missing, key=lambda each: (str(each[0]), each[1]))[1]} and {len(missing) - 1} more: it is lost, "
                f"or an older copy; {PUT_BACK}, or trade another account"
            )

    def require_told(self, kept: Kept, *, late: bool) -> None:
        """Refuse an audit that does not tell of all that a book has, since what is not told is decided anew.

        Orders and fills that a step which was killed left untold are told by the next attempt.

        Args:
            kept: what the book has.
            late: whether orders may be filled after the session they were placed for, as those at a broker.

        Raises:
            ExecutionError: naming some of what is missing.
        """
        known, fills = self._told("placed", "cancelled"), kept.fills - self._told("filled")
        orders = {key for key in kept.orders if known.isdisjoint((key, plan_of(key)))}
        records = [record for plan_id in {plan_of(key) for key in orders | fills} if (record := self.record(plan_id))]
        last = max(kept.sessions, default=date.min)
        in_hand = {r.plan.plan_id for r in records if r.plan.session >= last and r.status not in UNPLACED}
        waiting = {r.plan.plan_id for r in records if late and r.status == "placed"}
        untold = [
            *(f"order {key}" for key in sorted(orders) if plan_of(key) not in in_hand),
            *(f"the fill of order {key}" for key in sorted(fills) if plan_of(key) not in in_hand | waiting),
        ]
        if untold:
            raise ExecutionError(
                f"the audit must tell of all that the book of an account has, but of {self.account} it lacks "
                f"{untold[0]} and {len(untold) - 1} more: its last rows were cut off, or it is an older copy; put the "
                "whole file back, or trade another account"
            )

    def waiting(self) -> set[str]:
        """Ids of the orders that were placed and of which no end is told."""
        return self._told("placed") - self._told("filled", "cancelled")

    def has(self, event: str) -> bool:
        """Whether an event of this id is kept."""
        return event in self._ids

    def record(self, plan_id: str) -> PlanRecord | None:
        """What became of a plan; None where there is no such plan."""
        return plan_records(self._of_plan.get(plan_id, [])).get(plan_id)

    def records(self) -> Sequence[PlanRecord]:
        """What became of every plan, the oldest first."""
        found = [self.record(plan_id) for plan_id in self._of_plan]
        return [record for record in found if record is not None]

    def events_of(self, plan_id: str) -> Sequence[AuditEvent]:
        """Everything said of a plan and its orders."""
        return self._of_plan.get(plan_id, [])

    def proposal(self, session: date) -> Proposal | None:
        """What was decided at the close of a session; None where nothing was."""
        return self._proposals.get(session)

    def proposals(self) -> Sequence[Proposal]:
        """Every decision, the oldest first."""
        return [self._proposals[session] for session in sorted(self._proposals)]

    def halted(self, session: date) -> bool:
        """Whether the switch stopped a session."""
        return session in self._halted

    def accepted(self, session: date) -> bool:
        """Whether a person took what was held at the close of a session as it was."""
        return session in self._accepted

    def halt(self, session: date) -> str:
        """The id of the event that tells of it."""
        return event_id("halted", self.account, session)

    def _told(self, *kinds: EventKind) -> set[str]:
        """Orders, and plans as a whole, that events of some kinds are about."""
        said = (event for events in self._of_plan.values() for event in events if event.kind in kinds)
        return {event.order_id or event.plan_id or "" for event in said}

    def _index(self, events: Sequence[AuditEvent]) -> None:
        for event in events:
            self._ids.add(event.event_id)
            if event.plan_id is not None:
                self._of_plan.setdefault(event.plan_id, []).append(event)
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
