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
from nvtrader_pipelines.storage.store import Store
from tests.runs.untrained import AT, EXPERIMENT, market_home, planned, sealed

OTHER = EXPERIMENT.model_copy(update={"name": "other", "agent": EqualWeight(), "seeds": (0,)})
LATER = AT + dt.timedelta(days=1)


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A home with a market."""
    return market_home(tmp_path_factory.mktemp("market") / "home")


@pytest.fixture
def store(market: Store) -> Store:
    """The same home as another process opens it."""
    return Store(market.home)


@pytest.fixture(scope="module")
def run(market: Store) -> SealedRun:
    """A run of three seeds."""
    return sealed(market, planned(market))


@pytest.fixture(scope="module")
def other(market: Store) -> SealedRun:
    """A run of a rule."""
    return sealed(market, planned(market, OTHER))


@pytest.fixture(autouse=True)
def nothing_trades(store: Store) -> None:
    """Before every test: no pointer and no audit."""
    forget_activations(store)


@pytest.fixture
def trading(store: Store, other: SealedRun) -> ActivePolicy:
    """Another policy trades."""
    return put(store, (other.run_id, "other"))


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


def forget_activations(store: Store) -> None:
    """Remove the pointer and the audit, which the store then opens anew."""
    for folder in (store.home.runtime, store.home.audit):
        for path in folder.glob("*"):
            path.unlink()
    vars(store).pop("audit", None)


def put(
    store: Store, ref: tuple[str, str], at: dt.datetime = AT, by: str = "ann", reason: str = "it is time"
) -> ActivePolicy:
    """Activate a policy of a run."""
    return activate(store, PolicyRef(*ref), by, reason, lambda: at)


def promoted(store: Store) -> list[tuple]:
    """What the audit has of every activation."""
    events = store.audit.events()
    return [(event.run_id, event.policy, event.by, event.reason, event.at) for event in events]
