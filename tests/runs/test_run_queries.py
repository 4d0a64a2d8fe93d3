"""Leverage and guards of a stored run."""

import pytest

from nvtrader_pipelines.runs.run_document import run_document
from nvtrader_pipelines.runs.run_pictures import exposure_pictures
from nvtrader_pipelines.runs.run_queries import read_guard_telemetry, read_leverage
from nvtrader_pipelines.service.cli.pages.run_pages import exposure_facts
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, TRAJECTORIES
from tests.homes import KEY, copy_home, expose_run, read_account, run_of


@pytest.fixture
def exposed(built_home, tmp_path):
    """Store of a home whose run is levered, with guards."""
    return expose_run(copy_home(built_home, tmp_path / "home"))


def test_run_of_long_only_account_without_guards_has_no_exposure(built_home):
    store = Store(built_home)
    document = run_document(store, run_of(store))
    assert (document.leverage, document.guards) == (None, None)
    assert exposure_facts(document) == {}
    assert exposure_pictures(store.ledger.read(KEY), *map(store.tables.read, (EQUITY_CURVES, TRAJECTORIES)), "") == {}


def test_run_without_recorded_gross_has_no_leverage(exposed):
    closes = read_account(exposed, EQUITY_CURVES).with_columns(gross=None, financing=None)
    exposed.tables.replace(EQUITY_CURVES, closes, {"run_id": [run_of(exposed).run_id], "kind": ["ensemble"]})
    assert read_leverage(exposed, run_of(exposed)) is None


def test_run_of_levered_account_with_guards_has_both(exposed):
    leverage, guards = read_leverage(exposed, run_of(exposed)), read_guard_telemetry(exposed, run_of(exposed))
    assert (leverage.mean_gross, leverage.max_gross) == (1.5, 1.5)
    assert leverage.financing_per_year == pytest.approx(0.0252)
    assert (guards.drawdown_rate, guards.min_scale, guards.max_gross) == (1.0, 0.5, 1.5)
    document = run_document(exposed, run_of(exposed))
    assert (document.leverage, document.guards) == (leverage, guards)
    assert list(exposure_facts(document)) == ["leverage", "guards"]


def test_guards_alone_give_a_run_a_picture_of_its_exposure(exposed):
    rows = (read_account(exposed, table) for table in (EQUITY_CURVES, TRAJECTORIES))
    assert list(exposure_pictures(exposed.ledger.read(KEY), *rows, "")) == ["exposure"]
