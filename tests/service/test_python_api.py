import asyncio
import json
import subprocess
import sys
from datetime import date

import numpy as np
import polars as pl
import pytest

import nvtrader_pipelines
from nvtrader_pipelines import ExperimentSpec, Pipeline, StorageError
from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.runs.training_time import TrainingEstimate
from nvtrader_pipelines.service.library_noise import silence_libraries
from nvtrader_pipelines.service.operations.experiments import _refuse_long_trainings
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.views.view_definitions import VIEWS
from tests.homes import KEY, SWEPT, small_home
from tests.markets import synthetic_bars
from tests.runs.small_worlds import CLOSED, write_worlds

SCRIPT = (
    "import sys, nvtrader_pipelines; nvtrader_pipelines.{}; print(*{{name.partition('.')[0] for name in sys.modules}})"
)
SLOW = {
    "gymnasium",
    "wrapt",
    "polars",
    "numpy",
    "typer",
    "rich",
    "yaml",
    "dagster",
    "torch",
    "duckdb",
    "sqlalchemy",
    "pyiceberg",
}


@pytest.fixture
def built(built_home):
    """Pipeline of the built home."""
    return Pipeline(built_home.root)


@pytest.fixture
def swept(swept_home):
    """Pipeline of the home with two runs."""
    return Pipeline(swept_home.root)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["__doc__", "Pipeline"])
def test_import_of_pipeline_imports_no_library(name):
    loaded = subprocess.run([sys.executable, "-c", SCRIPT.format(name)], capture_output=True, text=True, check=True)
    assert SLOW & set(loaded.stdout.split()) == set()


@pytest.mark.slow
def test_gymnasium_finds_the_environment_whichever_is_imported_first():
    script = (
        "import os, sys, importlib\n"
        "for names in ['nvtrader_pipelines', 'gymnasium'], ['gymnasium', 'nvtrader_pipelines']:\n"
        "    if not os.fork():\n"
        "        import importlib.util\n"
        "        [(importlib.util.find_spec('gymnasium'), importlib.import_module(name)) for name in names]\n"
        "        os._exit('nvtrader/PortfolioCVaR-v0' not in sys.modules['gymnasium'].registry)\n"
        "    assert os.wait()[1] == 0, names\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_public_names_are_listed_and_exist():
    assert set(nvtrader_pipelines.__all__) <= set(dir(nvtrader_pipelines))
    assert all(getattr(nvtrader_pipelines, name).__name__ == name for name in nvtrader_pipelines.__all__)


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError):
        _ = nvtrader_pipelines.Pipelin


def test_folder_that_is_no_home_is_refused(tmp_path):
    with pytest.raises(ValueError):
        Pipeline(tmp_path)


def test_pipeline_without_folder_opens_the_home_of_the_environment(home, monkeypatch):
    monkeypatch.setenv("NVTRADER_HOME", str(home.root))
    assert Pipeline().home == home


def test_created_home_is_opened_again_only_with_exist_ok(tmp_path):
    created = Pipeline.create(tmp_path / "new")
    assert {path.stem for path in created.home.experiments.iterdir()} == {
        "cufolio",
        "pathwise",
        "ppo-cvar",
        "ppo-growth",
        "ppo-residual",
    }
    assert Pipeline.create(tmp_path / "new", exist_ok=True).home == created.home
    with pytest.raises(StorageError):
        Pipeline.create(tmp_path / "new")


def test_folder_with_other_files_is_not_made_a_home(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError):
        Pipeline.create(tmp_path, exist_ok=True)


