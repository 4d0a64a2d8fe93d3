from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from skfolio import RiskMeasure
from skfolio.optimization import MeanRisk, ObjectiveFunction

from nvtrader_pipelines.portfolio.mean_cvar import (
    Constraints,
    InfeasibleError,
    MeanCvar,
    Objective,
    UncertifiedError,
    cuts,
    optimizer,
)
from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds, MasterError, solve_by_cuts
from nvtrader_pipelines.portfolio.mean_cvar.solution import relative_gap
from nvtrader_pipelines.portfolio.mean_cvar.whole_program import LINEAR_OPTIONS
from tests.portfolio.mean_cvar.cases import cvar, drawn, names, random_case, solved

SEEDS = st.integers(0, 100_000)


@pytest.mark.slow
@given(seed=SEEDS)
def test_cuts_reach_the_optimum_of_the_whole_program(seed):
    case = random_case(seed)
    found = case.optimizer.solve(case.scenarios, **case.inputs)
    reference = case.optimizer.reference(case.scenarios, **case.inputs)
    reference.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    assert found.method == "cuts"
    assert found.objective == pytest.approx(reference.value, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@given(seed=SEEDS)
def test_solution_satisfies_its_constraints_and_reports_its_weights(seed):
    case = random_case(seed)
    found, limits, objective = case.optimizer.solve(case.scenarios, **case.inputs), case.constraints, case.objective
    weights, current = found.weights, case.inputs["current"]
    assert (weights >= limits.floor).all()
    assert (weights <= limits.cap).all()
    assert weights.sum() + found.cash == pytest.approx(1.0, abs=1e-8)
    assert limits.cash_floor - 1e-12 <= found.cash
    assert found.cash <= (limits.cash_floor if limits.cash_ceiling is None else limits.cash_ceiling) + 1e-12
    cash_change = current.sum() - weights.sum()
    assert found.turnover == pytest.approx(0.5 * (np.abs(weights - current).sum() + abs(cash_change)))
    assert limits.turnover is None or found.turnover <= limits.turnover + 1e-8
    assert limits.gross is None or np.abs(weights).sum() <= limits.gross + 1e-8
    assert not limits.sectors or weights[:2].sum() <= limits.sector_caps["a"] + 1e-8
    assert limits.further is None or abs(weights[0] - weights[-1]) <= 0.5 + 1e-8
    assert found.cvar == pytest.approx(cvar(-case.scenarios @ weights, objective.confidence_level), abs=1e-12)
    assert found.cost == pytest.approx(objective.cost_bps * 1e-4 * np.abs(weights - current).sum(), abs=1e-12)
    volatility = np.linalg.norm(case.inputs["volatility_factor"].T @ weights)
    total = objective.risk_aversion * found.cvar - found.expected_return + found.cost
    assert found.objective == pytest.approx(total + objective.volatility_penalty * volatility, abs=1e-12)
    assert found.lower_bound <= found.objective
    assert found.gap <= 1e-7


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_random_portfolios_are_not_below_the_lower_bound(seed):
    scenarios = drawn(100, 5, seed)
    found = solved(scenarios)
    weights = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), 200)
    assert min(cvar(-scenarios @ row, 0.95) for row in weights) >= found.lower_bound


@pytest.mark.parametrize("seed", range(3))
def test_optimum_equals_that_of_skfolio(seed):
    scenarios = drawn(400, 6, seed)
    oracle = MeanRisk(
        objective_function=ObjectiveFunction.MAXIMIZE_UTILITY, risk_measure=RiskMeasure.CVAR, risk_aversion=1.0
    ).fit(scenarios)
    found = solved(scenarios, expected_returns=scenarios.mean(axis=0))
    expected = cvar(-scenarios @ oracle.weights_, 0.95) - scenarios.mean(axis=0) @ oracle.weights_
    assert found.objective == pytest.approx(expected, rel=1e-6)
    assert found.objective <= expected + 1e-12


@pytest.mark.parametrize("n_names", [1, 3, 4, 7])
def test_caps_that_sum_to_one_are_the_weights(n_names):
    found = solved(drawn(100, n_names), Constraints(cap=1.0 / n_names))
    assert found.weights.tolist() == [1.0 / n_names] * n_names
    assert found.cash == pytest.approx(0.0, abs=1e-12)


