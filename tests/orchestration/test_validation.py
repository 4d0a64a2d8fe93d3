"""Validation of trials as assets, on a home with a few untrained runs."""

import datetime as dt
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.walk_forward_evaluation import evaluate
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, EVALUATIONS, OVERFITTING, RATIO_CURVE, RUNS, VALIDATION
from tests.evaluation.accounts import REPORT_FROM, action_logs, equity_curves
from tests.homes import run_job, step_errors
from tests.storage.ledger.run_rows import run_row
from tests.storage.table_rows import conform

pytestmark = pytest.mark.slow

KEYS = [dg.AssetKey(["evaluation", name]) for name in ("validation", "overfitting", "sharpe_ratio_curve")]
WARNING = "survivors only"


def add_run(home, number) -> str:
    """A completed run with the curves of its accounts and the verdict on them."""
    store, spec = Store(home), ExperimentSpec(name=f"trial-{number}")
    run_id = f"{number:016x}"
    store.ledger.begin(run_row(store.ledger, spec, run_id=run_id, kind="walk_forward", source="landing"))
    named = {"run_id": pl.lit(run_id), "spec_hash": pl.lit(spec.spec_hash), "experiment": pl.lit(spec.name)}
    curves = equity_curves(n_sessions=400, seed=number)
    verdict = evaluate(curves, action_logs(curves), REPORT_FROM, 252, SharpeIntervals(n_draws=20))
    row = pl.DataFrame({"kind": ["walk_forward"], "source": ["landing"], "warnings": [[WARNING]]})
    finished = row.with_columns(finished_at=pl.lit(dt.datetime.now(dt.UTC)))
    for table, rows in ((EQUITY_CURVES, curves), (EVALUATIONS, verdict), (RUNS, finished)):
        store.tables.replace(table, conform(table, rows.with_columns(**named)), {"run_id": [run_id]})
    store.ledger.finish(run_id, "done")
    return run_id


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A home with three trials, and the run that judged them."""
    home = Home(tmp_path_factory.mktemp("trials") / "home")
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    for number in range(3):
        add_run(home, number)
    with dg.DagsterInstance.ephemeral() as instance:
        finished = run_job(home, "judgement", instance, asset_selection=KEYS)
    assert finished.success, step_errors(finished)
    return home, {
        event.asset_key.path[-1]: event.materialization.metadata
        for event in finished.get_asset_materialization_events()
        if event.asset_key
    }


def test_every_trial_is_validated_in_every_period(judged):
    home, _ = judged
    rows = Store(home).tables.read(VALIDATION)
    groups = rows.group_by("source", "period").agg(pl.len(), pl.col("n_trials").unique().item()).sort("period")
    assert groups.rows() == [("landing", "all", 9, 3), ("landing", "before_2016", 9, 3), ("landing", "from_2016", 9, 3)]
    assert set(rows["experiment"]) == {"trial-0", "trial-1", "trial-2"}
    assert rows["deflated_sharpe"].null_count() == 0


def test_overfitting_table_has_the_combinations(judged):
    home, _ = judged
    rows = Store(home).tables.read(OVERFITTING)
    assert rows["logits"].list.len().to_list() == [12_870] * 9
    shares = rows.select(pl.col("logits").list.eval(pl.element() <= 0.0).list.mean()).to_series()
    assert shares.to_list() == pytest.approx(rows["probability_of_overfitting"].to_list())


def test_newest_run_has_equal_deflated_ratio_in_curve_and_validation(judged):
    home, _ = judged
    store = Store(home)
    newest = store.tables.read(RATIO_CURVE).filter(pl.col("n_trials") == 3).sort("period")
    trial = store.tables.read(VALIDATION).filter(pl.col("run_id") == newest["run_id"][0]).sort("period")
    for against, column in (("zero", "deflated_sharpe"), ("best_baseline", "deflated_information_ratio")):
        rows = trial.filter(pl.col("against") == against)
        assert newest[column].to_list() == pytest.approx(rows["deflated_sharpe"].to_list())


def test_validation_metadata_has_tables_and_pictures(judged):
    _, metadata = judged
    assert metadata["validation"]["trials"].value.count("\n") == 10  # a head, a rule and nine rows
    assert "probability_of_overfitting" in metadata["overfitting"]["overfitting"].value
    for asset in ("validation", "overfitting"):
        folder = Path(metadata[asset]["pictures"].value)
        names = {path.name for path in folder.glob("*.png")}
        assert names == {"information_ratio_landing.png", "overfitting_landing.png"}
        assert {path.with_suffix(".png").name for path in folder.glob("*.svg")} == names
        assert metadata[asset]["information_ratio_landing"].value.startswith("![plot](data:image/png;base64,")
