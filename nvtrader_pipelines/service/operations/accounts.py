"""Accounts: their state, differences from their expected holdings, and their reset."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.open_home import OpenHome
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.audit import AuditEvent
    from nvtrader_pipelines.service.documents.account_facts import AccountSnapshot


@operation
def show_account(home: OpenHome, account: str = "paper") -> "AccountSnapshot":
    """Show an account: positions, cash, equity, last plan, waiting plans and the kill switch.

    Args:
        home: the home.
        account: account of data/accounts; `paper` needs no file.

    Raises:
        StorageError: if there is no such account.
    """
    from nvtrader_pipelines.service.documents.account_facts import account_snapshot

    return account_snapshot(home.store, account)


@operation
def accept_differences(home: OpenHome, reason: str, account: str = "paper") -> "AuditEvent":
    """Accept holdings that differ from what was expected; trading then resumes.

    Args:
        home: the home.
        reason: why; recorded in the audit.
        account: account of data/accounts; `paper` needs no file.

    Raises:
        StorageError: if there is no such account.
        ExecutionError: if its holdings do not differ, or there is no reason.
    """
    from nvtrader_pipelines.desk.desk import act_on_account

    return act_on_account(home.store, account, home.by, lambda desk: desk.accept(home.by, reason))


@operation
def reset(home: OpenHome, reason: str, account: str = "paper") -> "AuditEvent":
    """Empty a simulated account, so that it opens anew; its past stays in the audit.

    Plans and the portfolio tables but the audit then begin anew, too.

    Args:
        home: the home.
        reason: why; recorded in the audit.
        account: account of data/accounts; `paper` needs no file.

    Raises:
        StorageError: if there is no such account, or it was opened at a broker.
        ExecutionError: if it is at a broker or not open, or there is no reason.
    """
    from nvtrader_pipelines.desk.desk import act_on_account

    return act_on_account(home.store, account, home.by, lambda desk: desk.reset(home.by, reason))


class Accounts(Family):
    """Accounts: their state, differences from their expected holdings, and their reset."""

    show, accept_differences, reset = show_account, accept_differences, reset
