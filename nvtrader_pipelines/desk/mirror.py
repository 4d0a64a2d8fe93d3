"""Mirror of the audit and of the accounts' books in the `portfolio` tables."""

import logging
from collections.abc import Collection, Iterator, Sequence

import polars as pl

from nvtrader_pipelines.desk.portfolio_rows import (
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
from nvtrader_pipelines.storage.audit_log import AuditRow
from nvtrader_pipelines.storage.errors import StorageError
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

_LOG = logging.getLogger(__name__)
YEARS_AROUND = 2  # a plan is filled in its year or the next, beside orders of the year before
TableChange = tuple[Table, pl.DataFrame, Where]  # rows that replace those of the keys


def mirror(store: Store, account: str | None = None) -> dict[str, int]:
    """Update the `portfolio` tables from the audit and the books, of one account or of all.

    Years with new events are replaced, each table in one commit. The audit rows are written last and mark what is
    mirrored, so that the update is idempotent and a killed one is completed by the next.

    Returns:
        Rows written by table; empty if nothing is new.

    Raises:
        StorageError: if the audit is damaged, or the audit or a book differs from the one mirrored before.
    """
    with store.lock("portfolio"):
        written: dict[str, int] = {}
        for table, rows, where in _changes(store, account):
            if where["year"]:
                store.tables.replace(table, rows, where)
                written[table.name] = written.get(table.name, 0) + len(rows)
        return written


def mirror_home_events(store: Store) -> None:
    """Write events of no session, such as activations and halts, to `portfolio.audit`.

    The event counts without its mirror, so a failure is logged, and the next mirror completes it.
    """
    try:
        with store.lock("portfolio"):
            mirrored = _read_mirrored_lines(store)
            new = [row for row in store.audit.rows() if row.session_year is None and row.line not in mirrored]
            table, rows, where = _audit_table_change(store, new)
            if where["year"]:
                store.tables.replace(table, rows, where)
    except (StorageError, OSError) as error:
        _LOG.warning("portfolio.audit lacks the newest events until the next update: %s", error)


def _changes(store: Store, account: str | None) -> Iterator[TableChange]:
    mirrored = _read_mirrored_lines(store)
    new = [
        row
        for row in store.audit.rows()
        if row.line not in mirrored and (account is None or row.account in {None, account})
    ]
    for name in _accounts(store, new, account):
        fresh = [row for row in new if row.account == name]
        if resets := [row.line for row in fresh if row.kind == "reset"]:
            yield from _reset_changes(store, name)
            fresh = [row for row in fresh if row.line >= resets[-1]]
        if fresh:
            yield from _audit_changes(name, _events_near(store, name, fresh), [row.event for row in fresh])
        yield from _book_changes(store, name)
    yield _audit_table_change(store, new)


def _audit_table_change(store: Store, new: Sequence[AuditRow]) -> TableChange:
    """Rows of the audit of the years with new events."""
    years = sorted({utc_year(row.event.at) for row in new})
    rows = to_frame(AUDIT, audit_rows(new))
    existing = store.tables.read(AUDIT, {"year": years}, rows.columns) if years else rows.clear()
    return AUDIT, pl.concat([existing, rows]).sort("line"), {"year": years}


def _events_near(store: Store, name: str, fresh: Sequence[AuditRow]) -> list[AuditEvent]:
    """Events of an account in the years that new events may change: all events would take seconds."""
    years = {row.session_year for row in fresh if row.session_year is not None}
    near = {year + offset for year in years for offset in range(-YEARS_AROUND, YEARS_AROUND + 1)}
    return [row.event for row in store.audit.current_rows(name) if row.session_year in near]


def _reset_changes(store: Store, name: str) -> Iterator[TableChange]:
    """Remove all rows of an account but those of the audit."""
    for table in (REBALANCE_PLAN, TARGET_WEIGHTS, ORDERS, FILLS, PORTFOLIO_STATE):
        years = set(store.tables.read(table, {"account": [name]}, ["year"])["year"])
        yield _table_change(table, name, to_frame(table, []), years)


def _read_mirrored_lines(store: Store) -> set[int]:
    """Read the audit lines that are mirrored.

    Raises:
        StorageError: if the audit lacks one of them.
    """
    known, rows = store.tables.read(AUDIT, columns=["line", "chain"]), store.audit.rows()
    for line, chain in known.sort("line").iter_rows():
        if line > len(rows) or rows[line - 1].chain != chain:
            raise StorageError(
                f"line {line} of the audit {store.audit.path} must equal that of portfolio.audit, but differs: it "
                f"was truncated or edited; restore it, or remove it and {store.home.warehouse} to start over"
            )
    return set(known["line"])


def _accounts(store: Store, new: Sequence[AuditRow], account: str | None) -> list[str]:
    if account is not None:
        return [account]
    return sorted(store.books().keys() | {row.account for row in new if row.account is not None})


def _audit_changes(name: str, events: Sequence[AuditEvent], fresh: Sequence[AuditEvent]) -> Iterator[TableChange]:
    """Plans, weights, orders and fills of the years with new events of an account."""
    records = plan_records(events)
    touched = {event.plan_id for event in fresh}
    plans = {plan_id: record.plan for plan_id, record in records.items() if plan_id in touched}
    years = {plan.session.year for plan in plans.values()}
    records_of_years = [record for record in records.values() if record.plan.session.year in years]
    yield _table_change(REBALANCE_PLAN, name, to_frame(REBALANCE_PLAN, plan_rows(records_of_years)), years)
    if any(event.kind == "constructed" for event in fresh):
        weights = weight_frame(TARGET_WEIGHTS, (record.plan for record in records_of_years))
        yield _table_change(TARGET_WEIGHTS, name, weights, years)
    for table, rows in ((ORDERS, order_rows(events, records)), (FILLS, fill_rows(events, records))):
        years = {row["year"] for row in rows if row["plan_id"] in touched}
        yield _table_change(table, name, to_frame(table, rows), years)


def _book_changes(store: Store, name: str) -> Iterator[TableChange]:
    """States of the years with sessions that are not mirrored yet.

    Raises:
        StorageError: if the book lacks a mirrored state.
    """
    mirrored = store.tables.read(PORTFOLIO_STATE, {"account": [name]}, ["session", "value", "weights"])
    known = {session: (value, weights) for session, value, weights in mirrored.iter_rows()}
    book = store.book(name)
    states = book.states()
    booked = {state.session: (state.value, list(state.weights)) for state in states}
    lost = sorted(session for session, mirrored_state in known.items() if booked.get(session) != mirrored_state)
    if lost:
        raise StorageError(
            f"the state of {lost[0]} in the book {book.name} must equal that of "
            f"portfolio.portfolio_state, but differs: the book was replaced; {RESTORE_STEPS}, or open another account"
        )
    years = {state.session.year for state in states if state.session not in known}
    yield _table_change(PORTFOLIO_STATE, name, to_frame(PORTFOLIO_STATE, state_rows(name, states)), years)


def _table_change(table: Table, name: str, rows: pl.DataFrame, years: Collection[int]) -> TableChange:
    return table, rows.filter(pl.col("year").is_in(list(years))), {"account": [name], "year": sorted(years)}
