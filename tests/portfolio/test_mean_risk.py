import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from skfolio.exceptions import ConvexOptimizationError
from skfolio.optimization import MeanRisk
from sklearn.covariance import ledoit_wolf

from nvtrader_pipelines.portfolio import mean_risk
from nvtrader_pipelines.portfolio.mean_cvar import MeanCvar, UncertifiedError
from nvtrader_pipelines.portfolio.mean_risk import NoSolutionError, mean_cvar_weights, minimum_variance_weights

SOLVERS = [minimum_variance_weights, mean_cvar_weights]


def market(n_sessions=252, n_names=5, seed=0):
    generator = np.random.default_rng(seed)
    common = generator.normal(0.0004, 0.008, (n_sessions, 1))
    return common + generator.normal(0.0, 0.01, (n_sessions, n_names)) * np.linspace(0.5, 1.5, n_names)


def utility(weights, returns, confidence_level=0.95):
    """Mean less CVaR of the empirical distribution, with the boundary return counted in part."""
    losses = np.sort(-returns @ weights)[::-1]
    tail = (1.0 - confidence_level) * len(losses)
    whole = int(tail + 1e-9)
    shortfall = (losses[:whole].sum() + (tail - whole) * losses[whole]) / tail
    return (returns @ weights).mean() - shortfall


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), n_names=st.integers(1, 8))
@pytest.mark.parametrize("solver", SOLVERS)
def test_mean_risk_weights_are_long_only_and_fully_invested(solver, seed, n_names):
    weights = solver(market(n_sessions=120, n_names=n_names, seed=seed))
    assert weights.shape == (n_names,)
    assert (weights >= 0.0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_minimum_variance_equals_a_general_optimizer(seed):
    returns = market(seed=seed)
    covariance = ledoit_wolf(returns)[0] * 1e4
    oracle = minimize(
        lambda w: w @ covariance @ w,
        np.full(5, 0.2),
        jac=lambda w: 2.0 * covariance @ w,
        bounds=[(0.0, 1.0)] * 5,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0},
        options={"ftol": 1e-14},
    )
    found = minimum_variance_weights(returns)
    np.testing.assert_allclose(found, oracle.x, atol=1e-3)
    assert found @ covariance @ found == pytest.approx(oracle.fun, rel=1e-6)


def test_minimum_variance_of_many_names_has_equal_marginal_variances():
    returns = market(n_names=120)
    covariance = ledoit_wolf(returns)[0]
    weights = minimum_variance_weights(returns)
    marginal, variance = covariance @ weights, weights @ covariance @ weights
    np.testing.assert_allclose(marginal[weights > 0.0], variance, rtol=1e-12)
    assert (marginal[weights == 0.0] > variance).all()
    assert 0 < (weights == 0.0).sum() < 120


@pytest.mark.parametrize("seed", range(3))
def test_mean_cvar_reaches_the_rockafellar_uryasev_optimum(seed):
    returns = market(n_sessions=150, seed=seed)
    n_sessions, n_names = returns.shape
    # variables: weights, level, excess per session; minimise level + mean excess / tail - mean return
    cost = np.concatenate([-returns.mean(axis=0), [1.0], np.full(n_sessions, 1.0 / (0.05 * n_sessions))])
    above = np.hstack([-returns, -np.ones((n_sessions, 1)), -np.eye(n_sessions)])
    budget = np.concatenate([np.ones(n_names), np.zeros(n_sessions + 1)])[None]
    bounds = [(0.0, 1.0)] * n_names + [(None, None)] + [(0.0, None)] * n_sessions
    oracle = linprog(cost, A_ub=above, b_ub=np.zeros(n_sessions), A_eq=budget, b_eq=[1.0], bounds=bounds)
    found = utility(mean_cvar_weights(returns), returns)
    assert found == pytest.approx(-oracle.fun, abs=1e-7)


def test_repeated_solutions_are_equal():
    for solver in SOLVERS:
        assert np.array_equal(solver(market()), solver(market()))


def test_identical_names_share_their_weight():
    returns = market(n_names=2)
    for solver in SOLVERS:
        assert solver(returns[:, [0, 0, 1, 1]]).sum() == pytest.approx(1.0)


def test_constant_name_gets_all_weight_at_minimum_risk():
    returns = market()
    returns[:, 2] = 0.0
    assert mean_cvar_weights(returns).tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert minimum_variance_weights(returns).argmax() == 2


@pytest.mark.parametrize("solver", SOLVERS)
def test_missing_returns_are_refused(solver):
    returns = market()
    returns[5, 1] = np.nan
    with pytest.raises(ValueError):
        solver(returns)


def test_tail_of_less_than_one_return_is_refused():
    with pytest.raises(ValueError):
        mean_cvar_weights(market(n_sessions=19))


@pytest.mark.parametrize(
    ("solver", "owner", "method", "error"),
    [
        (minimum_variance_weights, MeanRisk, "fit", ConvexOptimizationError),
        (mean_cvar_weights, MeanCvar, "solve", UncertifiedError),
    ],
)
def test_failed_solver_raises_no_solution(monkeypatch, solver, owner, method, error):
    def fail(self, *data, **inputs):
        raise error("no luck")

    monkeypatch.setattr(owner, method, fail)
    monkeypatch.setattr(mean_risk, "_cached_weights", {})  # nothing was solved before
    with pytest.raises(NoSolutionError):
        solver(market())


def test_window_is_solved_once(monkeypatch):
    monkeypatch.setattr(mean_risk, "_cached_weights", {})
    first = minimum_variance_weights(market())
    monkeypatch.setattr(MeanRisk, "fit", None)
    again = minimum_variance_weights(market())
    np.testing.assert_array_equal(again, first)
    again[0] = 9.0  # a caller's copy
    np.testing.assert_array_equal(minimum_variance_weights(market()), first)
