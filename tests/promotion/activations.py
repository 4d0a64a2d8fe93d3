"""A home with a market and two runs whose policies may trade: fixtures of the files that name them, and who activates.

Nothing of the home is changed for good.
"""

import datetime as dt
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from nvtrader_pipelines.experiments.sealed_run import PolicyRef, SealedRun
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, activate
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.ledger import Ledger
from tests.runs.untrained import AT, EXPERIMENT, market_home, planned, sealed

OTHER = EXPERIMENT.model_copy(update={"name": "other", "agent": EqualWeight(), "seeds": (0,)})
LATER = AT + dt.timedelta(days=1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A home with a market."""
    return market_home(tmp_path_factory.mktemp("market") / "home")


@pytest.fixture(scope="module")
def run(lake: Warehouse) -> SealedRun:
    """A run of three seeds."""
    return sealed(lake, planned(lake))


@pytest.fixture(scope="module")
def other(lake: Warehouse) -> SealedRun:
    """A run of a rule."""
    return sealed(lake, planned(lake, OTHER))


@pytest.fixture(autouse=True)
def nothing_trades(lake: Warehouse) -> None:
    """Before every test: no pointer and no audit."""
    forget_activations(lake)


@pytest.fixture
def trading(lake: Warehouse, other: SealedRun) -> ActivePolicy:
    """Another policy trades."""
    return put(lake, (other.run_id, "other"))


class Killed(BaseException):
    """What ends a process in the middle."""


def dying_at(step: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is to be wrapped around functions: of all their calls, counted together from 0, one is a kill instead."""
    calls = itertools.count()

    def dies(function: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(*arguments: Any, **options: Any) -> Any:
            if next(calls) == step:
                raise Killed
            return function(*arguments, **options)

        return maybe

    return dies


def forget_activations(lake: Warehouse) -> None:
    """Remove the pointer and the audit."""
    for folder in (lake.home.runtime, lake.home.audit):
        for path in folder.glob("*"):
            path.unlink()


def put(
    lake: Warehouse, ref: tuple[str, str], at: dt.datetime = AT, by: str = "ann", reason: str = "it is time"
) -> ActivePolicy:
    """Activate a policy of a run."""
    return activate(lake, Ledger.open(lake.home), PolicyRef(*ref), by, reason, lambda: at)


def promoted(lake: Warehouse) -> list[tuple]:
    """What the audit has of every activation."""
    events = JsonlAudit(lake.home).events()
    return [(event.run_id, event.policy, event.by, event.reason, event.at) for event in events]
