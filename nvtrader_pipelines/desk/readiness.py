"""Whether the active policy may trade an account, and until when its tests are recent enough."""

from datetime import datetime

from nvtrader_pipelines.desk.market import desk_market
from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.reconciliation import open_differences
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.store import Store


def require_ready(store: Store, active: ActivePolicy, account: str, at: datetime) -> None:
    """Refuse what trading an account would refuse before its first order; a broker is not asked anything.

    Raises:
        StorageError: if files of the policy, its tests, the account, the limits or the market are missing or damaged,
            or the policy cannot decide on the market as it is now.
        ExecutionError: if its tests are too old, at a broker the bars are, or its book is lost.
        NotReconciled: if the account differed at its last close, and no person has accepted it.
    """
    market, book = desk_market(store, active, account, at), SqliteBook(store.home, account)
    market.require_fresh(at)
    journal = Journal(store.audit, account)
    journal.require_book_covers_audit(book.index())
    state = book.last()
    stands_at = state.session if state else market.day(market.opening(None, None))
    market.require_recent(journal.proposals(), stands_at)
    if state is not None and (found := open_differences(state, journal)):
        raise NotReconciled(account, state.session, found)
