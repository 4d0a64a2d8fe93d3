"""Fixtures of promotion: a home with a market, runs whose policies may trade, and an active policy."""

import datetime as dt
from pathlib import Path

import pytest

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.promotion import promote as promote_module
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.promotion.activations import OTHER, forget_activations, put
from tests.promotion.gate import MARKET, RULES, TESTED, spec, write_returns
from tests.runs.untrained import AT, market_home, planned, sealed


@pytest.fixture(scope="session")
def pinned_market(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Home with a market; read it, never write it."""
    return market_home(tmp_path_factory.mktemp("pinned") / "home").home


@pytest.fixture(scope="module")
def market(pinned_market: Home, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Home with a market."""
    return Store(copy_home(pinned_market, tmp_path_factory.mktemp("market") / "home"))


@pytest.fixture
def store(market: Store) -> Store:
    """Same home, opened anew."""
    return Store(market.home)


@pytest.fixture(scope="module")
def run(market: Store) -> SealedRun:
    """Sealed run of three seeds."""
    return sealed(market, planned(market))


@pytest.fixture(scope="module")
def other(market: Store) -> SealedRun:
    """Sealed run of a rule."""
    return sealed(market, planned(market, OTHER))


@pytest.fixture
def no_active_policy(store: Store) -> None:
    """Remove the audit before every test."""
    forget_activations(store)


@pytest.fixture
def trading(store: Store, other: SealedRun, no_active_policy: None) -> ActivePolicy:
    """Activation of another policy."""
    return put(store, (other.run_id, "other"))


@pytest.fixture(scope="session")
def judged_rules(pinned_market: Home, tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, SealedRun]]:
    """Home with runs of three rules: one earns the market, one more on every session, one is untested; only read it."""
    store = Store(copy_home(pinned_market, tmp_path_factory.mktemp("rules") / "home"))
    found = {name: sealed(store, planned(store, spec(name))) for name in RULES}
    for day, (name, more) in enumerate(TESTED.items()):
        write_returns(store, found[name], MARKET + more)
        complete_run(store, found[name], AT + dt.timedelta(days=day))
    return store, found


@pytest.fixture
def runs(judged_rules: tuple[Store, dict[str, SealedRun]]) -> dict[str, SealedRun]:
    """Runs of the three rules by name."""
    return judged_rules[1]


@pytest.fixture
def gate_store(
    judged_rules: tuple[Store, dict[str, SealedRun]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Copy of the home of the three runs, in which activations are not mirrored."""
    monkeypatch.setattr(promote_module, "mirror_active", lambda _: None)
    return Store(copy_home(judged_rules[0].home, tmp_path / "rules"))
