import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from nvtrader_pipelines.evaluation.rademacher import (
    lower_bounds,
    massart_bound,
    rademacher_complexity,
    sharpe_ratio_estimation_error,
)
from nvtrader_pipelines.evaluation.sharpe.inference import SharpeMoments, sharpe_ratio_error
from tests.evaluation.golden import cases

TOPIC = "rademacher"
EXAMPLES, COMPLEXITIES, BOUNDS = (cases(TOPIC, prefix) for prefix in ("book_example", "complexity", "bound"))
CLOSE = 1e-12


def exact_complexity(performance):
    """The mean over all 2^T sign vectors, for few observations."""
    n_observations = len(performance)
    signs = 1.0 - 2.0 * (np.arange(2**n_observations)[:, None] >> np.arange(n_observations) & 1)
    return (signs @ performance / n_observations).max(axis=1).mean()


def test_every_vector_is_tested():
    assert {*EXAMPLES, *COMPLEXITIES, *BOUNDS} == set(cases(TOPIC))


def test_the_worked_example_of_sharpe_ratios_is_off_by_five_a_year():
    inputs, expected = EXAMPLES["book_example_sharpe"]["inputs"], EXAMPLES["book_example_sharpe"]["expected"]
    found = sharpe_ratio_estimation_error(inputs["T"], inputs["N"], inputs["delta"])
    annual = found * inputs["periods_per_year"] ** 0.5
    assert (found, annual) == pytest.approx((expected["value"], expected["value_annualised"]), abs=CLOSE)
    assert found == pytest.approx(expected["estimation_error_printed"], abs=0.01)  # printed 0.31, exactly 0.319
    assert round(annual, 1) == expected["annualised_printed"] == 5.1


def test_the_worked_example_of_lo_is_reproduced():
    inputs, expected = EXAMPLES["book_example_lo"]["inputs"], EXAMPLES["book_example_lo"]["expected"]
    moments = SharpeMoments(inputs["SR"], inputs["T"] + 1)  # Lo divides by T
    found = norm.isf(inputs["delta"]) * sharpe_ratio_error(moments) * 252**0.5
    assert found == pytest.approx(expected["value"], abs=CLOSE)
    assert round(found, 1) == expected["printed"]


@pytest.mark.parametrize("name", COMPLEXITIES)
def test_complexity_over_every_sign_vector_is_exact(name):
    performance, expected = np.array(COMPLEXITIES[name]["inputs"]["X"]), COMPLEXITIES[name]["expected"]
    assert exact_complexity(performance) == pytest.approx(expected["R_exact_noabs"], abs=CLOSE)
    assert massart_bound(performance) == pytest.approx(expected["massart"], abs=CLOSE)
    assert exact_complexity(performance) <= massart_bound(performance) + CLOSE


@pytest.mark.parametrize("name", COMPLEXITIES)
def test_monte_carlo_comes_as_near_as_the_public_programs(name):
    case = COMPLEXITIES[name]
    performance, tolerance = np.array(case["inputs"]["X"]), case["mc_abs_tol"]
    found = rademacher_complexity(performance, np.random.default_rng(0), 20_000)
    assert found == pytest.approx(exact_complexity(performance), abs=tolerance)
    for program, value in case["expected"]["mc20000"].items():
        if "noabs" in program:
            assert found == pytest.approx(value, abs=2.0 * tolerance)


@pytest.mark.parametrize("name", BOUNDS)
def test_lower_bounds_are_those_of_the_programs_that_agree_with_the_draft(name):
    inputs, expected = BOUNDS[name]["inputs"], BOUNDS[name]["expected"]
    size = (inputs["T"], inputs["N"], inputs["delta"])
    sharpe = lower_bounds(np.array(inputs["theta_hat"]), inputs["R"], sharpe_ratio_estimation_error(*size))
    assert sharpe == pytest.approx(expected["sharpe_lower"], abs=CLOSE)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), n_trials=st.integers(1, 5))
def test_copies_add_nothing_and_new_trials_never_take_away(seed, n_trials):
    performance = np.random.default_rng(seed).standard_normal((8, n_trials))
    found = exact_complexity(performance)
    assert exact_complexity(np.hstack([performance, performance])) == pytest.approx(found, abs=CLOSE)
    assert exact_complexity(performance[:, :1]) == pytest.approx(0.0, abs=CLOSE)
    wider = np.hstack([performance, np.random.default_rng(seed + 1).standard_normal((8, 1))])
    assert exact_complexity(wider) >= found - CLOSE


@pytest.mark.parametrize("n_draws", [1, 249, 251, 4010])
def test_the_mean_is_over_as_many_draws_as_are_asked_for(n_draws):
    performance = np.random.default_rng(0).standard_normal((10, 4))
    signs = np.random.default_rng(3).choice(np.array([-1.0, 1.0]), (n_draws, 10))
    found = rademacher_complexity(performance, np.random.default_rng(3), n_draws)
    assert found == pytest.approx((signs @ performance / 10).max(axis=1).mean(), abs=CLOSE)


def test_the_same_seed_gives_the_same_complexity():
    performance = np.random.default_rng(0).standard_normal((600, 4))
    first, again = (rademacher_complexity(performance, np.random.default_rng(3), 300) for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    "call",
    [
        lambda: massart_bound(np.ones(5)),
        lambda: massart_bound(np.full((3, 2), np.nan)),
        lambda: rademacher_complexity(np.ones((3, 0)), np.random.default_rng(0)),
    ],
)
def test_what_cannot_be_bounded_is_refused(call):
    with pytest.raises(ValueError):
        call()
