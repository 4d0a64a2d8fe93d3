"""Whether the active policy may trade an account, and until when its tests are recent enough."""

from datetime import date, datetime, timedelta

from nvtrader_pipelines.execution.errors import NotReconciled
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.reconciliation import refusal, unaccepted
from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.storage.active_policy import ActivePolicy, sealed_of
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.desk_market import RECENT, desk_market, require_evaluation
from nvtrader_pipelines.storage.entrants import Panels
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.paper_book import SqliteBook
from nvtrader_pipelines.storage.policy_market import require_market
from nvtrader_pipelines.storage.warehouse import Warehouse


def trades_until(tested_to: date) -> date:
    """The last session of the exchange that a policy may trade which was tested to a day."""
    return sessions(tested_to + timedelta(days=1), tested_to + timedelta(days=2 * RECENT))[RECENT - 1].item()


def told_until(panels: Panels, active: ActivePolicy) -> str:
    """Until which session the active policy may trade, in words, or why it may not at all; no network is opened."""
    home = panels.lake.home
    try:
        run = sealed_of(home, active)
        require_evaluation(panels.lake, active)
        require_market(panels, Ledger.open(home).read(active.partition_key), run, active.policy)
    except StorageError as error:
        return f"not at all: {error}"
    tested_to = run.as_parent.window[1]
    return (
        f"until {trades_until(tested_to)}, {RECENT} sessions after its tests; an account kept here that it has begun "
        "to trade by then goes on"
    )


def require_ready(lake: Warehouse, active: ActivePolicy, account: str, at: datetime) -> None:
    """Refuse what trading an account would refuse before its first order; a broker is not asked anything.

    Raises:
        StorageError: if files of the policy, its tests, the account, the limits or the market are missing or damaged,
            or the policy cannot decide on the market as it is now.
        ExecutionError: if its tests are too old, at a broker the bars are, or its book is lost.
        NotReconciled: if the account differed at its last close, and no person has accepted it.
    """
    market, book = desk_market(lake, active, account, at), SqliteBook(lake.home, account)
    market.require_fresh(at)
    journal = Journal(JsonlAudit(lake.home), account)
    journal.require_kept(book.kept())
    state = book.last()
    stands_at = state.session if state else market.day(market.opening(None, None))
    market.require_recent(journal.proposals(), stands_at)
    if state is not None and (found := unaccepted(state, journal)):
        raise NotReconciled(refusal(account, state.session, found))
