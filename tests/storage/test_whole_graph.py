"""Whole graph of a home on Postgres, an object store and Ray."""

import pytest
from polars.testing import assert_frame_equal

from tests.homes import nvtrader, small_home, table_contents
from tests.orchestration.test_materialize import policies

pytest.importorskip("ray")
pytestmark = pytest.mark.nightly


def test_whole_graph_past_one_machine_has_tables_and_policies_of_files(
    server, bucket, tmp_path, built_home, monkeypatch
):
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    expected = table_contents(built_home)
    server.psql("CREATE DATABASE whole")
    home = small_home(tmp_path / "home")
    settings = {"database_url": server.get_uri("whole"), "warehouse_uri": bucket, "executor": "ray"}
    home.settings_file.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
    finished = nvtrader(home, "materialize")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    contents = table_contents(home)
    for name, frame in expected.items():
        assert_frame_equal(contents[name], frame, check_exact=True)
    trained, others = (
        {name: content for name, (content, _) in policies(owner).items()} for owner in (home, built_home)
    )
    assert trained == others
    assert not list(home.root.rglob("*.db"))
    assert not list(home.iceberg.rglob("*.parquet"))
