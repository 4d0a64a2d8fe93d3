import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.locations import present_path

FOLDER = "/now/my home #1/warehouse/iceberg"


@pytest.mark.parametrize(
    "root", ["/old", "file:///old", "/old/with space, # and 100 %", "/a/warehouse/iceberg/b", FOLDER[:-18]]
)
def test_recorded_location_is_found_below_the_present_folder(root):
    location = f"{root}/warehouse/iceberg/gold/returns/data/year=2016/a%2Fb.parquet"
    assert present_path(location, FOLDER) == f"{FOLDER}/gold/returns/data/year=2016/a%2Fb.parquet"


@pytest.mark.parametrize("location", ["/elsewhere/a.parquet", "s3://bucket/iceberg/a.parquet", ""])
def test_location_outside_every_home_is_refused(location):
    with pytest.raises(StorageError):
        present_path(location, FOLDER)
