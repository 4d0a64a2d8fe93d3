"""Controls that may stop a policy's orders: kill switch, compliance and purchase bans."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol

from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, EventKind, plan_event
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan


class KillSwitch(Protocol):
    """Switch that stops trading while it is engaged; it is read before every order and at every session."""

    def halt_reason(self) -> str | None:
        """Return why trading is stopped; None if it is not. A switch that cannot be read counts as engaged."""
        ...


@dataclass(frozen=True)
class RiskControls:
    """Risk controls of an account, and the clock and author of its audit events."""

    switch: KillSwitch
    findings: Callable[[RebalancePlan, int], Sequence[Finding]]  # of a plan and the session of its decision
    purchase_bans: Callable[[date], Mapping[str, str]]  # names that may not be bought in a session, with the reason
    clock: Callable[[], datetime]
    by: str  # author of events

    def event(self, kind: EventKind, plan: RebalancePlan, details: EventDetails) -> AuditEvent:
        """Make an event of a plan, at the current time."""
        return plan_event(kind, plan, self.clock(), self.by, details)
