"""Orders that wait at brokers, cancelled when trading is stopped: whatever is due, and whatever the market knows."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from nvtrader_pipelines.desk.accounts import DEFAULT, AccountInUse, connect, held_account, read_account, require_same
from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.storage.account_book import SqliteBook, book_path
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

PATIENCE_S = 20.0  # for who trades the account: it stops at the next order, as trading is stopped already
UNSURE = "the broker has not confirmed yet that it cancelled"
LOST = "the audit tells of orders that its book lacks"
_LOG = logging.getLogger(__name__)


class Stop(NamedTuple):
    """Why orders are cancelled, on whose word, and what time it is."""

    reason: str
    by: str
    clock: Callable[[], datetime]


def withdraw(store: Store, name: str, book: SqliteBook, stop: Stop) -> list[str]:
    """Cancel the open orders of an account at a broker, and keep that; the ids of those cancelled.

    Orders of an account that is kept here wait for no market: its next session cancels them.

    Raises:
        StorageError: if the account's file cannot be read, or is of another account than the book.
        ExecutionError: if the account cannot be reached, or the broker refuses.
        BrokerTimeout: if the broker does not answer; asking again goes on.
    """
    cancelled, failure = _cancelled(store, name, book, stop)
    _tell(store, name, cancelled, stop)
    if failure is not None:
        raise failure
    return [each.order.order_id for each in cancelled]


def withdraw_all(store: Store, stop: Stop) -> tuple[list[str], dict[str, str]]:
    """Cancel the open orders of every account that has some at a broker.

    Returns:
        The ids of the orders cancelled; by account, why some of its orders may still be open.
    """
    cancelled, open_still = list[str](), dict[str, str]()
    again = retry_if_exception_type(AccountInUse)
    in_turn = Retrying(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(0.2), retry=again, reraise=True)
    for name in _accounts(store):
        try:
            found, why = in_turn(_held, store, name, stop)
            cancelled += found
            if why:
                open_still[name] = why
        except (StorageError, ValueError, OSError) as error:  # of the book, the account's file, the keys, the broker
            open_still[name] = str(error)
    return cancelled, open_still


def _accounts(store: Store) -> list[str]:
    """Every account that has a book or, where that is gone, orders that wait for all that the audit tells."""
    books = {path.stem for path in book_path(store.home, DEFAULT).parent.glob("*.db")}
    with suppress(StorageError):  # of a damaged audit, which whoever stops trading says
        told = {row.account for row in store.audit.rows() if row.account is not None} - books
        books |= {name for name in told if Journal(store.audit, name).open_order_ids()}
    return sorted(books)


def _held(store: Store, name: str, stop: Stop) -> tuple[list[str], str]:
    """The orders of an account that are cancelled, and why others may wait at its broker still; empty where none do."""
    with held_account(store.home, name) as book:
        cancelled, failure = _cancelled(store, name, book, stop)
        left, lost = [each.order.order_id for each in book.open_orders()], _lost(store, name, book)
        kept_here = not left + lost or isinstance(read_account(store.home, name), SimulatedAccountSpec)
        reasons = {str(failure or UNSURE): left, LOST: lost}
        why = "" if kept_here else "; ".join(f"{said}: {', '.join(ids)}" for said, ids in reasons.items() if ids)
        try:
            _tell(store, name, cancelled, stop)
        except StorageError as error:
            _LOG.warning("what was cancelled of %s is told by its next session, as the book has it: %s", name, error)
        return [each.order.order_id for each in cancelled], why


def _lost(store: Store, name: str, book: SqliteBook) -> list[str]:
    """Orders that wait at an account's broker for all that the audit tells, and that its book does not have."""
    kept = book.index().orders
    with suppress(StorageError):  # an account whose file cannot be read may be at a broker
        if isinstance(read_account(store.home, name), SimulatedAccountSpec):
            return []
    with suppress(StorageError):  # of a damaged audit
        return sorted(Journal(store.audit, name).open_order_ids() - kept)
    return []


def _cancelled(
    store: Store, name: str, book: SqliteBook, stop: Stop
) -> tuple[list[BookedOrder], BrokerTimeout | ExecutionError | None]:
    """The orders that are cancelled now at the account's broker, and why another could not be."""
    before, failure = book.open_orders(), None
    if not before:
        return [], None
    spec = read_account(store.home, name)
    require_same(name, spec, book.last())
    if isinstance(spec, SimulatedAccountSpec):
        return [], None
    from nvtrader_pipelines.execution.brokers.live_venue import cancel_open_orders  # compiled loops, which take time

    broker = connect(name, spec)
    try:
        cancel_open_orders(broker, book, stop.reason)
    except (BrokerTimeout, ExecutionError) as error:
        failure = error
    waiting = {each.order.order_id for each in book.open_orders()}
    gone = [each for each in before if each.order.order_id not in waiting]
    filled = {fill.order_id for each in gone for fill in book.fills(each.order.plan_id)}
    return [each for each in gone if each.order.order_id not in filled], failure


def _tell(store: Store, name: str, cancelled: Sequence[BookedOrder], stop: Stop) -> None:
    journal = Journal(store.audit, name)
    journal.append(*(event for each in cancelled if (event := _event(journal, each, stop))))


def _event(journal: Journal, each: BookedOrder, stop: Stop) -> AuditEvent | None:
    """The event of an order that was cancelled; it carries the order where no other event does."""
    order, record = each.order, journal.record(each.order.plan_id)
    if record is None:
        return None
    detail = {} if order.order_id in record.placed else {"order": order.model_dump(mode="json")}
    about = EventDetails(order.order_id, order.symbol, reason=stop.reason, detail=detail)
    return plan_event("cancelled", record.plan, stop.clock(), stop.by, about)
