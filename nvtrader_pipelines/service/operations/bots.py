"""Bots: their states, and their start, reduction and stop."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.arguments import AuditReason
from nvtrader_pipelines.service.operations.home import NO_REASON, WholeHome
from nvtrader_pipelines.service.operations.operation import Family, operation

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.bots import BotStatus
    from nvtrader_pipelines.service.documents.halt_facts import HaltDocument

BotName = Annotated[str, Field(max_length=31, description="Bot of data/bots.")]


class Bots(Family):
    """Bots: policies that trade accounts on schedules, each started and stopped by itself."""

    command, alone = "bots", "list"
    examples = ("nvtrader bots", "nvtrader bots start coins", "nvtrader bots stop coins")

    @operation("nvtrader bots list", "nvtrader bots list --json", route="GET /api/bots", is_kept=True)
    def list(self) -> "Annotated[pl.DataFrame, BotStatus]":
        """List all bots with their states and last closes.

        `nvtrader ui` trades each by a schedule of its own, `bot_NAME`; restart it after a file of data/bots changes.
        """
        import polars as pl

        from nvtrader_pipelines.components.document import frame_of, schema_of
        from nvtrader_pipelines.desk.bots import BotStatus, list_bots

        bots = list_bots(self.store)
        return frame_of(bots) if bots else pl.DataFrame(schema=schema_of(BotStatus))

    @operation("nvtrader bots status coins", route="GET /api/bots/{bot}", is_kept=True)
    def status(self, bot: BotName) -> "BotStatus":
        """Show a bot: its state with the reason, its policy, its account, and protections in force.

        Raises:
            NotFoundError: if there is no such bot.
        """
        from nvtrader_pipelines.desk.bots import bot_status

        return bot_status(self.store, bot)

    @operation(
        "nvtrader bots start coins",
        'nvtrader bots start coins --reason "retrained"',
        route="POST /api/bots/{bot}/start",
        writes=True,
    )
    def start(self, bot: BotName, *, reason: AuditReason = NO_REASON) -> "BotStatus":
        """Start a bot, or let it grow positions again: activate its policy for its account, release its kill switch.

        A bot that names an experiment trades its latest run of now until it is started again. Its protections count
        from the last close on.

        Raises:
            NotFoundError: if there is no such bot or policy.
            StorageError: if its policy cannot trade.
            ExecutionError: if its policy was tested too long ago, or for another calendar than that of its account.
        """
        from nvtrader_pipelines.desk.bots import start_bot

        return start_bot(self.store, bot, self.opened.by, reason, lambda: datetime.now(UTC))

    @operation("nvtrader bots reduce coins", route="POST /api/bots/{bot}/reduce", writes=True)
    def reduce(self, bot: BotName, *, reason: AuditReason = NO_REASON) -> "HaltDocument":
        """Let a bot's positions shrink, never grow, until it is started again.

        Raises:
            NotFoundError: if there is no such bot.
        """
        return self._restrict(bot, reason, reduce=True)

    @operation("nvtrader bots stop coins", route="POST /api/bots/{bot}/stop", writes=True)
    def stop(self, bot: BotName, *, reason: AuditReason = NO_REASON) -> "HaltDocument":
        """Stop a bot: place no order, and cancel its open ones at a broker. It keeps its positions.

        Raises:
            NotFoundError: if there is no such bot.
        """
        return self._restrict(bot, reason, reduce=False)

    def _restrict(self, bot: str, reason: str, *, reduce: bool) -> "HaltDocument":
        from nvtrader_pipelines.desk.traded_policy import account_of_bot

        account = account_of_bot(self.store, bot)
        return WholeHome(self.opened).halt(reason=reason, account=account, reduce=reduce)
