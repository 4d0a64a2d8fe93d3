"""The loop's tables, as projections of the audit and of the accounts' own books."""

from collections.abc import Collection, Iterator, Sequence

import polars as pl

from nvtrader_pipelines.desk.rows import (
    audit_rows,
    fill_rows,
    order_rows,
    plan_rows,
    state_rows,
    utc_year,
    weight_frame,
)
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.errors import RESTORE_STEPS
from nvtrader_pipelines.execution.plan_records import plan_records
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.audit_log import AuditRow
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import lock_path
from nvtrader_pipelines.storage.iceberg.commits import Where
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import (
    AUDIT,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    REBALANCE_PLAN,
    TARGET_WEIGHTS,
    Table,
)

NEAR = 2  # years: a plan is filled in its own or the next, beside orders of the year before
Changed = tuple[Table, pl.DataFrame, Where]  # rows that take the place of those under the keys


def mirror(store: Store, account: str | None = None) -> dict[str, int]:
    """Bring the tables of `portfolio` up to date with the audit and the books, of one account or of all.

    Years in which something is new are replaced, each table in one commit. The audit's own rows come last: what is not
    among them is new, so that a mirror which was killed is finished by the next, and nothing is there twice.

    Returns:
        Rows of the years written, by table; none where nothing is new.

    Raises:
        StorageError: if the audit is damaged, or it or an account's book is not the one that was mirrored before.
    """
    with file_lock(lock_path(store.home, "portfolio")):
        written: dict[str, int] = {}
        for table, rows, where in _changes(store, account):
            if where["year"]:
                store.tables.replace(table, rows, where)
                written[table.name] = written.get(table.name, 0) + len(rows)
        return written


def _changes(store: Store, account: str | None) -> Iterator[Changed]:
    mirrored = _mirrored(store)
    new = [row for row in store.audit.rows() if row.line not in mirrored and _is_of(row, account)]
    for name in _accounts(store, new, account):
        fresh = [row for row in new if row.account == name]
        if fresh:
            yield from _of_audit(name, _events_near(store, name, fresh), [row.event for row in fresh])
        yield from _of_book(store, name)
    years = sorted({utc_year(row.event.at) for row in new})
    rows = to_frame(AUDIT, audit_rows(new))
    there = store.tables.read(AUDIT, {"year": years}, rows.columns) if years else rows.clear()
    yield AUDIT, pl.concat([there, rows]).sort("line"), {"year": years}


def _events_near(store: Store, name: str, fresh: Sequence[AuditRow]) -> list[AuditEvent]:
    """An account's events of the years that its fresh ones may change: to read all would take seconds."""
    years = {row.session_year for row in fresh if row.session_year is not None}
    near = {year + apart for year in years for apart in range(-NEAR, NEAR + 1)}
    return [row.event for row in store.audit.rows() if row.session_year in near and row.account == name]


def _mirrored(store: Store) -> set[int]:
    """Lines of the audit that are mirrored.

    Raises:
        StorageError: if the audit does not have one of them any more.
    """
    known, rows = store.tables.read(AUDIT, columns=["line", "chain"]), store.audit.rows()
    for line, chain in known.sort("line").iter_rows():
        if line > len(rows) or rows[line - 1].chain != chain:
            raise StorageError(
                f"line {line} of the audit {store.audit.path} is not the one that portfolio.audit has: the file was "
                f"cut off or changed by hand; put it back as it was, or to begin anew remove it and "
                f"{store.home.warehouse}"
            )
    return set(known["line"])


def _is_of(row: AuditRow, account: str | None) -> bool:
    return account is None or row.account in {None, account}


def _accounts(store: Store, new: Sequence[AuditRow], account: str | None) -> list[str]:
    if account is not None:
        return [account]
    books = {path.stem for path in book_path(store.home, "paper").parent.glob("*.db")}
    return sorted(books | {row.account for row in new if row.account is not None})


def _of_audit(name: str, events: Sequence[AuditEvent], fresh: Sequence[AuditEvent]) -> Iterator[Changed]:
    """Plans, weights, orders and fills of the years that an account's fresh events touch."""
    records = plan_records(events)
    touched = {event.plan_id for event in fresh}
    plans = {plan_id: record.plan for plan_id, record in records.items() if plan_id in touched}
    years = {plan.session.year for plan in plans.values()}
    of_years = [record for record in records.values() if record.plan.session.year in years]
    yield _changed(REBALANCE_PLAN, name, to_frame(REBALANCE_PLAN, plan_rows(of_years)), years)
    if any(event.kind == "constructed" for event in fresh):
        weights = weight_frame(TARGET_WEIGHTS, (record.plan for record in of_years))
        yield _changed(TARGET_WEIGHTS, name, weights, years)
    for table, rows in ((ORDERS, order_rows(events, records)), (FILLS, fill_rows(events, records))):
        years = {row["year"] for row in rows if row["plan_id"] in touched}
        yield _changed(table, name, to_frame(table, rows), years)


def _of_book(store: Store, name: str) -> Iterator[Changed]:
    """Yield the states of the years that have sessions which are not mirrored yet.

    Raises:
        StorageError: if the book does not have a state any more that was mirrored from it.
    """
    mirrored = store.tables.read(PORTFOLIO_STATE, {"account": [name]}, ["session", "value", "weights"])
    known = {session: (value, weights) for session, value, weights in mirrored.iter_rows()}
    states = SqliteBook(store.home, name).states()
    kept = {state.session: (state.value, list(state.weights)) for state in states}
    lost = sorted(session for session, of_close in known.items() if kept.get(session) != of_close)
    if lost:
        raise StorageError(
            f"the state of {lost[0]} in the book {book_path(store.home, name)} is not the one that "
            f"portfolio.portfolio_state has: the book was replaced; {RESTORE_STEPS}, or open another account"
        )
    years = {state.session.year for state in states if state.session not in known}
    yield _changed(PORTFOLIO_STATE, name, to_frame(PORTFOLIO_STATE, state_rows(name, states)), years)


def _changed(table: Table, name: str, rows: pl.DataFrame, years: Collection[int]) -> Changed:
    return table, rows.filter(pl.col("year").is_in(list(years))), {"account": [name], "year": sorted(years)}
