from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective, UncertifiedError
from nvtrader_pipelines.portfolio.mean_cvar import optimizer as optimizer_module
from nvtrader_pipelines.portfolio.mean_cvar import whole_program as reference_module
from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import return_scale
from nvtrader_pipelines.portfolio.mean_cvar.whole_program import _nearest_probability
from tests.portfolio.mean_cvar.cases import drawn, names, random_case, solved


def at_most(count):
    def further(weights):
        held = cp.Variable(weights.shape, boolean=True)
        return [weights <= held, cp.sum(held) <= count]

    return further


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 2)
@given(seed=st.integers(0, 100_000))
def test_whole_program_is_certified_and_agrees_with_cuts(seed):
    case = random_case(seed)
    whole = case.optimizer.solve(case.scenarios, **case.inputs, method="rockafellar_uryasev")
    by_cuts = case.optimizer.solve(case.scenarios, **case.inputs)
    assert whole.method == "rockafellar_uryasev"
    assert whole.objective == pytest.approx(by_cuts.objective, rel=1e-6, abs=1e-9)
    assert whole.lower_bound <= by_cuts.objective + 1e-9
    assert by_cuts.lower_bound <= whole.objective + 1e-9


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_second_order_constraint_holds_and_is_certified(penalty):
    scenarios = drawn(150, 5)
    factor = np.linalg.cholesky(np.cov(scenarios.T))
    limits = Constraints(further=lambda weights: [cp.norm(weights) <= 0.5])
    inputs = {"volatility_factor": factor, "expected_returns": scenarios.mean(axis=0)}
    found = solved(scenarios, limits, Objective(volatility_penalty=penalty), **inputs)
    free = solved(scenarios, objective=Objective(volatility_penalty=penalty), **inputs)
    assert found.method == "rockafellar_uryasev"
    assert np.linalg.norm(found.weights) == pytest.approx(0.5, abs=1e-7)  # binds
    assert found.objective > free.objective


@pytest.mark.parametrize("seed", [3, 5])
def test_tight_second_order_constraint_is_certified(seed):
    scenarios = drawn(400, 20, seed).round(2)
    factor = np.linalg.cholesky(np.cov(scenarios.T))
    weights = cp.Variable(20, nonneg=True)
    held = [cp.sum(weights) == 1.0, weights <= 0.15]
    least = cp.Problem(cp.Minimize(cp.norm(factor.T @ weights)), held).solve(solver=cp.CLARABEL)
    limits = Constraints(cap=0.15, further=lambda weights: [cp.norm(factor.T @ weights) <= 1.0001 * least])
    found = solved(scenarios, limits, expected_returns=scenarios.mean(axis=0))
    assert np.linalg.norm(factor.T @ found.weights) == pytest.approx(1.0001 * least, rel=1e-7)


def test_crossed_bounds_advise_looser_constraints(monkeypatch):
    monkeypatch.setattr(optimizer_module, "solve_whole", lambda *_: Bounds(np.full(4, 0.25), 0.02, 9.0, 7))
    with pytest.raises(UncertifiedError, match="loosen"):
        MeanCvar(names(4)).solve(drawn(100, 4), method="rockafellar_uryasev")


def test_quadratic_constraint_holds_and_is_certified():
    scenarios = drawn(150, 5)
    factor = np.linalg.cholesky(np.cov(scenarios.T))
    weights = cp.Variable(5, nonneg=True)
    least = cp.Problem(cp.Minimize(cp.norm(factor.T @ weights)), [cp.sum(weights) == 1.0]).solve(solver=cp.CLARABEL)
    limit = 0.5 * (least + np.linalg.norm(factor.T @ solved(scenarios).weights))
    limits = Constraints(further=lambda weights: [cp.sum_squares(factor.T @ weights) <= limit**2])
    found = solved(scenarios, limits)
    assert np.linalg.norm(factor.T @ found.weights) == pytest.approx(limit, rel=1e-6)
    assert found.gap <= 1e-7


def test_maximum_number_of_names_gives_the_best_subset():
    scenarios = drawn(60, 4)
    found = solved(scenarios, Constraints(further=at_most(2)), Objective(0.9))
    assert (found.weights > 1e-8).sum() <= 2
    pairs = [(i, j) for i in range(4) for j in range(i)]
    best = min(solved(scenarios[:, list(pair)], objective=Objective(0.9)).objective for pair in pairs)
    assert found.objective == pytest.approx(best, rel=1e-7)


def test_reference_is_in_input_units_and_can_be_solved_twice():
    scenarios = drawn(2000, 4)  # (1 - 0.95) x 2000 is no whole number in floating point: cvxpy's cvar fails here
    problem = MeanCvar(names(4)).reference(scenarios)
    first = problem.solve(solver=cp.CLARABEL)
    assert problem.solve(solver=cp.HIGHS) == pytest.approx(first, rel=1e-6)
    assert solved(scenarios).objective == pytest.approx(first, rel=1e-6)


def test_references_of_one_structure_are_independent():
    scenarios = drawn(100, 4)
    tight = MeanCvar(names(4), Constraints(cap=0.3)).reference(scenarios)
    MeanCvar(names(4), Constraints(cap=0.9)).reference(scenarios)
    tight.solve(solver=cp.HIGHS)
    assert tight.value == pytest.approx(solved(scenarios, Constraints(cap=0.3)).objective, rel=1e-7)


@given(parts=st.lists(st.floats(-0.1, 0.5), min_size=10, max_size=10), largest=st.floats(0.11, 1.0))
def test_adjusted_multipliers_are_bounded_probabilities(parts, largest):
    found = _nearest_probability(np.array(parts), largest)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0.0).all()
    assert (found <= largest + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_wrong_multipliers_still_give_a_lower_bound(monkeypatch, noise):
    optimizer = MeanCvar(names(4), Constraints(further=lambda weights: [cp.norm(weights) <= 0.6]))
    true = optimizer.solve(drawn(100, 4))
    wrong = noise * np.random.default_rng(0).random(100)
    nearest, bounds = reference_module._nearest_probability, []
    monkeypatch.setattr(reference_module, "_nearest_probability", lambda parts, most: nearest(parts + wrong, most))
    monkeypatch.setattr(reference_module, "tangent_at", _without_gradient(reference_module.tangent_at))
    monkeypatch.setattr(reference_module, "_solve_relaxation", _remembering(reference_module._solve_relaxation, bounds))
    with pytest.raises(UncertifiedError):
        optimizer.solve(drawn(100, 4))
    assert max(bounds) * return_scale(drawn(100, 4)) <= true.objective


def _without_gradient(tangent_at):
    """Replace each CVaR plane by one far below the CVaR."""
    return lambda market, weights: replace(tangent_at(market, weights), cvar=np.full(4, -9.0))


def _remembering(relaxed, bounds):
    def remember(problem, weights):
        solution, bound = relaxed(problem, weights)
        bounds.append(bound)
        return solution, bound

    return remember
