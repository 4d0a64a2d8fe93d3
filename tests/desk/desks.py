"""A home in which a policy that was tested is active, in no time: networks as they begin; and its accounts' desks."""

from datetime import UTC, date, datetime, time
from pathlib import Path

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.evaluation.steps import drain
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.promotion.active_policy import activate
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.medallion import read_panel
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import small_home
from tests.runs.untrained import AT, evaluate_sealed, planned, sealed

DESKS: dict[str, Desk] = {}  # by account
TIME: dict[str, datetime] = {}


def judged_home(root: Path) -> tuple[Store, SealedRun]:
    """A home whose one run is sealed and tested; nothing is active."""
    store = small_home(root)
    run = sealed(store, planned(store))
    evaluate_sealed(store, run)
    return store, run


def make_active(store: Store, run: SealedRun, policy: str | None = None, at: datetime = AT) -> None:
    """Let one of the run's policies trade."""
    activate(store, PolicyRef(run.run_id, policy or run.experiment), "ann", "", lambda: at)


def desk(store: Store, account: str = "paper", at: datetime = AT) -> Desk:
    """The account's desk, which reads the market anew where it has changed; all of them share what time it is."""
    TIME["now"] = at
    if account not in DESKS:
        DESKS[account] = Desk.open(store, account, clock=lambda: TIME["now"], by="test")
    return DESKS[account]


def trade(
    store: Store, *days: date | None, account: str = "paper", at: datetime = AT, acknowledge: bool = True
) -> list[Progress]:
    """Trade what is due; what was told."""
    told = []
    drain(desk(store, account, at).trade(*days, acknowledge=acknowledge), told.append)
    return told


def days_of(store: Store) -> list[date]:
    """The market's sessions."""
    return [day.item() for day in read_panel(store.tables, "landing").sessions]


def evening(store: Store) -> datetime:
    """After the close of the last session there are bars of."""
    return datetime.combine(days_of(store)[-1], time(22), tzinfo=UTC)


def states(store: Store, account: str = "paper") -> list[AccountState]:
    """The account's own book."""
    return SqliteBook(store.home, account).states()


def add_account(store: Store, name: str, kind: str = "simulated") -> None:
    """An account with the defaults of its kind."""
    store.home.accounts.mkdir(exist_ok=True)
    (store.home.accounts / f"{name}.yaml").write_text(f"kind: {kind}\n")
