from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.alpha import residual_returns
from nvtrader_pipelines.evaluation.sharpe.deflation import Deflation
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trials import (
    Period,
    deflation_trials,
    mean_correlation,
    periods_of,
    run_returns,
    shared_fraction,
    sharpe_ratios,
    trials_of,
)
from tests.evaluation.small_trials import SESSIONS, WHOLE, run_curves, some_returns, some_runs


def both(**second):
    return pl.concat([run_curves("a"), run_curves("b", seed=1, **second)])


def test_trials_are_the_ensembles_each_over_its_own_sessions():
    trials = trials_of(some_runs("a", "b"), both(first=100, last=600), WHOLE, 252)
    assert trials.names == ("a", "b")
    ensembles = both(first=100, last=600).filter(pl.col("kind") == "ensemble")
    for trial, sessions in zip(trials.known, (SESSIONS, SESSIONS[100:600]), strict=True):
        assert trial.sessions.tolist() == sessions.tolist()
        own = ensembles.filter(pl.col("run_id") == trial.name)
        assert trial.net.tolist() == own["net_return"].to_list()


def test_comparable_are_the_trials_with_all_sessions_of_the_longest():
    curves = pl.concat(
        [
            run_curves("tiny", first=10, last=20),
            run_curves("a"),
            run_curves("late", first=300),
            run_curves("b", seed=1),
            run_curves("next", last=699),
        ]
    )
    trials = trials_of(some_runs("tiny", "a", "late", "lost", "b", "next"), curves, WHOLE, 252)
    assert [trial.name for trial in trials.comparable()] == ["a", "b"]
    later = Period("later", SESSIONS[300].item(), SESSIONS[698].item())
    trials = trials_of(some_runs("tiny", "a", "late", "lost", "b", "next"), curves, later, 252)
    assert [trial.name for trial in trials.comparable()] == ["a", "late", "b", "next"]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ({"a": (0, 400), "b": (300, 700)}, ["a"]),
        ({"a": (0, 400), "b": (300, 700), "c": (300, 700)}, ["b", "c"]),
        ({"a": (0, 3)}, []),
        ({}, []),
    ],
)
def test_comparable_prefers_most_frequent_of_longest_windows(windows, expected):
    every = [run_curves(name, first=first, last=last) for name, (first, last) in windows.items()]
    curves = pl.concat([run_curves("other"), *every])
    trials = trials_of(some_runs(*windows, "lost"), curves, WHOLE, 252)
    assert [trial.name for trial in trials.comparable()] == expected


def test_only_the_days_of_the_period_count():
    period = Period("from_2017", date(2017, 1, 1), date(2017, 6, 30))
    trials = trials_of(some_runs("a", "b"), both(), period, 252)
    inside = (np.datetime64(period.first) <= SESSIONS) & (np.datetime64(period.last) >= SESSIONS)
    for trial in trials.known:
        assert trial.sessions.tolist() == SESSIONS[inside].tolist()


def test_the_best_baseline_is_that_of_the_period_known_afterwards():
    curves = both()
    halves = [Period("all", SESSIONS[i].item(), SESSIONS[i + 99].item()) for i in range(0, 700, 100)]
    seen = set()
    for period in halves:
        trial = trials_of(some_runs("a", "b"), curves, period, 252).known[0]
        inside = curves.filter(pl.col("run_id") == "a", pl.col("session").is_between(period.first, period.last))
        returns = {
            name: inside.filter(pl.col("policy") == name)["net_return"].to_numpy()
            for name in ("buy_and_hold", "equal_weight")
        }
        best = max(returns, key=lambda name: sharpe_ratio(returns[name], 252))
        seen.add(best)
        assert trial.best_baseline_name == best
        assert (trial.best_baseline == returns[best]).all()
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
    (trial,) = trials_of(some_runs("a"), run_curves("a", baselines=baselines), WHOLE, 252).known
    assert trial.anchor_name == (anchor or trial.best_baseline_name)
    assert trial.reference("anchor") == (trial.anchor_name, trial.anchor)
    assert trial.returns("anchor").tolist() == residual_returns(trial.net, trial.anchor).tolist()


def test_a_run_whose_returns_are_lost_still_counts():
    trials = trials_of(some_runs("a", "lost", "b"), both(), WHOLE, 252)
    assert (trials.names, trials.without_returns, trials.n_trials) == (("a", "b"), ("lost",), 3)


def test_runs_of_other_markets_do_not_count():
    assert trials_of(some_runs("a"), both(), WHOLE, 252).names == ("a",)


def test_a_run_with_no_session_in_the_period_still_counts():
    curves = pl.concat([run_curves("a", last=300), run_curves("b", first=300)])
    trials = trials_of(some_runs("a", "b"), curves, Period("late", SESSIONS[300].item(), WHOLE.last), 252)
    assert trials.n_trials == 2
    assert [len(trial.sessions) for trial in trials.known] == [0, 400]
    assert [trial.unranked_reason for trial in trials.known] == ["0 sessions in the period, 4 needed", None]
    assert len(deflation_trials(trials.known)) == 1
    assert trials.deflation(trials.known[1], "zero") == Deflation(2, 2.0, None)


