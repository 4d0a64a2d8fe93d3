from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.portfolio.cufolio import NoPortfolioError, Rebalance
from nvtrader_pipelines.portfolio.cufolio_solver import solve_rebalance
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective
from nvtrader_pipelines.portfolio.scenarios import KernelDensity
from tests.markets import synthetic_panel
from tests.panels import LATE, LISTED_AT, eventful_panel

PANEL = synthetic_panel(200, 8, seed=4)
SHORT = {"history": 63, "n_scenarios": 1000}
IN_CASH = opening_account(8)


def decided(rule, sessions, account=IN_CASH, panel=PANEL):
    """Decisions of one policy at several closes."""
    policy = rule.start()
    return [policy.decide(panel, t, account) for t in sessions]


def test_weights_are_those_of_the_optimizer_on_the_kernel_density():
    held = Account(np.array([0.1] * 8 + [0.2]))
    rule = Cufolio(history=63, cvar_alpha=0.9, max_position_pct=0.3, cufolio_hold_days=10, cash_floor=0.05)
    (decision,) = decided(rule, [120], held)
    scenarios = KernelDensity(n_scenarios=5000, horizon=10).draw(PANEL.close_returns[58:121], np.random.default_rng(0))
    optimizer = MeanCvar([str(i) for i in range(8)], Constraints(cap=0.3, cash_floor=0.05), Objective(0.9, cost_bps=10))
    best = optimizer.solve(scenarios, current=held.weights[:-1], expected_returns=scenarios.mean(axis=0))
    np.testing.assert_allclose(decision.target[:-1], best.weights, atol=1e-9)
    assert decision.target[-1] == pytest.approx(0.05)


def test_rebalances_are_the_first_decisions_of_a_grid_of_sessions():
    traded = [
        t
        for t, each in zip(range(103, 200, 5), decided(Cufolio(**SHORT), range(103, 200, 5)), strict=True)
        if each.target is not None
    ]
    assert traded == [103, 123, 143, 163, 183]
    shifted = [each.target is not None for each in decided(Cufolio(**SHORT, cufolio_hold_days=7), range(104, 125, 5))]
    assert shifted == [True, True, True, True, False]


def test_history_too_short_gives_equal_weights_up_to_the_cap_beside_the_cash_floor():
    (decision,) = decided(Cufolio(history=504, cash_floor=0.2, max_position_pct=0.08), [150])
    np.testing.assert_allclose(decision.target, [0.08] * 8 + [0.36])


def test_names_listed_within_the_history_are_sold():
    panel = eventful_panel()
    held = np.zeros(7)
    held[[0, LATE, -1]] = [0.3, 0.3, 0.4]
    young, old = LISTED_AT + 42, LISTED_AT + 82
    for t, is_old in ((young, False), (old, True)):
        (decision,) = decided(Cufolio(**SHORT, max_position_pct=0.3), [t], Account(held), panel)
        assert (decision.target[LATE] > 0.0) == is_old


def test_cvar_limit_that_no_portfolio_meets_holds_with_the_least_as_reason():
    with pytest.raises(NoPortfolioError) as failure:
        solve_rebalance(Cufolio(max_cvar=1e-4, n_scenarios=1000), Rebalance(PANEL.close_returns[58:121], np.zeros(8)))
    (decision,) = decided(Cufolio(**SHORT, max_cvar=1e-4), [120])
    assert decision.target is None
    assert decision.reasons == f"holds: {failure.value}"


def test_cvar_limit_with_free_cash_is_met():
    rule = Cufolio(**SHORT, max_cvar=0.03, cash_ceiling=1.0)
    (decision,) = decided(rule, [120])
    drawn = KernelDensity(n_scenarios=1000, horizon=20).draw(PANEL.close_returns[58:121], np.random.default_rng(0))
    losses = np.sort(-drawn @ decision.target[:-1])[::-1]
    assert losses[:50].mean() == pytest.approx(0.03, rel=1e-6)


def test_volatility_penalty_lowers_the_volatility():
    past = PANEL.close_returns[58:121]
    deviation = [
        (past @ solve_rebalance(Cufolio(**SHORT, volatility_penalty=penalty), Rebalance(past, np.full(8, 0.125)))).std()
        for penalty in (0.0, 2.0)
    ]
    assert deviation[1] < deviation[0]


def test_turnover_budget_counts_sales_of_other_names():
    past = PANEL.close_returns[58:121]
    rule = Cufolio(**SHORT, max_turnover=0.3, cash_ceiling=1.0)
    weights = solve_rebalance(rule, Rebalance(past, np.full(8, 0.1), other_held=0.2))
    assert 0.5 * (np.abs(weights - 0.1).sum() + 0.2 + abs(weights.sum() - 1.0)) <= 0.3 + 1e-6


def test_session_without_eligible_name_waits_for_the_next_decision():
    eligible = PANEL.eligible.copy()
    eligible[120] = False
    first, second = decided(Cufolio(**SHORT), [120, 125], panel=replace(PANEL, eligible=eligible))
    assert first.target is None
    assert second.target is not None


def test_weights_that_tie_have_the_smallest_norm():
    past = np.repeat(PANEL.close_returns[58:121, :2], 4, axis=1)
    rule = Cufolio(**SHORT, cost_bps=0.0, max_position_pct=0.2)
    weights = solve_rebalance(rule, Rebalance(past, np.zeros(8)))
    np.testing.assert_allclose(weights, np.repeat(weights[[0, 4]], 4), atol=1e-6)


@pytest.mark.parametrize(
    "knobs",
    [
        {"cvar_alpha": 0.84},
        {"max_position_pct": 0.01},
        {"n_scenarios": 10_001},
        {"cufolio_hold_days": 61},
        {"cash_floor": 0.2, "cash_ceiling": 0.1},
    ],
)
def test_knob_out_of_bounds_is_invalid(knobs):
    with pytest.raises(ValidationError):
        Cufolio(**knobs)


def test_caps_that_leave_more_cash_than_the_ceiling_are_refused_by_the_market():
    with pytest.raises(ValueError):
        Cufolio(max_position_pct=0.1, cash_ceiling=0.1).require_market(PANEL)
