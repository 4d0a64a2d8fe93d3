import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.alpha import residual_returns
from nvtrader_pipelines.evaluation.comparison import TrialComparison
from nvtrader_pipelines.evaluation.rademacher import lower_bounds, sharpe_ratio_estimation_error
from nvtrader_pipelines.evaluation.trials import sharpe_ratios, trials_of
from tests.evaluation.small_trials import SESSIONS, WHOLE, run_curves, some_returns, some_runs


def compared(trials):
    return TrialComparison.of(trials, "anchor", np.random.default_rng(0), n_sign_draws=100)


def trials_in(**windows):
    curves = [run_curves(name, first, last, seed=i) for i, (name, (first, last)) in enumerate(windows.items())]
    return trials_of(some_runs(*windows), pl.concat(curves), WHOLE, 252)


def test_the_returns_are_those_of_the_trials_that_cover_the_period():
    trials = trials_in(a=(0, 700), late=(300, 700), b=(0, 700))
    found = compared(trials)
    assert found.names == ("a", "b")
    assert found.sessions.tolist() == SESSIONS.tolist()
    assert found.returns.T.tolist() == [trials.known[i].returns("anchor").tolist() for i in (0, 2)]


def test_lower_bounds_are_of_the_compared_and_count_all_trials_ever_run():
    returns = some_returns()
    found = compared(returns.trials(without_returns=("lost", "gone")))
    error = sharpe_ratio_estimation_error(400, 8, 0.05)
    assert found.complexity is not None
    expected = (
        lower_bounds(sharpe_ratios(residual_returns(returns.net, returns.anchor)), found.complexity, error) * 252**0.5
    )
    assert found.lower_bounds(0.05) == pytest.approx(dict(zip(found.names, expected.tolist(), strict=True)), rel=1e-12)


@pytest.mark.parametrize(("window", "n_common"), [((0, 400), 350), ((650, 700), 50), ((0, 650), 600)])
def test_who_is_left_out_is_told_how_much_of_the_period_it_covers(window, n_common):
    trials = trials_in(a=(50, 700), b=(50, 700), c=window)
    found = compared(trials)
    assert [found.exclusion_notes(trial) for trial in trials.known] == [
        [],
        [],
        [f"not compared with other trials: has {n_common} of the 650 sessions of the longest"],
    ]


def test_without_a_trial_there_is_nothing_to_compare_and_the_row_says_so():
    found = compared(trials_in(a=(0, 3)))
    assert (found.complexity, found.lower_bounds(0.05)) == (None, {})
    assert found.summary(16) == {
        "against": "anchor",
        "n_trials": 1,
        "n_compared": 0,
        "n_sessions": 0,
        "note": "no trial has the required 4 sessions in the period",
    }
