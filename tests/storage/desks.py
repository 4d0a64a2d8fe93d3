"""A home in which a policy that was tested is active, in no time: networks as they begin."""

from datetime import datetime
from pathlib import Path

from nvtrader_pipelines.storage.active_policy import PolicyRef, activate
from nvtrader_pipelines.storage.execution import evaluate_run
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.policy_library import SealedRun
from nvtrader_pipelines.storage.recording import Launch
from nvtrader_pipelines.storage.warehouse import Warehouse
from tests.storage.small_runs import small_home
from tests.storage.untrained import AT, planned, sealed


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
