"""Accounts: their state, differences from their expected holdings, and their reset."""

from datetime import date
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.arguments import Account, AuditReason
from nvtrader_pipelines.service.operations.operation import Family, Flags, operation

if TYPE_CHECKING:
    from nvtrader_pipelines.desk.account_activity import AccountActivity
    from nvtrader_pipelines.desk.account_curves import AccountCurves
    from nvtrader_pipelines.desk.account_history import AccountHistory
    from nvtrader_pipelines.desk.account_snapshot import AccountSnapshot
    from nvtrader_pipelines.execution.audit import AuditEvent


class Accounts(Family):
    """State of an account, differences from its expected holdings, and its reset."""

    command, alone = "portfolio", "show"
    examples = ("nvtrader portfolio", "nvtrader portfolio --account paper --json")

    @operation(
        "nvtrader portfolio show --account paper",
        route="GET /api/portfolio",
        is_kept=True,
    )
    def show(self, *, account: Account = "paper") -> "AccountSnapshot":
        """Show an account: positions, cash, equity, last plan, waiting plans and the kill switch.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.desk.account_snapshot import account_snapshot

        return account_snapshot(self.store, account)

    @operation("nvtrader portfolio history --account paper", route="GET /api/portfolio/history", is_kept=True)
    def history(self, *, account: Account = "paper") -> "AccountHistory":
        """Show an account's past: figures since its opening, months, orders with their slippage, and decided plans.

        Slippage is against the price at which the back-test fills. The excess of a plan is what its decision brought
        over the other choice in five sessions, as `preferences.outcomes` has it.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.desk.account_history import account_history

        return account_history(self.store, account)

    @operation("nvtrader portfolio curves --account paper", route="GET /api/portfolio/curves", is_kept=True)
    def curves(self, *, account: Account = "paper") -> "AccountCurves":
        """Show an account's equity by session beside its back-test, 1/N and SPY, 1 at its opening.

        Raises:
            NotFoundError: if there is no such account, or it has not traded yet.
        """
        from nvtrader_pipelines.desk.account_curves import account_curves

        return account_curves(self.store, account)

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
        from nvtrader_pipelines.feedback.decisions import act_on_account

        return act_on_account(self.store, account, self.opened.by, lambda desk: desk.accept(self.opened.by, reason))

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
        from nvtrader_pipelines.feedback.decisions import act_on_account

        return act_on_account(self.store, account, self.opened.by, lambda desk: desk.reset(self.opened.by, reason))

    @operation(
        "nvtrader trade",
        "nvtrader trade --from 2017-03-01 --to 2017-06-30",
        "nvtrader trade --account paper --json",
        command="trade",
        writes=True,
        is_long=True,
    )
    def trade(
        self,
        *,
        first: Annotated[date | None, Field(description="First session to trade."), Flags(("--from",))] = None,
        last: Annotated[date | None, Field(description="Last session to trade."), Flags(("--to",))] = None,
        account: Account = "paper",
        wait: Annotated[
            bool,
            Field(description="With --from or --to: wait for a person at soft findings, as without these options."),
        ] = False,
    ) -> "AccountActivity":
        """Trade the active policy over all due sessions; --from and --to replay a history.

        A replay approves soft findings itself, unless --wait is given. Otherwise trading stops at a plan that waits for
        you; the next call resumes, and a plan that is not approved by then has expired. If the account's holdings
        differ from what was expected, the command exits with 1, and nothing trades until you correct the holdings or
        run `nvtrader portfolio accept-differences`. While trading is halted, only the market's last session is
        recorded; with earlier sessions to trade, the command stops at once and exits with 1.

        Orders pass compliance and are placed on the account. `nvtrader runs forward` places none: it walks any run's
        policies over the sessions since their tests, as a new run to compare. Decisions on a replay are practice:
        their outcomes are written at once, and count nowhere.

        Returns:
            The activity of the account; `stopped` says why it ended early.

        Raises:
            NotFoundError: if there is no such account.
            ValueError: if it is at a broker, or not open and without a first day.
            StorageError: if no policy is active.
        """
        from nvtrader_pipelines.desk.account_activity import trade_document
        from nvtrader_pipelines.desk.account_facts import require_history
        from nvtrader_pipelines.desk.desk import Desk
        from nvtrader_pipelines.execution.errors import TradingStopped
        from nvtrader_pipelines.feedback.outcomes import write_practice
        from nvtrader_pipelines.runs.lifecycle import now

        days, stopped = (first, last), {}
        require_history(self.store, account, days)
        desk, acknowledge = Desk(self.store, account, by=self.opened.by), days != (None, None) and not wait
        with self._progress() as on_progress:
            try:
                for step in desk.trade(*days, acknowledge=acknowledge, until_waiting=not acknowledge):
                    on_progress(step)
            except TradingStopped as error:
                stopped = {"stopped": str(error)}
        desk.mirror()
        write_practice(self.store, account, now())
        return trade_document(self.store, account, days).model_copy(update=stopped)
