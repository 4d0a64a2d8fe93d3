"""Readiness of an account: checks before its first order, without a broker."""

from datetime import datetime

from nvtrader_pipelines.desk.desk_market import open_desk_market
from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.reconciliation import open_differences
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.store import Store


def require_ready(store: Store, active: ActivePolicy, account: str, at: datetime) -> None:
    """Raise the errors that trading an account would raise before its first order; no broker is contacted.

    Raises:
        StorageError: if files of the policy, its tests, the account, the limits or the market are missing or damaged,
            or the policy cannot decide on the current market.
        ExecutionError: if its tests, or at a broker its bars, are too old, or its book is incomplete.
        NotReconciled: if the account has differences that no person accepted.
    """
    market, book = open_desk_market(store, active, account, at), SqliteBook(store.home, account)
    market.require_fresh(at)
    journal = Journal(store.audit, account)
    journal.require_book_covers_audit(book.index())
    state = book.last()
    as_of = state.session if state else market.day(market.opening(None, None))
    market.require_recent(journal.proposals(), as_of)
    if state is not None and (found := open_differences(state, journal)):
        raise NotReconciled(account, state.session, found)
