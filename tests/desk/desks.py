"""A home in which a policy that was tested is active, in no time: networks as they begin; and its accounts' desks."""

from datetime import UTC, date, datetime, time
from pathlib import Path

from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.promotion.active_policy import activate
from nvtrader_pipelines.runs.launch import evaluate_run, followed
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.medallion import read_panel
from tests.runs.small_runs import small_home
from tests.runs.untrained import AT, planned, sealed

DESKS: dict[str, Desk] = {}  # by account
TIME: dict[str, datetime] = {}


def judged_home(root: Path) -> tuple[Warehouse, SealedRun]:
    """A home whose one run is sealed and tested; nothing is active."""
    lake = small_home(root)
    run = sealed(lake, planned(lake))
    for _ in evaluate_run(lake, Ledger.open(lake.home), run.run_id, Launch("tests")):
        pass
    return lake, run


def make_active(lake: Warehouse, run: SealedRun, policy: str | None = None, at: datetime = AT) -> None:
    """Let one of the run's policies trade."""
    activate(lake, Ledger.open(lake.home), PolicyRef(run.run_id, policy or run.experiment), "ann", "", lambda: at)


def desk(lake: Warehouse, account: str = "paper", at: datetime = AT) -> Desk:
    """The account's desk, which reads the market anew where it has changed; all of them share what time it is."""
    TIME["now"] = at
    if account not in DESKS:
        DESKS[account] = Desk.open(lake, account, clock=lambda: TIME["now"], by="test")
    return DESKS[account]


def trade(
    lake: Warehouse, *days: date | None, account: str = "paper", at: datetime = AT, acknowledge: bool = True
) -> list[Progress]:
    """Trade what is due; what was told."""
    told = []
    followed(desk(lake, account, at).trade(*days, acknowledge=acknowledge), told.append)
    return told


def days_of(lake: Warehouse) -> list[date]:
    """The market's sessions."""
    return [day.item() for day in read_panel(lake, "landing").sessions]


def evening(lake: Warehouse) -> datetime:
    """After the close of the last session there are bars of."""
    return datetime.combine(days_of(lake)[-1], time(22), tzinfo=UTC)


def states(lake: Warehouse, account: str = "paper") -> list[AccountState]:
    """The account's own book."""
    return SqliteBook(lake.home, account).states()


def add_account(lake: Warehouse, name: str, kind: str = "simulated") -> None:
    """An account with the defaults of its kind."""
    lake.home.accounts.mkdir(exist_ok=True)
    (lake.home.accounts / f"{name}.yaml").write_text(f"kind: {kind}\n")