def test_riskless_name_is_held_up_to_its_cap():
    scenarios = drawn(100, 3)
    scenarios[:, 1] = 0.0
    assert solved(scenarios).weights.tolist() == [0.0, 1.0, 0.0]
    assert solved(scenarios).objective == 0.0
    assert solved(scenarios, Constraints(cap=0.6)).weights[1] == pytest.approx(0.6)


def test_riskless_names_have_zero_objective():
    found = solved(np.zeros((50, 3)))
    assert (found.objective, found.cvar, found.gap) == (0.0, 0.0, 0.0)


def test_tail_of_one_scenario_minimizes_the_worst_loss():
    scenarios = drawn(50, 3)
    found = solved(scenarios, objective=Objective(0.98))
    weights, worst = cp.Variable(3, nonneg=True), cp.Variable()
    minimax = cp.Problem(cp.Minimize(worst), [worst >= -scenarios @ weights, cp.sum(weights) == 1.0])
    minimax.solve(solver=cp.HIGHS)
    assert found.cvar == pytest.approx(minimax.value, rel=1e-9)
    assert found.cvar == pytest.approx((-scenarios @ found.weights).max(), rel=1e-9)


def test_tail_of_all_scenarios_maximizes_the_mean():
    scenarios = drawn(80, 5)
    found = solved(scenarios, Constraints(cap=0.4), Objective(1e-12))
    best = np.sort(scenarios.mean(axis=0))[::-1]
    assert found.objective == pytest.approx(-(best[:3] @ [0.4, 0.4, 0.2]), abs=1e-10)


def test_zero_turnover_leaves_the_weights():
    current = np.array([0.5, 0.2, 0.3])
    found = solved(drawn(100, 3), Constraints(turnover=0.0), current=current)
    np.testing.assert_allclose(found.weights, current, atol=1e-12)
    assert found.turnover == pytest.approx(0.0, abs=1e-12)


def test_turnover_from_cash_to_fully_invested_is_one():
    found = solved(drawn(100, 4), Constraints(turnover=1.0), Objective(cost_bps=10.0), current=np.zeros(4))
    assert found.turnover == pytest.approx(1.0)
    assert found.cost == pytest.approx(10e-4)
    with pytest.raises(InfeasibleError):
        solved(drawn(100, 4), Constraints(turnover=0.99), current=np.zeros(4))


@pytest.mark.parametrize("method", ["cuts", "rockafellar_uryasev"])
@pytest.mark.parametrize("current", [[0.1, 0.1, 0.1], [0.4, 0.4, 0.2], [0.2, 0.2, 0.2]])
def test_turnover_budget_includes_the_change_of_cash(current, method):
    scenarios, now = drawn(200, 3), np.array(current)
    found = solved(scenarios, Constraints(cash_ceiling=1.0, turnover=0.15), current=now, method=method)
    weights = cp.Variable(3, nonneg=True)
    level, excess = cp.Variable(), cp.Variable(200, nonneg=True)
    turnover = 0.5 * (cp.norm1(weights - now) + cp.abs(cp.sum(weights) - now.sum()))
    constraints = [excess >= -scenarios @ weights - level, cp.sum(weights) <= 1.0, turnover <= 0.15]
    oracle = cp.Problem(cp.Minimize(level + cp.sum(excess) / 10.0), constraints).solve(solver=cp.HIGHS)
    assert found.turnover == pytest.approx(0.15)
    assert found.objective == pytest.approx(oracle, rel=1e-7)


def test_turnover_is_half_the_absolute_changes_and_binds_at_its_budget():
    scenarios = drawn(200, 4)
    scenarios[:, 3] = 0.0
    current = np.array([0.4, 0.3, 0.3, 0.0])
    found = solved(scenarios, Constraints(turnover=0.1), current=current)
    assert found.turnover == pytest.approx(0.1)
    assert found.weights[3] == pytest.approx(0.1)


def test_cost_above_all_gains_leaves_the_weights():
    current = np.array([0.5, 0.2, 0.3])
    found = solved(drawn(100, 3), objective=Objective(cost_bps=5000.0), current=current)
    np.testing.assert_allclose(found.weights, current, atol=1e-12)
    assert found.cost == pytest.approx(0.0, abs=1e-12)


def test_cash_equals_its_floor_unless_a_ceiling_is_given():
    scenarios = drawn(200, 4)
    assert solved(scenarios, Constraints(cash_floor=0.1)).cash == pytest.approx(0.1)
    assert solved(scenarios, Constraints(cash_floor=0.1, cash_ceiling=0.3)).cash == pytest.approx(
        0.3
    )  # cash has no loss


