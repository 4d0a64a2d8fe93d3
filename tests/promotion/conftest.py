"""Fixtures of promotion: a home with a market, runs whose policies may trade, and an active policy."""

import datetime as dt

import polars as pl
import pytest

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.promotion import promote as promote_module
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS, RUNS
from tests.promotion.activations import OTHER, forget_activations, put
from tests.promotion.gate import MARKET, RULES, TESTED, spec, write_returns
from tests.runs.untrained import AT, market_home, planned, sealed


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Home with a market."""
    return market_home(tmp_path_factory.mktemp("market") / "home")


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


@pytest.fixture(scope="module")
def runs(market: Store) -> dict[str, SealedRun]:
    """Runs of three rules by name: one earns the market, one more on every session, one is untested."""
    found = {name: sealed(market, planned(market, spec(name))) for name in RULES}
    for day, (name, more) in enumerate(TESTED.items()):
        write_returns(market, found[name], MARKET + more)
        complete_run(market, found[name], AT + dt.timedelta(days=day))
    return found


@pytest.fixture
def fresh_gate(store: Store, runs: dict[str, SealedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset activations and decisions; two runs are complete, and activations are not mirrored."""
    monkeypatch.setattr(promote_module, "mirror_active", lambda _: None)
    forget_activations(store)
    for table, stay in ((PROMOTION_DECISIONS, []), (RUNS, [runs[name].run_id for name in TESTED])):
        rows = store.tables.read(table)
        kept = rows.filter(pl.col("run_id").is_in(stay))
        if len(kept) < len(rows):
            store.tables.replace(table, kept, {})
