from pathlib import Path

from nvtrader_pipelines.storage.home import Home


def test_the_environment_names_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("NVTRADER_HOME", str(tmp_path / "here"))
    assert Home.find() == Home(tmp_path / "here")


def test_without_it_the_checkout_that_holds_the_package_is_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("NVTRADER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Home.find().root == Path(__file__).resolve().parents[2]


def test_what_is_given_and_what_is_built_lie_apart(tmp_path):
    home = Home(tmp_path)
    given = (home.landing, home.experiments, home.market_file, home.policies, home.accounts, home.compliance)
    kept = (home.audit, home.active_policy, home.kill_switch)
    built = (home.iceberg, home.catalog, home.duckdb_file, home.deliveries, home.ledger, home.mlflow, home.dagster)
    assert all(path.is_relative_to(tmp_path / "data") for path in (*given, *kept))
    assert all(path.is_relative_to(home.warehouse) for path in built)
