from datetime import UTC, datetime

import polars as pl

from nvtrader_pipelines.evaluation.ratio_curve import RATIO_CURVE, sharpe_ratio_curve


def runs(n_runs):
    return pl.DataFrame(
        {
            "run_id": [f"run-{i}" for i in range(n_runs)],
            "spec_hash": [f"hash-{i}" for i in range(n_runs)],
            "experiment": [f"ppo@{i}" for i in range(n_runs)],
            "finished_at": [datetime(2024, 1, 1 + i, tzinfo=UTC) for i in range(n_runs)],
        }
    )


def evaluations(sharpes, kinds=("policy", "ensemble", "baseline")):
    rows = [
        (f"run-{i}", kind, period, sharpe if kind == "ensemble" else 9.0, sharpe - 1.0, sharpe + 1.0, 0.2)
        for i, sharpe in enumerate(sharpes)
        for period in ("fold", "all", "from_2010")
        for kind in kinds
    ]
    columns = ["run_id", "kind", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def test_each_run_and_period_has_one_row_of_its_ensemble():
    curve = sharpe_ratio_curve(runs(4), evaluations([0.5, 0.9, 0.7, 0.9]))
    assert tuple(curve.columns) == RATIO_CURVE
    assert len(curve) == 8
    every = curve.filter(pl.col("period") == "all")
    assert every["sharpe"].to_list() == [0.5, 0.9, 0.7, 0.9]
    assert every["rank"].to_list() == [4, 1, 3, 1]
    assert every["best_so_far"].to_list() == [True, True, False, False]


def test_runs_stand_in_the_order_they_finished():
    curve = sharpe_ratio_curve(runs(3).reverse(), evaluations([0.5, 0.6, 0.7]))
    assert curve.filter(pl.col("period") == "all")["run_id"].to_list() == ["run-0", "run-1", "run-2"]


def test_a_run_without_an_ensemble_is_represented_by_its_policy():
    curve = sharpe_ratio_curve(runs(1), evaluations([0.5], kinds=("baseline", "policy")))
    assert curve["sharpe"].to_list() == [9.0, 9.0]


def test_a_run_that_is_not_complete_is_left_out():
    curve = sharpe_ratio_curve(runs(1), evaluations([0.5, 0.6]))
    assert set(curve["run_id"]) == {"run-0"}


def test_no_runs_make_an_empty_curve():
    assert sharpe_ratio_curve(runs(1).clear(), evaluations([0.5])).is_empty()