def test_no_run_at_all_makes_no_trial():
    trials = trials_of(some_runs("a").clear(), run_curves("a").clear(), WHOLE, 252)
    assert (trials.n_trials, trials.known) == (0, ())


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
    runs = pl.DataFrame({"run_id": ["a", "b", "c"], "source": ["x", "x", "y"], "validation_only": False})
    assert periods_of(runs, verdicts) == {
        "x": [
            Period("all", date(2000, 1, 3), date(2021, 1, 4)),
            Period("from_2010", date(2010, 1, 4), date(2021, 1, 4)),
        ],
        "y": [Period("all", date(1990, 1, 2), date(1995, 1, 4))],
    }


def test_runs_for_validation_only_make_no_period():
    spans = {"run_id": ["a", "b"], "period": "all", "last_session": date(2020, 1, 2)}
    verdicts = pl.DataFrame(spans).with_columns(first_session=pl.Series([date(2000, 1, 3), date(1990, 1, 2)]))
    runs = some_runs("a", "b", validation_only="b")
    assert periods_of(runs, verdicts) == {"sample": [Period("all", date(2000, 1, 3), date(2020, 1, 2))]}


def test_a_run_for_validation_only_counts_and_is_not_ranked():
    curves = pl.concat([run_curves("a", first=100), run_curves("b", first=100, seed=1), run_curves("cv", seed=2)])
    trials = trials_of(some_runs("a", "cv", "b", validation_only=["cv"]), curves, WHOLE, 252)
    assert trials.n_trials == 3
    assert [trial.name for trial in trials.comparable()] == ["a", "b"]
    assert len(deflation_trials(trials.known)) == 2
    assert trials.known[1].unranked_reason == (
        "validation only (trained on sessions after its tests): counts as a trial, but is not ranked"
    )


def test_sharpe_ratios_per_column_are_zero_where_constant():
    returns = np.random.default_rng(0).normal(0.001, 0.01, (50, 3))
    returns[:, 1] = 0.002
    annual = [sharpe_ratio(column, 252) for column in returns.T]
    assert (sharpe_ratios(returns) * 252**0.5).tolist() == pytest.approx(annual)
    assert annual[1] == 0.0
    assert sharpe_ratios(returns[:1]).tolist() == [0.0, 0.0, 0.0]


def test_mean_correlation_is_that_of_all_pairs_that_move():
    returns = np.random.default_rng(0).normal(0.0, 0.01, (200, 4))
    returns[:, 2] = 0.0
    pairs = [np.corrcoef(returns[:, i], returns[:, j])[0, 1] for i, j in ((0, 1), (0, 3), (1, 3))]
    assert mean_correlation(returns) == pytest.approx(np.mean(pairs))
    with pytest.raises(ValueError):
        mean_correlation(returns[:, 1:3])


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"net": t.net[:-1]},
        lambda t: {"anchor": t.anchor[:, None]},
        lambda t: {"net": np.where(np.arange(400) == 2, np.nan, t.net)},
        lambda t: {"best_baseline": t.best_baseline * np.inf},
    ],
)
def test_unequal_lengths_and_numbers_that_are_none_are_refused(change):
    trial = some_returns().trials().known[0]
    with pytest.raises(ValueError):
        replace(trial, **change(trial))


def test_a_trial_that_is_named_twice_is_refused():
    trials = some_returns().trials()
    with pytest.raises(ValueError):
        replace(trials, known=trials.known * 2)


@pytest.mark.parametrize(
    "curves",
    [
        lambda: run_curves("a").filter(pl.col("kind") != "ensemble"),
        lambda: run_curves("a", baselines=()),
        lambda: run_curves("a").filter(pl.int_range(pl.len()) != 5),
        lambda: pl.concat([run_curves("a"), run_curves("a")]),
    ],
)
def test_a_run_with_accounts_that_do_not_fit_is_refused_by_name(curves):
    with pytest.raises(ValueError, match="run a"):
        run_returns(curves())


def test_trial_counts_by_the_share_of_sessions_it_covers():
    curves = pl.concat([run_curves("a"), run_curves("b", seed=1), run_curves("part", first=350, seed=2)])
    trials = trials_of(some_runs("a", "b", "part", "lost"), curves, WHOLE, 252)
    a, b, part = trials.known
    assert [shared_fraction(one.sessions, part.sessions) for one in trials.known] == [0.5, 0.5, 1.0]
    assert (trials.deflation(a, "zero").n_trials, trials.deflation(a, "zero").n_counted) == (4, 3.5)
    assert trials.deflation(part, "zero").n_counted == 4.0
    ratios, weights = [each.sharpe["zero"] for each in (a, b, part)], np.array([2, 2, 1])
    expected = np.cov(ratios, aweights=weights)  # NumPy's unbiased variance under reliability weights
    assert trials.deflation(a, "zero").variance == pytest.approx(float(expected), rel=1e-12)
    assert trials.deflation(part, "zero").variance == pytest.approx(np.var(ratios, ddof=1), rel=1e-12)


def test_trial_without_a_shared_session_does_not_deflate():
    curves = pl.concat([run_curves("a", last=300), run_curves("b", first=300, seed=1)])
    trials = trials_of(some_runs("a", "b"), curves, WHOLE, 252)
    assert trials.deflation(trials.known[0], "zero").n_counted == 1.0
