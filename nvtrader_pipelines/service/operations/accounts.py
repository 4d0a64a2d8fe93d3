"""Accounts: their state, differences from their expected holdings, and their reset."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.operations.arguments import Account, AuditReason
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    from nvtrader_pipelines.execution.audit import AuditEvent
    from nvtrader_pipelines.service.documents.account_facts import AccountSnapshot


class Accounts(Family):
    """State of an account, differences from its expected holdings, and its reset."""

    command, alone = "portfolio", "show"
    examples = ("nvtrader portfolio", "nvtrader portfolio --account paper --json")

    @operation(
        "nvtrader portfolio show --account paper",
        route="GET /api/portfolio",
        reads=("desk", "runs", "experiments", "policies"),
    )
    def show(self, *, account: Account = "paper") -> "AccountSnapshot":
        """Show an account: positions, cash, equity, last plan, waiting plans and the kill switch.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.service.documents.account_facts import account_snapshot

        return account_snapshot(self.store, account)

    @operation(
        'nvtrader portfolio accept-differences --reason "bought ten by hand"',
        route="POST /api/portfolio/accept-differences",
        writes=True,
    )
    def accept_differences(self, *, reason: AuditReason, account: Account = "paper") -> "AuditEvent":
        """Accept holdings that differ from what was expected; trading then resumes.

        Raises:
            NotFoundError: if there is no such account.
            ExecutionError: if its holdings do not differ.
        """
        from nvtrader_pipelines.desk.desk import act_on_account

        return act_on_account(self.store, account, self.home.by, lambda desk: desk.accept(self.home.by, reason))

    @operation(
        'nvtrader portfolio reset --reason "begin with another capital"',
        route="POST /api/portfolio/reset",
        writes=True,
    )
    def reset(self, *, reason: AuditReason, account: Account = "paper") -> "AuditEvent":
        """Empty a simulated account, so that it opens anew; its past stays in the audit.

        `portfolio`, `plans` and the portfolio tables but the audit then begin anew, too. An account at a broker cannot
        be reset.

        Raises:
            NotFoundError: if there is no such account.
            StorageError: if it was opened at a broker.
            ExecutionError: if it is at a broker, or not open.
        """
        from nvtrader_pipelines.desk.desk import act_on_account

        return act_on_account(self.store, account, self.home.by, lambda desk: desk.reset(self.home.by, reason))
