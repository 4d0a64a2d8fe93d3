"""Pictures of runs on request: comparison, tear sheet and windows."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.runs.run_pictures import (
    account_labels,
    draw_comparison,
    draw_tear_sheet,
    read_session_windows,
    tear_sheet_path,
)
from nvtrader_pipelines.service.cli.exit_codes import BAD_INPUT
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS
from tests.homes import KEY, SPEC


@pytest.fixture(scope="module")
def store(built_home):
    """The store of the built home."""
    return Store(built_home)


@pytest.fixture(scope="module")
def run(store):
    """The ledger's row of the built home's run."""
    return store.ledger.run(store.policies.read_latest(KEY).run_id)


def test_comparison_holds_figures_of_the_verdict(store, run, tmp_path):
    found = draw_comparison(store, [run], tmp_path / "one.svg")
    (verdict,) = store.tables.read(EVALUATIONS).filter(kind="ensemble", period="all").to_dicts()
    (figures,) = found.frame().to_dicts()
    for name in ("first_session", "last_session", "n_sessions"):
        assert figures[name] == verdict[name]
    for name in ("sharpe", "cagr", "max_drawdown", "volatility"):
        assert figures[name] == pytest.approx(verdict[name])
    assert found.picture is not None
    assert found.picture.read_text().startswith("<?xml")


def test_labels_of_runs_of_one_experiment_have_run_ids(run):
    other = run.model_copy(update={"run_id": "b" * 16})
    assert account_labels([run]) == ["tiny"]
    assert account_labels([run, other]) == [f"tiny {run.run_id[:8]}", "tiny bbbbbbbb"]


def test_tear_sheet_of_unknown_policy_is_refused(store, run, tmp_path):
    with pytest.raises(StorageError):
        draw_tear_sheet(store, PolicyRef(run.run_id, "tiny/seed-9"), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_tear_sheet_path_lies_in_folder_of_the_version(store, run):
    folder = store.home.pictures / "tear_sheet" / KEY
    assert tear_sheet_path(store, PolicyRef(run.run_id, "tiny")) == folder / "tiny.png"
    assert tear_sheet_path(store, PolicyRef(run.run_id, "tiny/seed-1")) == folder / "seed-1.png"


def test_tear_sheet_command_writes_picture_and_figures(invoke, tmp_path):
    found = invoke("policies", "tear-sheet", "tiny", "-o", str(tmp_path / "tiny.png"), "--json")
    document = json.loads(found.stdout)
    (verdict,) = json.loads(invoke("sql", "SELECT max_drawdown FROM evaluation.walk_forward_evaluation WHERE "
                                   "kind = 'ensemble' AND period = 'all'", "--json").stdout)  # fmt: skip
    assert document["drawdowns"][0]["depth"] == pytest.approx(verdict["max_drawdown"])
    assert {row["year"] for row in document["monthly"]} == {row["year"] for row in document["yearly"]}
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")


def test_tear_sheet_command_refuses_a_folder(invoke, tmp_path):
    folder = tmp_path / "folder.png"
    folder.mkdir()
    assert invoke("policies", "tear-sheet", "tiny", "-o", str(folder)).exit_code == BAD_INPUT


def test_windows_of_a_run_compound_its_returns_and_span_no_opening(store, run):
    windows = read_session_windows(store, run, 20)
    (verdict,) = store.tables.read(EVALUATIONS).filter(kind="ensemble", period="all").to_dicts()
    accounts = ["tiny", verdict["best_baseline"], "equal_weight"]
    assert windows["policy"].unique(maintain_order=True).to_list() == list(dict.fromkeys(accounts))
    opens = pl.lit(SPEC.report_from)  # accounts open anew there
    assert windows.filter(pl.col("first_session") < opens, pl.col("last_session") >= opens).is_empty()
    curve = store.tables.read(EQUITY_CURVES).filter(policy="tiny").sort("session")
    stretches = curve.with_columns(reported=pl.col("session") >= opens).group_by("fold", "reported").len()["len"]
    mine = windows.filter(policy="tiny").sort("first_session")
    assert len(mine) == sum(max(0, count - 19) for count in stretches)
    growth = [
        (1.0 + curve.filter(pl.col("session").is_between(first, last))["net_return"]).product() - 1.0
        for first, last in mine.select("first_session", "last_session").iter_rows()
    ]
    np.testing.assert_allclose(mine["net_return"], growth, atol=1e-12)


def test_windows_command_writes_picture_and_distribution(invoke, store, run, tmp_path):
    found = invoke("runs", "windows", "tiny", "--sessions", "20", "-o", str(tmp_path / "tiny.png"), "--json")
    document = json.loads(found.stdout)
    returns = read_session_windows(store, run, 20).filter(policy="tiny")["net_return"]
    assert (document["run_id"], document["n_sessions"]) == (run.run_id, 20)
    assert document["accounts"][0]["n_windows"] == len(returns)
    assert document["accounts"][0]["minimum"] == pytest.approx(returns.min())
    assert document["accounts"][0]["upper_quartile"] == pytest.approx(np.quantile(returns, 0.75))
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")


def test_windows_longer_than_the_tests_are_refused(invoke, tmp_path):
    found = invoke("runs", "windows", "tiny", "--sessions", "1000", "-o", str(tmp_path / "none.png"))
    assert found.exit_code == BAD_INPUT
    assert not (tmp_path / "none.png").exists()
