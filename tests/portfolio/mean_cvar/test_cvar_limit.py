import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from nvtrader_pipelines.portfolio.mean_cvar import (
    Constraints,
    InfeasibleError,
    Objective,
    SolveInputs,
    best_within_cvar,
)
from tests.portfolio.mean_cvar.cases import cvar, drawn, names, solved


def best(scenarios, limit, constraints=None, objective=None, current=None, factor=None):
    inputs = SolveInputs(scenarios, current, scenarios.mean(axis=0), factor)
    chosen = (constraints or Constraints(cap=0.5), objective or Objective())
    return best_within_cvar(names(scenarios.shape[1]), *chosen, limit, inputs)


def limits_of(scenarios, cap=0.5, level=0.95):
    """Least CVaR, and that of the best mean."""
    safest = solved(scenarios, Constraints(cap=cap), Objective(level)).cvar
    order = np.argsort(-scenarios.mean(axis=0))
    weights = np.zeros(scenarios.shape[1])
    left = 1.0
    for name in order:
        weights[name] = min(cap, left)
        left -= weights[name]
    return safest, cvar(-scenarios @ weights, level)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.0, 1.2))
def test_best_mean_equals_a_linear_program_of_its_own(seed, share):
    scenarios = drawn(120, 5, seed)
    least, most = limits_of(scenarios)
    limit = least + share * (most - least) + 1e-12
    weights = best(scenarios, limit)
    n, size = 120, 0.05 * 120
    cost = np.concatenate([-scenarios.mean(axis=0), np.zeros(n + 1)])
    tails = np.hstack([-scenarios, -np.ones((n, 1)), -np.eye(n)])
    cap_row = np.concatenate([np.zeros(5), [1.0], np.full(n, 1.0 / size)])[None]
    rows = np.vstack([tails, cap_row])
    sums = np.concatenate([np.ones(5), np.zeros(n + 1)])[None]
    bounds = [(0.0, 0.5)] * 5 + [(None, None)] + [(0.0, None)] * n
    oracle = linprog(cost, rows, np.append(np.zeros(n), limit), sums, [1.0], bounds)
    assert -scenarios.mean(axis=0) @ weights == pytest.approx(oracle.fun, rel=1e-7, abs=1e-9)
    assert cvar(-scenarios @ weights, 0.95) <= limit + 1e-9


def test_cost_turnover_and_volatility_count_beside_the_limit():
    scenarios = drawn(300, 5, seed=3) + np.linspace(-0.001, 0.001, 5)
    current, factor = np.full(5, 0.2), np.linalg.cholesky(np.cov(scenarios, rowvar=False))
    limit = 0.98 * limits_of(scenarios)[0] + 0.02 * limits_of(scenarios)[1]
    chosen = (Constraints(cap=0.5, turnover=0.4), Objective(cost_bps=20.0, volatility_penalty=0.1))
    found = best(scenarios, limit, *chosen, current=current, factor=factor)

    weights, level = cp.Variable(5, bounds=[0, 0.5]), cp.Variable()
    change = cp.norm1(weights - current)
    terms = scenarios.mean(axis=0) @ weights - 20e-4 * change - 0.1 * cp.norm(factor.T @ weights)
    tail = level + cp.sum(cp.pos(-scenarios @ weights - level)) / 15.0
    problem = cp.Problem(cp.Maximize(terms), [cp.sum(weights) == 1.0, change <= 0.8, tail <= limit])
    problem.solve(solver=cp.CLARABEL)
    weights.value = found
    assert terms.value == pytest.approx(problem.value, abs=1e-9)
    assert cvar(-scenarios @ found, 0.95) == pytest.approx(limit, rel=1e-6)


def test_limit_below_every_portfolio_is_infeasible_with_the_least():
    scenarios = drawn(300, 5, seed=1)
    least, _ = limits_of(scenarios)
    with pytest.raises(InfeasibleError, match=f"{least:.4g}"):
        best(scenarios, 0.01)


def test_limit_above_every_portfolio_gives_the_best_mean():
    scenarios = drawn(300, 5, seed=1)
    order = np.argsort(-scenarios.mean(axis=0))
    weights = best(scenarios, 1.0)
    assert weights[order[:2]] == pytest.approx([0.5, 0.5])
