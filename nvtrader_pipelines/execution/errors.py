"""Errors that stop a rebalance."""

from collections.abc import Sequence
from datetime import date

RESTORE_STEPS = "move it, its -wal and its -shm file away, and put the newest copy back"  # SQLite applies any -wal


class ExecutionError(ValueError):
    """Precondition of trading that does not hold; nothing was written."""


class TradingStopped(ExecutionError):  # noqa: N818 - the name says what is the matter
    """Trading that ended before all due sessions were traded."""


class NotReconciled(TradingStopped):
    """Account whose holdings differ from the expected ones, which no person has accepted."""

    def __init__(self, account: str, session: date, differences: Sequence[str]) -> None:
        self.account, self.session, self.differences = account, session, tuple(differences)
        super().__init__(
            f"an account must hold the expected shares before it trades, but {account} differed at the close of "
            f"{session}: {'; '.join(differences)}; correct it at the broker, or accept the actual holdings: "
            f"`nvtrader portfolio accept-differences --account {account} --reason WHY`"
        )


class TradingHalted(TradingStopped):
    """Account that has sessions before the market's last one to trade, while trading is stopped."""

    def __init__(self, account: str, session: date, reason: str, remedy: str) -> None:
        self.account, self.session, self.reason = account, session, reason
        super().__init__(
            f"past sessions are traded only while trading is not stopped, but {reason}; the account {account} stays at "
            f"the close of {session}: {remedy}"
        )


class BookIncomplete(ExecutionError):  # noqa: N818
    """Book that lacks events of the audit."""

    def __init__(self, account: str, missing: Sequence[str]) -> None:
        self.account, self.missing = account, tuple(missing)
        super().__init__(
            f"the book of an account must hold all states, orders and fills of the audit, but that of {account} lacks "
            f"{missing[0]} and {len(missing) - 1} more: it is missing or an older copy; {RESTORE_STEPS}, or trade "
            "another account"
        )


class AuditIncomplete(ExecutionError):  # noqa: N818
    """Audit that lacks orders or fills of the book."""

    def __init__(self, account: str, missing: Sequence[str]) -> None:
        self.account, self.missing = account, tuple(missing)
        super().__init__(
            f"the audit must hold all orders and fills of an account's book, but of {account} it lacks "
            f"{missing[0]} and {len(missing) - 1} more: its last rows are missing, or it is an older copy; restore "
            "the whole file, or trade another account"
        )