def test_warning_of_dagster_in_a_running_event_loop_is_ignored():
    async def inside():
        loop = asyncio.new_event_loop()
        with silence_libraries(), pytest.raises(RuntimeError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    asyncio.run(inside())


@pytest.mark.nightly
def test_delivered_file_is_landed_and_ingested_once(home, tmp_path, capsys):
    home.market_file.write_text("sources: [{kind: landing}]\n")
    delivered = tmp_path / "prices.csv"
    synthetic_bars(n_sessions=60, n_symbols=1).write_csv(delivered)
    pipeline = Pipeline(home.root, quiet=True)
    summary = pipeline.ingest(delivered)
    assert [(row.source, row.n_kept, row.n_refused) for row in summary.symbols] == [("landing", 60, 0)]
    assert (home.landing / "prices.csv").read_bytes() == delivered.read_bytes()
    assert capsys.readouterr().out == ""
    landed = (home.landing / "prices.csv").stat().st_mtime_ns
    assert pipeline.ingest(delivered).symbols == summary.symbols
    assert (home.landing / "prices.csv").stat().st_mtime_ns == landed


def test_missing_file_is_not_ingested(home):
    with pytest.raises(StorageError):
        Pipeline(home.root).ingest("missing.csv")


def test_verdict_of_current_experiment_is_that_of_the_command(built, invoke):
    verdict = built.experiments.run("tiny")
    printed = json.loads(invoke("materialize", "tiny", "--json").stdout)
    assert verdict["run_id"].unique().to_list() == [Store(built.home).policies.read_latest(KEY).run_id]
    assert verdict["sharpe"].to_list() == [row["sharpe"] for row in printed]


def test_unknown_experiment_is_refused(built):
    with pytest.raises(ValueError):
        built.experiments.run("tinny")


def test_training_of_days_needs_confirmation():
    with pytest.raises(ValueError):
        _refuse_long_trainings([TrainingEstimate("long", 10**9, 1000.0, is_measured=False)])


@pytest.mark.parametrize("runs", [("tiny",), ("tiny", "tiny")])
def test_comparison_of_one_run_is_refused(built, runs):
    with pytest.raises(ValueError):
        built.runs.compare(*runs)


def test_replay_returns_figures_of_a_new_run(swept):
    name = SWEPT[0].partition("@")[0]
    walk = swept.runs.replay(name, first=date(2017, 3, 1), last=date(2017, 6, 30))
    (figures,) = [row for row in walk.figures if (row.kind, row.period) == ("ensemble", "all")]
    assert (walk.run.kind, figures.first_session) == ("replay", date(2017, 3, 1))
    assert walk.run.run_id in swept.runs.list()["run_id"]


def test_policy_decides_weights_on_the_simplex(built):
    policy = built.policies.open("tiny")
    decision = policy.decide(len(policy.panel.sessions) - 1, opening_account(3))
    assert decision.target.shape == (4,)
    assert decision.target.min() >= 0.0
    np.testing.assert_allclose(decision.target.sum(), 1.0)


def test_tables_queries_and_scoreboard_are_frames(built):
    assert built.sql("SELECT 1 AS one").equals(pl.DataFrame({"one": [1]}, schema={"one": pl.Int32}))
    tables = built.tables()
    assert len(built.table("gold.returns")) == tables.filter(name="gold.returns")["n_rows"].item()
    assert tables.filter(pl.col("n_rows").is_null())["name"].to_list() == VIEWS
    assert "tiny" in built.scoreboard.show()["entrant"].to_list()


@pytest.mark.parametrize("name", ["gold.return", "gold.returns; SELECT 1"])
def test_unknown_table_is_refused(name, built):
    with pytest.raises(StorageError):
        built.table(name)


def test_report_is_written_to_the_named_file(built, tmp_path):
    assert built.report(output=tmp_path / "report.html").path == tmp_path / "report.html"
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_spec_with_a_name_that_a_person_uses_is_refused(tmp_path):
    home = small_home(tmp_path / "home")
    before = (home.experiments / "tiny.yaml").read_bytes()
    with pytest.raises(StorageError):
        Pipeline(home.root).experiments.run(ExperimentSpec(name="tiny"))
    assert (home.experiments / "tiny.yaml").read_bytes() == before


def test_pipeline_shows_its_home(home):
    assert repr(Pipeline(home.root)) == f"Pipeline({str(Home.at(home.root).root)!r})"


@pytest.mark.slow
def test_run_in_a_world_is_in_the_views_at_once(home):
    pipeline, query = Pipeline(home.root, quiet=True), "SELECT count(*) FROM evaluation.world_results"
    for n_rows, name in ((2, "first"), (4, "second")):
        write_worlds(home, **{name: {**CLOSED, "name": name}})
        assert pipeline.worlds.run(name).run.status == "done"
        assert pipeline.sql(query).item() == n_rows