def test_constant_added_to_returns_lowers_cvar_by_the_invested_share():
    scenarios = drawn(150, 4)
    limits = Constraints(cap=0.5, cash_floor=0.1)
    risen = solved(scenarios + 0.003, limits)
    assert risen.cvar == pytest.approx(solved(scenarios, limits).cvar - 0.003 * 0.9, rel=1e-7)


@pytest.mark.parametrize("factor", [1e-4, 1e-2, 10.0, 100.0])
def test_scaled_scenarios_scale_the_objective(factor):
    scenarios = drawn(200, 6)
    objective = Objective(volatility_penalty=0.5)
    inputs = {"expected_returns": scenarios.mean(axis=0), "volatility_factor": np.cov(scenarios.T)}
    found = solved(scenarios, Constraints(cap=0.4), objective, **inputs)
    scaled = {what: value * factor for what, value in inputs.items()}
    other = solved(scenarios * factor, Constraints(cap=0.4), objective, **scaled)
    assert other.method == "cuts"
    assert other.objective == pytest.approx(factor * found.objective, rel=2e-7)


@pytest.mark.slow
@given(seed=SEEDS, exponent=st.floats(-9.0, 3.0))
def test_risk_aversion_scales_the_objective_without_mean_and_cost(seed, exponent):
    scenarios, aversion = drawn(200, 6, seed), 10.0**exponent
    found = solved(scenarios, Constraints(cap=0.5), Objective(risk_aversion=aversion))
    assert found.objective / aversion == pytest.approx(solved(scenarios, Constraints(cap=0.5)).objective, rel=1e-6)


