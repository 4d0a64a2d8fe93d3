from datetime import date

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import STATISTICS
from nvtrader_pipelines.evaluation.walk_forward import EVALUATION, evaluate
from tests.evaluation.accounts import REPORT_FROM, WHO, equity_curves

QUICK = SharpeIntervals(n_draws=200)


@pytest.fixture(scope="module")
def curves():
    return equity_curves()


@pytest.fixture(scope="module")
def verdict(curves):
    return evaluate(curves, REPORT_FROM, QUICK)


def test_every_account_is_judged_on_each_fold_before_and_from_the_date_and_overall(verdict):
    assert dict(verdict.schema) == EVALUATION
    periods = [(period, fold) for _, period, fold in verdict.select("policy", "period", "fold").rows() if _ == "ppo"]
    assert periods == [("fold", 0), ("fold", 1), ("fold", 2), ("before_2016", None), ("from_2016", None), ("all", None)]
    assert len(verdict) == len(WHO) * len(periods)


def test_numbers_are_the_statistics_of_the_period(curves, verdict):
    for row in verdict.iter_rows(named=True):
        rows = curves.filter(
            (pl.col("policy") == row["policy"])
            & pl.col("session").is_between(row["first_session"], row["last_session"])
        )
        assert row["n_sessions"] == len(rows)
        for name, statistic in STATISTICS.items():
            assert row[name] == statistic(rows["net_return"].to_numpy())
        assert row["turnover_per_year"] == pytest.approx(rows["turnover"].sum() * 252 / len(rows))
        assert row["cost_per_year"] == pytest.approx(rows["cost"].sum() * 252 / len(rows))
        assert row["sharpe_low"] < row["sharpe"] < row["sharpe_high"]


def test_policies_are_compared_with_the_best_baseline_of_the_same_period(verdict):
    for (_, _), rows in verdict.group_by("period", "fold"):
        baselines = rows.filter(pl.col("kind") == "baseline").sort("sharpe")
        for row in rows.filter(pl.col("kind") != "baseline").iter_rows(named=True):
            assert row["best_baseline"] == baselines["policy"][-1]
            assert row["sharpe_difference"] == row["sharpe"] - baselines["sharpe"][-1]
            assert row["difference_low"] < row["sharpe_difference"] < row["difference_high"]


def test_baselines_are_compared_with_nothing(verdict):
    columns = ["best_baseline", "sharpe_difference", "difference_low", "difference_high"]
    baselines = verdict.filter(pl.col("kind") == "baseline").select(columns)
    assert baselines.null_count().row(0) == (len(baselines),) * 4


def test_policies_alone_are_judged_without_a_comparison(curves):
    alone = evaluate(curves.filter(pl.col("kind") == "policy"), REPORT_FROM, QUICK)
    assert alone["best_baseline"].null_count() == len(alone)


def test_two_verdicts_of_a_seed_are_equal_and_rows_order_does_not_matter(curves, verdict):
    again = evaluate(curves.sort("session", maintain_order=True), REPORT_FROM, QUICK)
    assert again.equals(verdict)


def test_an_empty_period_has_no_rows(curves):
    assert "before_2010" not in set(evaluate(curves, date(2010, 1, 1), QUICK)["period"])
    assert "from_2030" not in set(evaluate(curves, date(2030, 1, 1), QUICK)["period"])


def test_an_account_in_cash_gets_finite_numbers(curves):
    still = curves.with_columns(net_return=pl.when(pl.col("policy") == "ppo").then(0.0).otherwise("net_return"))
    rows = evaluate(still, REPORT_FROM, QUICK).filter(pl.col("policy") == "ppo")
    assert np.all(rows.select("sharpe", "sharpe_low", "sharpe_high", "cagr", "max_drawdown").to_numpy() == 0.0)


def test_an_account_that_misses_a_session_is_refused_by_name(curves):
    missing = curves.filter((pl.col("policy") != "ppo") | (pl.col("session") != curves["session"][10]))
    with pytest.raises(ValueError, match=r"each of the 600 sessions.*ppo: 599"):
        evaluate(missing, REPORT_FROM, QUICK)


def test_an_account_with_a_session_twice_is_refused_by_name(curves):
    with pytest.raises(ValueError, match="ppo: 601"):
        evaluate(pl.concat([curves, curves.filter(pl.col("policy") == "ppo").head(1)]), REPORT_FROM, QUICK)
