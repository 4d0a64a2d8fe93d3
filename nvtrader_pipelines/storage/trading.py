"""The desk: the active policy, its market and an account, put together; what a person or a schedule does with them."""

from collections.abc import Callable, Generator
from datetime import date, datetime
from typing import Self

import polars as pl

from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.storage.recording import now
from nvtrader_pipelines.storage.warehouse import Warehouse

Clock = Callable[[], datetime]


class Desk:
    """One account and who trades on it; one process at a time moves an account."""

    def __init__(self, lake: Warehouse, account: str, clock: Clock, by: str) -> None:
        self.lake, self.account, self._clock, self._by = lake, account, clock, by

    @classmethod
    def open(cls, lake: Warehouse, account: str = "paper", clock: Clock = now, by: str = "nvtrader") -> Self:
        """The desk of an account; nothing is read before it is needed."""
        return cls(lake, account, clock, by)

    def due(self) -> list[date]:
        """Sessions with bars that the account has not been through; of one not open yet, the one it opens at."""
        raise NotImplementedError

    def trade(
        self, first: date | None = None, last: date | None = None, *, acknowledge: bool = False
    ) -> Generator[Progress, None, None]:
        """Every due session to `last`, one step after the other, telling of each session.

        Args:
            first: first session traded of an account that is not open yet: it opens in cash at the close before it.
                None opens at the last session known.
            last: the last one, the last known if None.
            acknowledge: whether soft findings are acknowledged by the replay itself, an `approved` row each.

        Raises:
            ExecutionError: if something that must hold does not; nothing of the session's step was written.
            StorageError: if there is no active policy, no recent evaluation, or another process has the account.
        """
        raise NotImplementedError

    def execute(self) -> list[AuditEvent]:
        """The orders of the last due session: placed, filled, cancelled; sessions before it are traded whole first."""
        raise NotImplementedError

    def settle(self) -> pl.DataFrame:
        """Mark the account to the close of the session: its row of the book."""
        raise NotImplementedError

    def propose(self) -> RebalancePlan | None:
        """The plan decided at the close of the session; None where none is due."""
        raise NotImplementedError

    def clear(self) -> list[AuditEvent]:
        """What compliance says of the session's plan."""
        raise NotImplementedError

    def plans(self) -> pl.DataFrame:
        """Every plan of the account, the latest first, with its state and findings."""
        raise NotImplementedError

    def approve(self, plan_id: str, by: str, reason: str = "") -> AuditEvent:
        """Acknowledge the soft findings of a plan, which then goes on.

        Raises:
            ExecutionError: if the plan is unknown, blocked, expired, waits for nobody, or was decided on already.
        """
        raise NotImplementedError

    def override(self, plan_id: str, by: str, reason: str) -> AuditEvent:
        """Hold instead of a plan; the reason is kept as what was learned from it."""
        raise NotImplementedError

    def reject(self, plan_id: str, by: str, reason: str) -> AuditEvent:
        """Refuse a plan, with a reason."""
        raise NotImplementedError

    def mirror(self) -> None:
        """Write the account's rows of the `portfolio` tables from the audit and the book."""
        raise NotImplementedError
