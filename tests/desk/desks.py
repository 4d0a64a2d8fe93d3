"""Homes with an active policy of untrained networks, and desks of their accounts."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path

import polars as pl

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.promotion.promote import activate
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import REGIMES
from tests.runs.small_runs import small_home
from tests.runs.untrained import AT, evaluate_sealed, planned, sealed

DESKS: dict[str, Desk] = {}  # by account
TIME: dict[str, datetime] = {}


def judged_home(root: Path) -> tuple[Store, SealedRun]:
    """Create a home with one sealed and evaluated run; no policy is active."""
    store = small_home(root)
    run = sealed(store, planned(store))
    evaluate_sealed(store, run)
    return store, run


def make_active(store: Store, run: SealedRun, policy: str | None = None, at: datetime = AT) -> None:
    """Activate one of the run's policies."""
    activate(store, PolicyRef(run.run_id, policy or run.experiment), "ann", "", at)


def desk(store: Store, account: str = "paper", at: datetime = AT) -> Desk:
    """Open the account's desk; all desks share one clock."""
    TIME["now"] = at
    if account not in DESKS:
        DESKS[account] = Desk(store, account, clock=lambda: TIME["now"], by="test")
    return DESKS[account]


def trade(
    store: Store, *days: date | None, account: str = "paper", at: datetime = AT, acknowledge: bool = True
) -> list[Progress]:
    """Trade the due sessions and return the progress."""
    steps = []
    drain(desk(store, account, at).trade(*days, acknowledge=acknowledge), steps.append)
    return steps


def days_of(store: Store) -> list[date]:
    """Sessions of the market."""
    return [day.item() for day in read_panel(store.tables, "landing").sessions]


def evening(store: Store) -> datetime:
    """Time after the close of the last session of the market."""
    return datetime.combine(days_of(store)[-1], time(22), tzinfo=UTC)


def states(store: Store, account: str = "paper") -> list[AccountState]:
    """States of the account's book."""
    return SqliteBook(store.home, account).states()


def settle_returns(store: Store, net_return: float, n_sessions: int, **changes: object) -> None:
    """Append closes to the book of the account `paper`, each with the same return."""
    book = SqliteBook(store.home, "paper")
    for day in NEW_YORK.sessions(states(store)[-1].session, date(2049, 12, 31))[1 : n_sessions + 1].tolist():
        state = states(store)[-1]
        close = {"session": day, "equity": state.equity * (1.0 + net_return), "net_return": net_return}
        book.settle(state.model_copy(update={**close, "in_replay": False, **changes}))


def write_index(store: Store, levels: Sequence[float]) -> None:
    """Write the equal-weight index, whose last sessions are the market's last."""
    rows = {"source": "landing", "session": days_of(store)[-len(levels) :], "index_level": levels}
    rows |= {"regime": "sideways", "segment": 0, "slope": 0.0, "market_return": 0.0}
    store.tables.replace(
        REGIMES, pl.DataFrame(rows, schema_overrides=REGIMES.schema).select(REGIMES.schema.names()), {}
    )


def add_account(store: Store, name: str, kind: str = "simulated") -> None:
    """Write an account with the defaults of its kind."""
    store.home.accounts.mkdir(exist_ok=True)
    (store.home.accounts / f"{name}.yaml").write_text(f"kind: {kind}\n")