@pytest.mark.parametrize("method", ["cuts", "rockafellar_uryasev"])
@pytest.mark.parametrize(
    "scenarios",
    [
        np.hstack([drawn(400, 4), 1e-7 * np.random.default_rng(5).standard_normal((400, 2))]),  # money-market names
        np.hstack([drawn(400, 3), 1e-4 * drawn(400, 3, 1) - drawn(400, 3)]),  # pairs that hedge each other
        np.vstack([drawn(400, 5), [[1e4, 0.0, 0.0, 0.0, 0.0]]]),
        np.vstack([drawn(400, 5), [[-1e4, 0.0, 0.0, 0.0, 0.0]]]),
    ],
    ids=["money_market", "hedged", "gain", "loss"],
)
def test_objective_far_below_its_terms_is_exact(scenarios, method):
    found = solved(scenarios, method=method)
    n_scenarios, n_names = scenarios.shape
    returns, size = scenarios / found.objective, 0.05 * n_scenarios
    oracle = linprog(
        np.r_[np.zeros(n_names), 1.0, np.full(n_scenarios, 1.0 / size)],
        A_ub=np.hstack([-returns, -np.ones((n_scenarios, 1)), -np.eye(n_scenarios)]),
        b_ub=np.zeros(n_scenarios),
        A_eq=[[1.0] * n_names + [0.0] * (n_scenarios + 1)],
        b_eq=[1.0],
        bounds=[(0.0, 1.0)] * n_names + [(None, None)] + [(0.0, None)] * n_scenarios,
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert oracle.fun == pytest.approx(1.0, rel=1e-6)
    assert found.lower_bound == pytest.approx(found.objective, rel=2e-7)


@pytest.mark.parametrize("share", [1.0, 1.0 - 1e-5, 0.5, 1e-3])
@pytest.mark.parametrize("method", ["cuts", "rockafellar_uryasev"])
def test_hedged_pairs_have_zero_objective_up_to_rounding(share, method):
    scenarios = drawn(400, 3)
    assert solved(np.hstack([scenarios, -share * scenarios]), method=method).objective == pytest.approx(0.0, abs=1e-12)


SAMPLE = drawn(120, 5).round(3)


@pytest.mark.parametrize(
    "same",
    [
        np.tile(SAMPLE, (2, 1)),
        np.random.default_rng(0).permutation(SAMPLE)[:, [3, 1, 4, 0, 2]],
        SAMPLE[:, [0, 0, 1, 2, 3, 4, 4]],
    ],
    ids=["scenarios twice", "another order", "names twice"],
)
def test_copies_and_order_of_scenarios_and_names_leave_the_optimum(same):
    assert solved(same).objective == pytest.approx(solved(SAMPLE).objective, rel=1e-7)


def test_scenario_multipliers_certify_the_optimum():
    scenarios, cap, size = drawn(100, 5), 0.4, 5.0
    optimizer = MeanCvar(names(5), Constraints(cap=cap))
    reference = optimizer.reference(scenarios)
    reference.solve(solver=cp.HIGHS)
    multipliers = next(c.dual_value for c in reference.constraints if c.size == 100)
    assert (multipliers >= -1e-12).all()
    assert (multipliers <= 1.0 / size + 1e-9).all()
    assert multipliers.sum() == pytest.approx(1.0)
    losses = np.sort(-(multipliers @ scenarios))  # the best portfolio against this one distribution fills the caps
    assert optimizer.solve(scenarios).objective == pytest.approx(losses[:3] @ [0.4, 0.4, 0.2], rel=1e-7)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_equal_inputs_give_equal_bytes_in_any_memory_layout(seed):
    case = random_case(seed)
    first = case.optimizer.solve(case.scenarios, **case.inputs)
    again = random_case(seed).optimizer.solve(np.asfortranarray(case.scenarios), **case.inputs)
    assert first.weights.tobytes() == again.weights.tobytes()
    assert (first.objective, first.lower_bound) == (again.objective, again.lower_bound)


def test_solve_leaves_its_inputs_unchanged():
    case = random_case(3)
    before = case.scenarios.copy(), case.inputs["current"].copy()
    case.optimizer.solve(case.scenarios, **case.inputs)
    assert np.array_equal(case.scenarios, before[0])
    assert np.array_equal(case.inputs["current"], before[1])


def test_optimizers_of_one_structure_are_independent():
    scenarios = drawn(150, 4)
    tight, wide = solved(scenarios, Constraints(cap=0.3)), solved(scenarios, Constraints(cap=0.9))
    assert tight.weights.max() == pytest.approx(0.3)
    assert wide.objective < tight.objective
    assert solved(scenarios, Constraints(cap=0.3)).weights.tobytes() == tight.weights.tobytes()


def test_current_weights_outside_the_limits_are_traded_inside():
    found = solved(drawn(100, 3), Constraints(cap=0.5, turnover=0.7), current=np.array([1.2, 0.0, 0.0]))
    assert (found.weights <= 0.5).all()
    assert found.turnover <= 0.7 + 1e-9


@pytest.mark.parametrize(
    ("cash_ceiling", "current"), [(None, [0.2, 0.4, 0.4]), (1.0, [0.2, 0.1, 0.1])], ids=["names", "names and cash"]
)
def test_turnover_that_further_constraints_require_is_reported(cash_ceiling, current):
    limits = Constraints(turnover=0.1, cash_ceiling=cash_ceiling, further=lambda weights: [weights[0] >= 0.5])
    with pytest.raises(InfeasibleError, match=r"0\.3"):
        solved(drawn(100, 3), limits, current=np.array(current))


@pytest.mark.parametrize("method", ["cuts", "rockafellar_uryasev"])
@pytest.mark.parametrize("limits", [{}, {"cash_ceiling": 0.5}, {"turnover": 0.2}])
def test_distance_from_a_center_is_that_of_a_further_constraint(limits, method):
    center, scenarios = np.array([0.5, 0.2, 0.1, 0.1]), drawn(150, 4)
    inputs = {"current": np.full(4, 0.25), "expected_returns": scenarios.mean(axis=0), "method": method}

    def within(weights):
        change = weights - center
        return [cp.maximum(cp.sum(cp.pos(change)), cp.sum(cp.neg(change))) <= 0.15]

    found = solved(scenarios, Constraints(center=center, distance=0.15, **limits), **inputs)
    change = found.weights - center
    assert max(change.clip(0.0).sum(), -change.clip(max=0.0).sum()) == pytest.approx(0.15)  # binds
    expected = solved(scenarios, Constraints(further=within, **limits), **inputs)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-7)


@pytest.mark.parametrize(
    "further",
    [
        lambda weights: [weights[0] >= 0.7, weights[1] >= 0.7],
        lambda weights: [weights[0] >= 1.7],
        lambda weights: [weights[0] >= 0.9, cp.norm(weights) <= 0.5],
    ],
    ids=["rows", "bounds", "cones"],
)
def test_contradicting_further_constraints_are_infeasible(further):
    with pytest.raises(InfeasibleError):
        solved(drawn(100, 3), Constraints(further=further))
    with pytest.raises(InfeasibleError):
        solved(drawn(100, 3), Constraints(further=further, turnover=0.5), current=np.full(3, 1 / 3))


