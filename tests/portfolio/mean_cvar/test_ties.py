import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, Objective
from tests.portfolio.mean_cvar.cases import drawn, solved


@pytest.mark.parametrize("n_copies", [2, 5])
def test_identical_names_get_equal_weights(n_copies):
    scenarios = drawn(300, 5, seed=1)
    one = solved(scenarios, Constraints(cap=0.4), expected_returns=scenarios.mean(axis=0))
    several = np.hstack([scenarios] * n_copies)
    found = solved(several, Constraints(cap=0.4 / n_copies), expected_returns=several.mean(axis=0))
    assert found.objective == pytest.approx(one.objective, rel=1e-10)
    np.testing.assert_allclose(found.weights.reshape(n_copies, -1), [one.weights / n_copies] * n_copies, atol=1e-8)


def test_riskless_names_share_the_portfolio():
    np.testing.assert_allclose(solved(np.zeros((100, 5)), Constraints(cap=0.4)).weights, 0.2, atol=1e-10)


def test_tied_optimum_equals_a_quadratic_program_over_the_optimal_face():
    # min CVaR is 1/40 on the segment from (1/4, 1/4, 1/2) to (5/24, 8/24, 11/24); the latter has the smaller norm
    scenarios = np.array([[((7 * i + 13 * j + i * j) % 11 - 5) / 100 for j in range(3)] for i in range(20)])
    found = solved(scenarios, objective=Objective(0.9))
    np.testing.assert_allclose(found.weights, np.array([5.0, 8.0, 11.0]) / 24.0, atol=1e-9)
    assert found.objective == pytest.approx(1 / 40, rel=1e-12)


@pytest.mark.parametrize("seed", [38, 42, 50])
def test_identical_names_get_equal_weights_beside_a_turnover_budget(seed):
    generator = np.random.default_rng(seed)
    one = generator.normal(0.0, 0.04, (100, 3))
    scenarios, current = np.hstack([one, one]), generator.dirichlet(np.ones(6))
    constraints = Constraints(cap=0.3, turnover=0.4)
    found = solved(scenarios, constraints, Objective(0.9), current=current, expected_returns=scenarios.mean(axis=0))
    assert 0.5 * np.abs(found.weights - current).sum() < 0.4 - 1e-6  # the budget does not bind
    np.testing.assert_allclose(found.weights[:3], found.weights[3:], atol=1e-8)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1))
def test_no_mixture_with_another_optimum_has_a_smaller_norm(seed):
    generator = np.random.default_rng(seed)
    scenarios = drawn(60, 4, seed).round(2)
    cap = generator.uniform(0.3, 1.0)
    found = solved(scenarios, Constraints(cap=cap), Objective(0.9))
    order = generator.permutation(4)
    other = solved(scenarios[:, order], Constraints(cap=cap), Objective(0.9)).weights[np.argsort(order)]
    np.testing.assert_allclose(other, found.weights, atol=1e-6)
