from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.aggregates import interquartile_mean
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals, lo_interval
from nvtrader_pipelines.evaluation.sharpe.error import iid_standard_error
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio, statistics_of
from nvtrader_pipelines.evaluation.verdict_tables import EVALUATION
from nvtrader_pipelines.evaluation.walk_forward_evaluation import evaluate
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.policies.baselines import EqualWeight
from tests.evaluation.accounts import REPORT_FROM, WHO, action_logs, equity_curves
from tests.markets import synthetic_panel

QUICK = SharpeIntervals(n_draws=200)
EVERY_DAY = TradingCalendar("24/7")


@pytest.fixture(scope="module")
def curves():
    return equity_curves()


@pytest.fixture(scope="module")
def verdict(curves):
    return judged(curves)


def judged(curves, report_from=REPORT_FROM):
    return evaluate(curves, action_logs(curves), report_from, 252, QUICK)


def test_evaluate_has_fold_before_from_and_all_rows_per_account(verdict):
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
        for name, value in statistics_of(rows["net_return"].to_numpy(), 252).items():
            assert row[name] == value
        assert row["turnover_per_year"] == pytest.approx(rows["turnover"].sum() * 252 / len(rows))
        assert row["cost_per_year"] == pytest.approx(rows["cost"].sum() * 252 / len(rows))
        assert row["exposure"] == pytest.approx(0.9)
        daily = sharpe_ratio(rows["net_return"].to_numpy(), 252) / 252**0.5
        assert row["sharpe_error"] == pytest.approx(np.sqrt(252) * iid_standard_error(daily, len(rows)))
        assert row["sharpe_low"] < row["sharpe"] < row["sharpe_high"]
        by_theory = lo_interval(rows["net_return"].to_numpy(), 252)
        assert (row["lo_low"], row["lo_high"]) == (by_theory.low, by_theory.high)


def test_names_held_are_counted_from_the_session_after_the_decision(curves, verdict):
    held = np.arange(600) // 5 % 2 + 1  # one name for five sessions, then two
    for period, fold, first, last, found in verdict.select(
        "period", "fold", "first_session", "last_session", "effective_names"
    ).rows():
        sessions = curves["session"].unique().sort()
        during = sessions.is_between(first, last).to_numpy()
        assert found == pytest.approx(held[during].mean()), (period, fold)


def test_an_order_that_has_not_filled_holds_nothing(curves, verdict):
    actions = action_logs(curves)
    last = actions.group_by("policy", maintain_order=True).last()
    waiting = last.with_columns(session=pl.lit(curves["session"].max()), executed_weights=None)
    found = evaluate(
        curves, pl.concat([actions, waiting.select(actions.columns)], how="vertical_relaxed"), REPORT_FROM, 252, QUICK
    )
    assert found.equals(verdict)


def test_an_account_whose_first_decision_comes_late_is_refused_by_name(curves):
    late = action_logs(curves).filter((pl.col("policy") != "ppo") | (pl.col("step") > 0))
    with pytest.raises(ValueError, match="ppo"):
        evaluate(curves, late, REPORT_FROM, 252, QUICK)


def test_ensemble_has_interquartile_mean_over_seeds_and_folds(curves, verdict):
    scores = np.array(
        [
            [
                sharpe_ratio(
                    curves.filter(pl.col("policy") == name, pl.col("fold") == fold)["net_return"].to_numpy(), 252
                )
                for name in ("ppo/seed-0", "ppo/seed-1")
            ]
            for fold in range(3)
        ]
    )
    own = verdict.filter(pl.col("kind") == "ensemble")
    of_all = own.row(by_predicate=pl.col("period") == "all", named=True)
    assert of_all["iqm_sharpe"] == interquartile_mean(scores, np.random.default_rng(0)).point
    assert scores.min() <= of_all["iqm_low"] < of_all["iqm_sharpe"] < of_all["iqm_high"] <= scores.max()
    folds = own.filter(pl.col("period") == "fold")["iqm_sharpe"]
    np.testing.assert_allclose(folds, scores.mean(axis=1))
    others = verdict.filter(pl.col("kind") != "ensemble").select("iqm_sharpe", "iqm_low", "iqm_high")
    assert others.null_count().row(0) == (len(others),) * 3


def test_an_ensemble_of_one_seed_has_no_interquartile_mean(curves):
    alone = judged(curves.filter(pl.col("policy") != "ppo/seed-1"))
    assert alone["iqm_sharpe"].null_count() == len(alone)


def test_ensemble_of_paths_has_no_interquartile_mean(curves):
    of_paths = judged(curves.with_columns(pl.col("policy").str.replace("/seed-", "/path-")))
    assert of_paths["iqm_sharpe"].null_count() == len(of_paths)


def test_what_the_returns_of_a_period_do_not_have_is_null(curves):
    gaining = curves.with_columns(net_return=pl.col("net_return").abs() + 1e-6)
    rows = judged(gaining)
    assert rows.select("sortino", "calmar", "omega").null_count().row(0) == (len(rows),) * 3
    assert rows["tail_ratio"].null_count() == 0


