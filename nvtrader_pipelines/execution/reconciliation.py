"""Reconciliation of expected and actual holdings, and acceptance of their differences."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal

TOLERANCE = 1e-6  # shares: below the smallest fraction of any broker


@dataclass(frozen=True)
class Difference:
    """Name whose actual shares differ from the expected ones."""

    symbol: str
    expected: float  # shares
    actual: float  # shares

    @property
    def sentence(self) -> str:
        """Description of the difference for people."""
        more = self.actual - self.expected
        return f"{self.symbol}: {self.expected:.6g} shares expected, {self.actual:.6g} held ({more:+.6g})"


def reconcile(expected: Mapping[str, float], actual: Mapping[str, float]) -> list[Difference]:
    """Return the names whose shares differ or are NaN, in alphabetical order.

    Args:
        expected: shares by symbol according to the account's book; missing names are not held.
        actual: shares by symbol according to the broker.
    """
    pairs = [(name, expected.get(name, 0.0), actual.get(name, 0.0)) for name in sorted({*expected, *actual})]
    return [Difference(*pair) for pair in pairs if not abs(pair[1] - pair[2]) <= TOLERANCE]  # True for NaN


def open_differences(state: AccountState | None, journal: Journal) -> tuple[str, ...]:
    """Unaccepted differences between expected and actual holdings at the last close, a sentence each."""
    return () if state is None or journal.is_accepted(state.session) else state.differences


def acceptance_event(account: str, state: AccountState | None, author: tuple[str, str], at: datetime) -> AuditEvent:
    """Make the event of a person who accepts the actual holdings; one per session.

    The state is the last of the account, None if it is not open; the author is the person and the reason.

    Raises:
        ExecutionError: if there is no difference, or no reason.
    """
    by, reason = author
    if state is None or not state.differences:
        found = "is not open yet" if state is None else f"held the expected shares at the close of {state.session}"
        raise ExecutionError(f"there must be a difference to accept, but the account {account} {found}")
    if not reason.strip():
        raise ExecutionError("a difference must be accepted with a reason, which the audit records; give one")
    return AuditEvent(
        event_id=event_id("accepted", account, state.session),
        kind="accepted",
        at=at,
        by=by,
        account=account,
        session=state.session,
        reason=reason,
        detail={"differences": list(state.differences)},
    )
