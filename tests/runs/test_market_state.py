import pytest

from nvtrader_pipelines.runs.market_state import deliver_prices, require_same_calendars
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.landing_zone import landed_files
from nvtrader_pipelines.storage.tables import DELIVERIES
from tests.markets import csv_file, market_tables, synthetic_bars
from tests.runs.untrained import market_home, planned, sealed


def test_delivery_to_a_market_without_a_landing_source_is_refused(home, tmp_path):
    home.market_file.write_text("sources:\n  - kind: sample\n")
    (tmp_path / "A.csv").write_bytes(b"1")
    with pytest.raises(StorageError):
        deliver_prices(home, [tmp_path / "A.csv"])
    assert landed_files(home) == []


@pytest.mark.slow
def test_source_with_runs_keeps_its_calendar(tmp_path):
    store = market_home(tmp_path / "home")
    run = sealed(store, planned(store))
    store.home.market_file.write_text("sources: [{kind: landing}]\n")
    store.tables.replace(DELIVERIES, market_tables(csv_file(synthetic_bars())).deliveries, {})
    require_same_calendars(store)
    store.home.market_file.write_text("sources: [{kind: landing, calendar: 24/7}]\n")
    with pytest.raises(StorageError):
        require_same_calendars(store)
    assert store.ledger.run(run.run_id).source == "landing"