def test_policies_are_compared_with_the_best_baseline_of_the_same_period(verdict):
    for (_, _), rows in verdict.group_by("period", "fold"):
        baselines = rows.filter(pl.col("kind") == "baseline").sort("sharpe")
        for row in rows.filter(pl.col("kind") != "baseline").iter_rows(named=True):
            assert row["best_baseline"] == baselines["policy"][-1]
            assert row["sharpe_difference"] == row["sharpe"] - baselines["sharpe"][-1]
            assert row["sharpe_difference_low"] < row["sharpe_difference"] < row["sharpe_difference_high"]


def test_baselines_are_compared_with_nothing(verdict):
    columns = ["best_baseline", "sharpe_difference", "sharpe_difference_low", "sharpe_difference_high"]
    baselines = verdict.filter(pl.col("kind") == "baseline").select(columns)
    assert baselines.null_count().row(0) == (len(baselines),) * 4


def test_policies_alone_are_judged_without_a_comparison(curves):
    alone = judged(curves.filter(pl.col("kind") == "policy"))
    assert alone["best_baseline"].null_count() == len(alone)


@pytest.mark.slow
def test_two_verdicts_are_equal_and_rows_order_does_not_matter(curves, verdict):
    again = judged(curves.sort("session", maintain_order=True))
    assert again.equals(verdict)


@pytest.mark.slow
def test_an_empty_period_has_no_rows(curves):
    assert "before_2010" not in set(judged(curves, date(2010, 1, 1))["period"])
    assert "from_2030" not in set(judged(curves, date(2030, 1, 1))["period"])


def test_an_account_in_cash_gets_finite_numbers(curves):
    still = curves.with_columns(net_return=pl.when(pl.col("policy") == "ppo").then(0.0).otherwise("net_return"))
    rows = judged(still).filter(pl.col("policy") == "ppo")
    assert np.all(rows.select("sharpe", "sharpe_low", "sharpe_high", "cagr", "max_drawdown").to_numpy() == 0.0)
    assert rows.select("lo_low", "lo_high").null_count().row(0) == (len(rows),) * 2


def test_no_account_is_nothing_to_judge(curves):
    with pytest.raises(ValueError):
        evaluate(curves.clear(), action_logs(curves), REPORT_FROM, 252, QUICK)


@pytest.mark.parametrize("value", [None, float("nan")])
@pytest.mark.parametrize("column", ["net_return", "turnover", "cost", "cash"])
def test_a_number_that_is_missing_is_refused_with_its_account_and_session(curves, column, value):
    session = curves["session"][10]
    here = (pl.col("policy") == "ppo") & (pl.col("session") == session)
    with pytest.raises(ValueError, match=f"{column} of ppo .* {session}"):
        judged(curves.with_columns(pl.when(here).then(pl.lit(value)).otherwise(column).alias(column)))


def test_an_account_that_misses_a_session_is_refused_by_name(curves):
    missing = curves.filter((pl.col("policy") != "ppo") | (pl.col("session") != curves["session"][10]))
    with pytest.raises(ValueError, match="ppo: 599"):
        judged(missing)


def test_an_account_with_a_session_twice_is_refused_by_name(curves):
    with pytest.raises(ValueError, match="ppo: 601"):
        judged(pl.concat([curves, curves.filter(pl.col("policy") == "ppo").head(1)]))


def test_walk_on_market_without_closing_is_annualized_by_365_sessions():
    days = EVERY_DAY.sessions(date(2020, 1, 1), date(2021, 2, 3))
    panel = replace(synthetic_panel(len(days)), sessions=days, calendar=EVERY_DAY)
    account = PolicyAccount("equal_weight", "baseline", (None,), (EqualWeight().start(),))
    record = backtest(panel, EnvSpec(), [Fold(0, 0, 97, 99, 399)], [account])
    curves, actions = record.equity_curves, record.action_logs
    row = evaluate(curves, actions, None, panel.calendar.periods_per_year, QUICK).row(-1, named=True)
    net, n = curves["net_return"].to_numpy(), len(curves)
    mean, deviation = net.sum() / n * 365, (((net - net.mean()) ** 2).sum() / (n - 1) * 365) ** 0.5
    growth = (1.0 + net).prod() ** (365 / n) - 1.0
    expected = {
        "n_sessions": 301,
        "cagr": growth,
        "volatility": deviation,
        "sharpe": mean / deviation,
        "sortino": mean / ((net[net < 0.0] ** 2).sum() / n * 365) ** 0.5,
        "calmar": growth / row["max_drawdown"],
        "turnover_per_year": curves["turnover"].sum() / n * 365,
        "cost_per_year": curves["cost"].sum() / n * 365,
        "sharpe_error": ((365 + (mean / deviation) ** 2 / 2) / n) ** 0.5,
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert row["lo_low"] < row["sharpe_low"] + 1.0 < row["sharpe"] + 1.0
