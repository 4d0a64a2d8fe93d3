from pathlib import Path

import pytest

from nvtrader_pipelines.storage.home import Home


def test_home_is_found_by_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "here"))
    assert Home.find() == Home(tmp_path / "here")


def test_home_is_the_checkout_without_environment_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("NVTRADER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Home.find().root == Path(__file__).resolve().parents[2]


def test_inputs_and_built_files_have_separate_folders(tmp_path):
    home = Home(tmp_path)
    inputs = (home.landing, home.experiments, home.market_file, home.policies, home.accounts, home.compliance)
    records = (home.audit, home.kill_switch)
    built = (home.iceberg, home.catalog, home.duckdb_file, home.deliveries, home.ledger, home.mlflow, home.dagster)
    assert all(path.is_relative_to(tmp_path / "data") for path in (*inputs, *records))
    assert all(path.is_relative_to(home.warehouse) for path in built)


@pytest.mark.parametrize("name", ["why?", "a%20b"])
def test_home_at_a_path_that_reads_as_a_url_is_used_through_a_link(monkeypatch, tmp_path, name):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = Home.at(tmp_path / name)
    assert home == Home.at(tmp_path / name)
    assert home.root.parent == tmp_path / "cache" / "nvtrader" / "homes"
    assert home.root.resolve() == tmp_path / name
    assert home.duckdb_file.parent == home.root.parent  # DuckDB would resolve a link
    assert home.without_link.root == tmp_path / name
    assert Home.at(tmp_path / "100% #1 [x] ü").root == tmp_path / "100% #1 [x] ü"


def test_new_link_removes_links_to_moved_homes_with_their_views(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("old?", "other?"):
        (tmp_path / name).mkdir()
    old, other = Home.at(tmp_path / "old?"), Home.at(tmp_path / "other?")
    for home in (old, other):
        home.duckdb_file.touch()
    (tmp_path / "old?").rename(tmp_path / "new?")
    new = Home.at(tmp_path / "new?")
    assert set(new.root.parent.iterdir()) == {new.root, other.root, other.duckdb_file}
