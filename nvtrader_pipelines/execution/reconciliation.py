"""Reconciliation: what an account should hold against what the broker's books say it holds, and who accepts less."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal

TOLERANCE = 1e-6  # shares: below what any broker keeps of a fraction


@dataclass(frozen=True)
class Difference:
    """A name that is not held as expected."""

    symbol: str
    expected: float  # shares
    actual: float  # shares

    @property
    def sentence(self) -> str:
        """What is wrong, and by how much, for a person."""
        more = self.actual - self.expected
        return f"{self.symbol}: {self.expected:.6g} shares expected, {self.actual:.6g} held ({more:+.6g})"


def reconcile(
    expected: Mapping[str, float], actual: Mapping[str, float], tolerance: float = TOLERANCE
) -> list[Difference]:
    """Names whose shares differ by more than the tolerance, or are not a number on a side, in alphabetical order.

    Args:
        expected: shares by symbol that the account's own books say; a name that is not there is not held.
        actual: the same by the broker.
        tolerance: shares.

    Raises:
        ValueError: if the tolerance is negative or no number.
    """
    if not tolerance >= 0.0:
        raise ValueError(f"tolerance must be a number of shares of at least 0, but it is {tolerance}")
    pairs = [(name, expected.get(name, 0.0), actual.get(name, 0.0)) for name in sorted({*expected, *actual})]
    return [Difference(*pair) for pair in pairs if not abs(pair[1] - pair[2]) <= tolerance]  # NaN differs from all


def unaccepted(state: AccountState | None, journal: Journal) -> tuple[str, ...]:
    """What an account differed by at its last close, a sentence each, where no person has accepted it."""
    return () if state is None or journal.accepted(state.session) else state.differences


def refusal(account: str, session: date, differences: Sequence[str]) -> str:
    """Why an account is not traded on, and what a person does about it."""
    return (
        f"an account must hold what is expected of it before it is traded on, but {account} differed at the close of "
        f"{session}: {'; '.join(differences)}; bring it in order where it is held, or take it as it is: "
        f"`nvtrader portfolio accept-differences --account {account} --reason WHY`"
    )


def acceptance(account: str, state: AccountState | None, said: tuple[str, str], at: datetime) -> AuditEvent:
    """The event of a person who takes what an account holds as it is; one of a session.

    Args:
        account: the account's name.
        state: where it stands; None where it is not open.
        said: by whom, and why.
        at: when.

    Raises:
        ExecutionError: if nothing differs there, or a reason is missing.
    """
    by, reason = said
    if state is None or not state.differences:
        stands_at = "is not open yet" if state is None else f"held at the close of {state.session} what was expected"
        raise ExecutionError(f"a difference is accepted where there is one, but the account {account} {stands_at}")
    if not reason.strip():
        raise ExecutionError("a difference is accepted for a reason, which is kept in the audit; give one")
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
