import pytest

from nvtrader_pipelines.runs.market_state import deliver_prices
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.landing_zone import landed_files


def test_delivery_to_a_market_without_a_landing_source_is_refused(home, tmp_path):
    home.market_file.write_text("sources:\n  - kind: sample\n")
    (tmp_path / "A.csv").write_bytes(b"1")
    with pytest.raises(StorageError, match=r"must list the source 'landing' of `kind: landing`.* none of that kind"):
        deliver_prices(home, [tmp_path / "A.csv"])
    assert landed_files(home) == []