def test_cuts_at_the_iteration_limit_yield_to_the_whole_program(monkeypatch):
    scenarios = drawn(150, 4)
    monkeypatch.setattr(cuts, "MAX_ITERATIONS", 2)
    fallback = solved(scenarios)
    monkeypatch.undo()
    assert fallback.method == "rockafellar_uryasev"
    assert fallback.objective == pytest.approx(solved(scenarios).objective, rel=1e-7)


@pytest.fixture
def cut_bounds(monkeypatch):
    """Bounds at the end of every cutting-plane solve."""
    recorded = []

    def record(*inputs):
        recorded.append(solve_by_cuts(*inputs))
        return recorded[-1]

    monkeypatch.setattr(optimizer, "solve_by_cuts", record)
    return recorded


@pytest.mark.slow
@pytest.mark.parametrize(("n_names", "n_scenarios", "patience"), [(60, 250, 100), (50, 900, 150)])
def test_cuts_on_independent_names_yield_to_the_whole_program(n_names, n_scenarios, patience, cut_bounds):
    scenarios = 0.01 * np.random.default_rng(1).standard_t(4, (n_scenarios, n_names))
    found = solved(scenarios)
    reference = MeanCvar(names(n_names)).reference(scenarios).solve(solver=cp.HIGHS, **LINEAR_OPTIONS)
    assert found.method == "rockafellar_uryasev"
    assert found.objective == pytest.approx(reference, rel=1e-9)
    assert found.gap <= 1e-9
    assert [bounds.n_iterations for bounds in cut_bounds] == [patience + 1]
    assert relative_gap(cut_bounds[0].upper, cut_bounds[0].lower) > 1e-3


def test_cuts_close_to_the_optimum_outlast_their_patience(cut_bounds):
    found = solved(0.01 * np.random.default_rng(1).standard_t(4, (400, 20)))
    assert (found.method, len(cut_bounds)) == ("cuts", 1)
    assert found.n_iterations > 100


def test_cuts_on_correlated_names_end_within_their_patience():
    found = solved(drawn(250, 150))
    assert found.method == "cuts"
    assert found.n_iterations < 100


@pytest.mark.slow
def test_cuts_slow_on_volatility_yield_to_the_whole_program():
    scenarios = drawn(400, 60, 3)
    inputs = {"expected_returns": scenarios.mean(axis=0), "volatility_factor": np.linalg.cholesky(np.cov(scenarios.T))}
    limits = Constraints(cap=0.2, floor=-0.02, gross=1.3)
    heavy = solved(scenarios, limits, Objective(risk_aversion=0.1, volatility_penalty=5.0), **inputs)
    light = solved(scenarios, limits, Objective(volatility_penalty=0.5), **inputs)
    assert (heavy.method, light.method) == ("rockafellar_uryasev", "cuts")
    assert heavy.gap <= 1e-7


def test_failed_linear_program_yields_to_the_whole_program(monkeypatch):
    def fail(self):
        raise MasterError("no luck")

    monkeypatch.setattr(cuts.Master, "solve", fail)
    assert solved(drawn(150, 4)).method == "rockafellar_uryasev"


@pytest.mark.parametrize("lower", [-np.inf, -1.0, 1.0, np.nan])
def test_solution_without_certificate_raises(monkeypatch, lower):
    bounds = Bounds(np.full(4, 0.25), 0.02, lower, 7)
    monkeypatch.setattr(optimizer, "solve_whole", lambda *_: bounds)
    with pytest.raises(UncertifiedError):
        MeanCvar(names(4)).solve(drawn(100, 4), method="rockafellar_uryasev")


def test_relative_gap_of_infinite_bounds_is_infinite():
    assert relative_gap(np.inf, -np.inf) == np.inf
    assert relative_gap(np.inf, np.inf) == np.inf
    assert relative_gap(0.0, 0.0) == 0.0


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_dropping_the_turnover_budget_is_never_worse(seed):
    case = random_case(seed)
    assume(case.constraints.turnover is not None)
    freer = MeanCvar(names(case.scenarios.shape[1]), replace(case.constraints, turnover=None), case.objective)
    bounded = case.optimizer.solve(case.scenarios, **case.inputs)
    assert freer.solve(case.scenarios, **case.inputs).lower_bound <= bounded.objective + 1e-12
