from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trials import (
    Period,
    mean_correlation,
    periods_of,
    run_returns,
    sharpe_ratios,
    trials_of,
)
from tests.evaluation.small_trials import SESSIONS, WHOLE, run_curves, some_runs, some_trials


def both(**second):
    return pl.concat([run_curves("a"), run_curves("b", seed=1, **second)])


def test_trials_are_the_ensembles_over_the_sessions_all_have():
    trials = trials_of(some_runs("a", "b"), both(first=100, last=600), WHOLE)
    assert trials.names == ("a", "b")
    assert (trials.sessions == SESSIONS[100:600]).all()
    ensembles = both(first=100, last=600).filter(pl.col("kind") == "ensemble")
    for i, name in enumerate(trials.names):
        own = ensembles.filter(pl.col("run_id") == name, pl.col("session").is_between(SESSIONS[100], SESSIONS[599]))
        assert trials.net[:, i].tolist() == own["net_return"].to_list()


def test_only_the_days_of_the_period_count():
    period = Period("from_2017", date(2017, 1, 1), date(2017, 6, 30))
    trials = trials_of(some_runs("a", "b"), both(), period)
    inside = (np.datetime64(period.first) <= SESSIONS) & (np.datetime64(period.last) >= SESSIONS)
    assert (trials.sessions == SESSIONS[inside]).all()


def test_the_best_baseline_is_that_of_the_period_known_afterwards():
    curves = both()
    halves = [Period("all", SESSIONS[i].item(), SESSIONS[i + 99].item()) for i in range(0, 700, 100)]
    seen = set()
    for period in halves:
        trials = trials_of(some_runs("a", "b"), curves, period)
        inside = curves.filter(pl.col("run_id") == "a", pl.col("session").is_between(period.first, period.last))
        returns = {
            name: inside.filter(pl.col("policy") == name)["net_return"].to_numpy()
            for name in ("buy_and_hold", "equal_weight")
        }
        best = max(returns, key=lambda name: sharpe_ratio(returns[name]))
        seen.add(best)
        assert trials.best_baselines[0] == best
        assert (trials.best_baseline[:, 0] == returns[best]).all()
    assert len(seen) == 2  # or the best would not depend on the period


@pytest.mark.parametrize(
    ("baselines", "anchor"),
    [
        (("buy_and_hold", "equal_weight", "anchor"), "anchor"),
        (("buy_and_hold", "equal_weight"), "equal_weight"),
        (("buy_and_hold", "minimum_variance"), None),
    ],
)
def test_the_anchor_is_the_runs_own_else_equal_weight_else_the_best(baselines, anchor):
    trials = trials_of(some_runs("a"), run_curves("a", baselines=baselines), WHOLE)
    assert trials.anchors[0] == (anchor or trials.best_baselines[0])


def test_a_run_whose_returns_are_lost_still_counts():
    trials = trials_of(some_runs("a", "lost", "b"), both(), WHOLE)
    assert (trials.names, trials.without_returns, trials.n_ever) == (("a", "b"), ("lost",), 3)


def test_runs_of_other_markets_do_not_count():
    assert trials_of(some_runs("a"), both(), WHOLE).names == ("a",)


def test_runs_that_never_meet_share_no_session():
    trials = trials_of(some_runs("a", "b"), pl.concat([run_curves("a", last=300), run_curves("b", first=300)]), WHOLE)
    assert trials.net.shape == (0, 2)


def test_no_run_at_all_makes_no_trial():
    trials = trials_of(some_runs("a").clear(), run_curves("a").clear(), WHOLE)
    assert (trials.n_ever, trials.net.shape) == (0, (0, 0))


def test_periods_are_as_long_as_the_longest_that_is_called_so():
    verdicts = pl.DataFrame(
        [
            ("a", "all", date(2000, 1, 3), date(2020, 1, 2)),
            ("b", "all", date(2005, 1, 3), date(2021, 1, 4)),
            ("b", "fold", date(2005, 1, 3), date(2006, 1, 4)),
            ("b", "from_2010", date(2010, 1, 4), date(2021, 1, 4)),
            ("c", "all", date(1990, 1, 2), date(1995, 1, 4)),
        ],
        schema=["run_id", "period", "first_session", "last_session"],
        orient="row",
    )
    runs = pl.DataFrame({"run_id": ["a", "b", "c"], "source": ["x", "x", "y"]})
    assert periods_of(runs, verdicts) == {
        "x": [
            Period("all", date(2000, 1, 3), date(2021, 1, 4)),
            Period("from_2010", date(2010, 1, 4), date(2021, 1, 4)),
        ],
        "y": [Period("all", date(1990, 1, 2), date(1995, 1, 4))],
    }


def test_sharpe_ratios_of_columns_are_those_of_each_and_zero_where_nothing_moves():
    returns = np.random.default_rng(0).normal(0.001, 0.01, (50, 3))
    returns[:, 1] = 0.002
    annual = [sharpe_ratio(column) for column in returns.T]
    assert (sharpe_ratios(returns) * 252**0.5).tolist() == pytest.approx(annual)
    assert annual[1] == 0.0
    assert sharpe_ratios(returns[:1]).tolist() == [0.0, 0.0, 0.0]


def test_mean_correlation_is_that_of_all_pairs_that_move():
    returns = np.random.default_rng(0).normal(0.0, 0.01, (200, 4))
    returns[:, 2] = 0.0
    pairs = [np.corrcoef(returns[:, i], returns[:, j])[0, 1] for i, j in ((0, 1), (0, 3), (1, 3))]
    assert mean_correlation(returns) == pytest.approx(np.mean(pairs))
    with pytest.raises(ValueError, match="two trials whose returns vary, but there are 1"):
        mean_correlation(returns[:, 1:3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda t: {"net": t.net[:-1]}, r"returns of shape \(400, 6\).*'net': \(399, 6\)"),
        (lambda t: {"anchor": t.anchor[:, :-1]}, r"'anchor': \(400, 5\)"),
        (lambda t: {"names": ("run-0",) * 6}, "which are different"),
        (lambda t: {"anchors": t.anchors[:-1]}, "a column for each of the names"),
        (lambda t: {"net": np.where(np.arange(6) == 2, np.nan, t.net)}, "net of run-2 has 400 NaN"),
        (lambda t: {"best_baseline": t.best_baseline * np.inf}, "best_baseline of run-0 has 400"),
    ],
)
def test_unequal_lengths_and_numbers_that_are_none_are_refused(change, sentence):
    trials = some_trials()
    with pytest.raises(ValueError, match=sentence):
        replace(trials, **change(trials))


@pytest.mark.parametrize(
    ("curves", "sentence"),
    [
        (lambda: run_curves("a").filter(pl.col("kind") != "ensemble"), "run a has 0 and 2"),
        (lambda: run_curves("a", baselines=()), "run a has 1 and 0"),
        (lambda: run_curves("a").filter(pl.int_range(pl.len()) != 5), "run a has 699 of its own"),
        (lambda: pl.concat([run_curves("a"), run_curves("a")]), "once on the same sessions, but run a has 1400"),
    ],
)
def test_a_run_with_accounts_that_do_not_fit_is_refused_by_name(curves, sentence):
    with pytest.raises(ValueError, match=sentence):
        run_returns(curves())
