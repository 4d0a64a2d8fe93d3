"""Reads for assistants: a run in brief, accounts, orders, and rows of any table."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nvtrader_pipelines.service.operations.arguments import Account, OneAccount, RunName
from nvtrader_pipelines.service.operations.operation import Family, operation
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.views.row_conditions import RowCondition

if TYPE_CHECKING:
    import polars as pl

    from nvtrader_pipelines.desk.account_history import AccountOrder
    from nvtrader_pipelines.desk.account_snapshot import AccountSnapshot
    from nvtrader_pipelines.execution.audit import AuditEvent
    from nvtrader_pipelines.runs.run_summary import RunSummary
    from nvtrader_pipelines.service.documents.tool_facts import TableRows

Limit = Annotated[int, Field(ge=1, le=1000, description="Rows at most.")]


class Data(Family):
    """Reads that only tools offer: a run in brief, accounts, orders, and rows of any table."""

    @operation()
    def describe(self, run: RunName) -> "RunSummary":
        """Describe a run in brief: status, mean reward, timesteps, version, MLflow run and where its trajectories are.

        Raises:
            NotFoundError: if no run or several runs match.
        """
        from nvtrader_pipelines.runs.run_queries import find_run_by_name
        from nvtrader_pipelines.runs.run_summary import run_summary

        return run_summary(self.store, find_run_by_name(self.store.ledger, run))

    @operation()
    def accounts(self, *, account: OneAccount = None) -> "tuple[AccountSnapshot, ...]":
        """Show accounts: positions, cash, equity, last plan, waiting plans and the kill switch.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.desk.account_access import account_names
        from nvtrader_pipelines.desk.account_snapshot import account_snapshot

        names = account_names(self.store.home) if account is None else [account]
        return tuple(account_snapshot(self.store, name) for name in names)

    @operation()
    def orders(self, *, account: Account = "paper", limit: Limit = 100) -> "tuple[AccountOrder, ...]":
        """List the orders of an account with their fills, newest first.

        Raises:
            NotFoundError: if there is no such account.
        """
        from nvtrader_pipelines.desk.account_history import account_orders

        return account_orders(self.store, account)[:limit]

    @operation()
    def read_snapshot(
        self,
        table: Annotated[str, Field(max_length=200, description="Table, such as rl.trajectories.")],
        *,
        snapshot_id: Annotated[int | None, Field(description="Snapshot; default: the current one.")] = None,
        where: Annotated[
            tuple[RowCondition, ...], Field(max_length=20, description="Conditions, all of which a row meets.")
        ] = (),
        limit: Limit = 100,
    ) -> "TableRows":
        """Read rows of an Iceberg table, currently or at a snapshot.

        Raises:
            StorageError: if there is no such table, or the snapshot does not exist or has expired.
            ValueError: if a condition names no column, or a value of another type.
        """
        from nvtrader_pipelines.storage.views.snapshot_rows import find_table, read_snapshot_rows

        rows = read_snapshot_rows(self.store, find_table(table), where, limit + 1, snapshot_id)
        return _rows(rows, limit)

    @operation()
    def query(
        self,
        query: Annotated[str, Field(max_length=20_000, description="SQL of DuckDB that reads; COPY is refused.")],
        *,
        limit: Limit = 100,
    ) -> "TableRows":
        """Query every table and view with DuckDB SQL, which reads only and only files of the home.

        Raises:
            StorageError: if there are no tables yet, or the query is invalid or refused.
        """
        from nvtrader_pipelines.storage.views.queries import query_views

        return _rows(query_views(self.store, query, max_rows=limit + 1), limit)

    def record(self, event: "AuditEvent") -> None:
        """Record an event in the audit, and in its table and view."""
        from nvtrader_pipelines.desk.mirror import mirror_home_events

        self.store.audit.append([event])
        mirror_home_events(self.store)
        self.publish(notifies=False)


def _rows(frame: "pl.DataFrame", limit: int) -> "TableRows":
    """Document of the first rows of a frame; bytes are hexadecimal digits."""
    import polars as pl

    from nvtrader_pipelines.service.documents.tool_facts import TableRows

    try:
        rows = tuple(
            {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
            for row in frame.head(limit).iter_rows(named=True)
        )
    except pl.exceptions.PanicException as error:  # ends the process otherwise
        raise StorageError(
            f"the rows must have days of the years 1 to 9999, but have others ({error}); cast them to text"
        ) from error
    return TableRows(columns=tuple(frame.columns), rows=rows, has_more=len(frame) > limit)
