"""Cancellation of open orders at brokers when trading is stopped, independent of market data."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from nvtrader_pipelines.desk.account_access import (
    AccountChanged,
    AccountInUse,
    connect_account,
    lock_account,
    read_account,
    require_same_account,
)
from nvtrader_pipelines.execution.audit import AuditEvent, EventDetails, plan_event
from nvtrader_pipelines.execution.book import BookedOrder
from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.storage.account_book import AccountBook
from nvtrader_pipelines.storage.errors import StorageError, UnavailableError
from nvtrader_pipelines.storage.store import Store

LOCK_TIMEOUT_S = 20.0  # a trading process stops at its next order, as trading is stopped already
UNCONFIRMED = "the broker has not confirmed the cancellation yet"
MISSING_ORDERS = "the audit has orders that the book lacks"
_LOG = logging.getLogger(__name__)


class CancelRequest(NamedTuple):
    """Reason, author and clock of a cancellation."""

    reason: str
    by: str
    clock: Callable[[], datetime]


def cancel_account_orders(store: Store, name: str, book: AccountBook, request: CancelRequest) -> None:
    """Cancel the open orders of an account at a broker and record it.

    Open orders of a simulated account are cancelled by its next session.

    Raises:
        StorageError: if the account's file cannot be read, or does not match the book.
        ExecutionError: if the account cannot be reached, or the broker refuses.
        BrokerTimeout: if the broker does not answer; a retry continues.
    """
    cancelled, failure = _cancel_at_broker(store, name, book, request)
    _record_cancellations(store, name, cancelled, request)
    if failure is not None:
        raise failure


def cancel_all_orders(
    store: Store, request: CancelRequest, account: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """Cancel the open orders of every account at a broker, or of one.

    Returns:
        The ids of the cancelled orders, and by account why some orders may still be open.
    """
    cancelled, open_still = list[str](), dict[str, str]()
    in_use = retry_if_exception_type(AccountInUse)
    retrying = Retrying(stop=stop_after_delay(LOCK_TIMEOUT_S), wait=wait_fixed(0.2), retry=in_use, reraise=True)
    for name in _accounts(store) if account is None else [account]:
        try:
            outcome, reason = retrying(_cancel_at_account, store, name, request)
            cancelled += outcome
            if reason:
                open_still[name] = reason
        except (StorageError, ValueError, OSError) as error:  # book, account file, keys or broker
            if isinstance(error, AccountChanged) or not _is_simulated(store, name):
                open_still[name] = str(error)
    return cancelled, open_still


def _accounts(store: Store) -> list[str]:
    """Accounts with a book, and accounts without one whose orders are open by the audit."""
    books = set[str]()
    with suppress(UnavailableError):  # the accounts of the audit then name the reason
        books.update(store.books())
    with suppress(StorageError):  # a damaged audit is reported by the halt itself
        audited = {row.account for row in store.audit.rows() if row.account is not None} - books
        books |= {name for name in audited if Journal(store.audit, name).open_order_ids()}
    return sorted(books)


def _cancel_at_account(store: Store, name: str, request: CancelRequest) -> tuple[list[str], str]:
    """Cancel an account's orders; return their ids and why others may still be open, or an empty reason."""
    with lock_account(store, name) as book:
        cancelled, failure = _cancel_at_broker(store, name, book, request)
        left, missing = (
            [open_order.order.order_id for open_order in book.open_orders()],
            _missing_orders(store, name, book),
        )
        is_settled = not left + missing or _is_simulated(store, name)
        reasons = {str(failure or UNCONFIRMED): left, MISSING_ORDERS: missing}
        why = "" if is_settled else "; ".join(f"{reason}: {', '.join(ids)}" for reason, ids in reasons.items() if ids)
        try:
            _record_cancellations(store, name, cancelled, request)
        except StorageError as error:
            _LOG.warning("cancellations of %s are in its book and will be audited by its next session: %s", name, error)
        return [entry.order.order_id for entry in cancelled], why


def _is_simulated(store: Store, name: str) -> bool:
    """Whether the file of an account says that it is at no broker; one that cannot be read may be at one."""
    with suppress(StorageError):
        return not read_account(store.home, name).is_live
    return False


def _missing_orders(store: Store, name: str, book: AccountBook) -> list[str]:
    """Ids of orders at a broker that are open by the audit and missing in the book."""
    booked = book.index().orders
    if _is_simulated(store, name):
        return []
    with suppress(StorageError):  # damaged audit
        return sorted(Journal(store.audit, name).open_order_ids() - booked)
    return []


def _cancel_at_broker(
    store: Store, name: str, book: AccountBook, request: CancelRequest
) -> tuple[list[BookedOrder], BrokerTimeout | ExecutionError | None]:
    """Cancel orders at the account's broker; return them and the error that left others open."""
    before, failure = book.open_orders(), None
    if not before:
        return [], None
    spec = read_account(store.home, name)
    require_same_account(name, spec, book.last())
    if spec.kind == "simulated":
        return [], None
    from nvtrader_pipelines.execution.brokers.live_venue import cancel_open_orders  # slow import: compiled loops

    broker = connect_account(name, spec)
    try:
        cancel_open_orders(broker, book, request.reason)
    except (BrokerTimeout, ExecutionError) as error:
        failure = error
    waiting = {open_order.order.order_id for open_order in book.open_orders()}
    closed = [entry for entry in before if entry.order.order_id not in waiting]
    filled = {fill.order_id for entry in closed for fill in book.fills(entry.order.plan_id)}
    return [entry for entry in closed if entry.order.order_id not in filled], failure


def _record_cancellations(store: Store, name: str, cancelled: Sequence[BookedOrder], request: CancelRequest) -> None:
    journal = Journal(store.audit, name)
    journal.append(*(event for entry in cancelled if (event := _event(journal, entry, request))))


def _event(journal: Journal, each: BookedOrder, request: CancelRequest) -> AuditEvent | None:
    """Event of a cancelled order, with the order itself if no earlier event has it."""
    order, record = each.order, journal.record(each.order.plan_id)
    if record is None:
        return None
    detail = {} if order.order_id in record.placed else {"order": order.model_dump(mode="json")}
    about = EventDetails(order.order_id, order.symbol, reason=request.reason, detail=detail)
    return plan_event("cancelled", record.plan, request.clock(), request.by, about)
