import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.selectors import MomentumTopK
from nvtrader_pipelines.portfolio.pipeline.stage import one_way_turnover
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming
from nvtrader_pipelines.portfolio.pipeline.turbulence import TurbulenceTiming
from tests.markets import synthetic_panel
from tests.panels import LATE, LISTED_AT, eventful_panel
from tests.portfolio.pipeline.situations import cash, result_of, situation, stage

PANEL = synthetic_panel(200, 8, seed=4)
PROPOSAL = np.array([0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.0, 0.2])
HELD = np.array([0.1] * 8 + [0.2])
SHORT = {"history": 63, "n_scenarios": 1000}
DUE = 160  # the first session of a period of 20


def allocated(allocator, proposal=PROPOSAL, at=None, **pipeline):
    """Return the allocator's stage."""
    at = situation(PANEL, DUE, HELD) if at is None else at
    return stage(WeightPipeline(allocator=allocator, **pipeline), "cufolio", proposal, at)


def names_distance(weights, center):
    """One-way distance of the names' weights."""
    change = weights[:-1] - center[:-1]
    return max(change.clip(0.0).sum(), -change.clip(max=0.0).sum())


@pytest.mark.parametrize("distance", [0.02, 0.1, 0.3])
def test_weights_stay_within_the_distance_of_the_scaled_policy(distance):
    found = allocated(CufolioAllocator(**SHORT, max_distance=distance))
    assert found.reason == f"Mean-CVaR within {distance:.0%} of the policy's weights"
    assert names_distance(found.weights, PROPOSAL / 0.8) == pytest.approx(distance, abs=1e-6)
    assert found.weights[-1] == pytest.approx(0.0, abs=1e-9)
    assert found.weights[:-1].max() <= 0.25 + 1e-9


def test_cash_is_that_of_the_own_bounds_and_not_the_policys():
    fixed = allocated(CufolioAllocator(**SHORT, cash_floor=0.1)).weights
    free = allocated(CufolioAllocator(**SHORT, cash_floor=0.1, cash_ceiling=0.3)).weights
    capped = allocated(CufolioAllocator(**SHORT, max_position_pct=0.05)).weights
    assert fixed[-1] == pytest.approx(0.1)
    assert free[-1] == pytest.approx(0.3)
    assert capped[-1] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("t", "rebal_freq", "is_due"), [(160, 5, True), (164, 5, True), (165, 5, False), (179, 1, False)]
)
def test_first_decision_of_a_period_rebalances_and_others_hold(t, rebal_freq, is_due):
    found = allocated(CufolioAllocator(**SHORT), at=situation(PANEL, t, HELD, rebal_freq=rebal_freq))
    assert np.array_equal(found.weights, HELD) != is_due
    if not is_due:
        assert found.reason == "held, rebalanced every 20 sessions"


def test_account_in_cash_buys_at_any_decision():
    found = allocated(CufolioAllocator(**SHORT), at=situation(PANEL, 170))
    assert found.weights[-1] == pytest.approx(0.0, abs=1e-9)


def test_names_scaled_by_a_timing_are_held_in_proportion_and_scaled_once():
    full = np.append(np.linspace(0.09, 0.16, 8), 0.0)
    halved = np.append(full[:-1] * 0.5, 0.5)
    pipeline = {"timing": ConstantTiming(exposure=0.5)}
    found = allocated(CufolioAllocator(**SHORT), at=situation(PANEL, 170, halved), **pipeline)
    np.testing.assert_allclose(found.weights, full, atol=1e-12)
    whole = result_of(
        WeightPipeline(allocator=CufolioAllocator(**SHORT), **pipeline), PROPOSAL, situation(PANEL, 170, halved)
    )
    np.testing.assert_allclose(whole.weights, halved, atol=1e-12)


def test_name_that_is_no_longer_selected_makes_a_rebalance_due():
    held = np.append(np.full(8, 0.125), 0.0)
    selector, cap = MomentumTopK(k=5), {"max_position_pct": 0.21}
    found = allocated(CufolioAllocator(**SHORT, **cap), at=situation(PANEL, 170, held), selector=selector)
    assert found.reason.startswith("Mean-CVaR within")
    assert np.count_nonzero(found.weights[:-1]) <= 5
    assert found.weights[:-1].max() <= 0.21 + 1e-9


def test_name_that_drifted_above_the_cap_is_not_scaled_above_it():
    halved = np.append(np.array([0.15, *[0.05] * 7]), 0.5)
    found = allocated(CufolioAllocator(**SHORT), at=situation(PANEL, 170, halved), timing=ConstantTiming(exposure=0.5))
    np.testing.assert_allclose(found.weights[:-1], [0.25, *[0.1] * 7])


def test_turnover_from_the_held_weights_is_within_its_budget():
    held = np.append(np.full(8, 0.125), 0.0)
    found = allocated(CufolioAllocator(**SHORT, max_turnover=0.05), at=situation(PANEL, DUE, held)).weights
    assert one_way_turnover(held, found) == pytest.approx(0.05, abs=1e-6)


def test_drifted_weight_is_sold_to_the_cap_before_the_budget_counts():
    held = np.array([0.45, *[0.55 / 7] * 7, 0.0])
    found = allocated(CufolioAllocator(**SHORT, max_turnover=0.05), at=situation(PANEL, DUE, held)).weights
    assert found[0] == pytest.approx(0.25)
    assert one_way_turnover(held, found) == pytest.approx(0.2, abs=1e-5)


def test_cvar_limit_that_no_portfolio_meets_holds_with_the_reason():
    found = allocated(CufolioAllocator(**SHORT, max_cvar=1e-4))
    np.testing.assert_array_equal(found.weights, HELD)
    assert found.reason.startswith("held: every portfolio within the other constraints has a CVaR of at least 0.0")


def test_name_without_history_keeps_its_weight_up_to_the_cap():
    panel, proposal = eventful_panel(), cash(6)
    proposal[[0, 1, LATE, -1]] = [0.3, 0.3, 0.4, 0.0]
    young = situation(panel, LISTED_AT + 42, rebal_freq=5)
    found = allocated(CufolioAllocator(history=63, n_scenarios=1000), proposal, young).weights
    np.testing.assert_allclose(found[[0, 1, LATE, -1]], [0.25, 0.25, 0.25, 0.25], atol=1e-9)


def test_weights_without_history_are_the_policys_up_to_the_cap():
    found = allocated(CufolioAllocator(history=504), at=situation(PANEL, DUE, HELD)).weights
    np.testing.assert_allclose(found[:-1], np.minimum(PROPOSAL[:-1] / 0.8, 0.25))


def test_policy_in_cash_stays_in_cash_between_rebalances_too():
    for t in (DUE, DUE + 10):
        np.testing.assert_array_equal(
            allocated(CufolioAllocator(**SHORT), cash(8), situation(PANEL, t, HELD)).weights, cash(8)
        )


def test_policy_without_a_selected_name_is_optimized_around_equal_weights():
    selector = MomentumTopK(k=7)
    names = selector.start(PANEL)(situation(PANEL, DUE))[0]
    proposal = np.append(np.where(names, 0.0, 1.0), 0.0)
    found = allocated(CufolioAllocator(**SHORT, max_distance=0.05), proposal, selector=selector).weights
    assert names_distance(found, np.append(names / 7, 0.0)) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    "knobs",
    [
        {"max_position_pct": 0.3},
        {"cufolio_hold_days": 4},
        {"cvar_alpha": 0.995},
        {"cash_floor": 0.3, "cash_ceiling": 0.2},
    ],
)
def test_knob_out_of_bounds_is_refused_by_the_pipeline(knobs):
    with pytest.raises(ValidationError):
        WeightPipeline.model_validate({"allocator": {"kind": "cufolio", **knobs}})


def test_cap_above_a_quarter_needs_a_wider_limit_of_the_desk():
    allocator = CufolioAllocator(max_position_pct=0.3)
    assert WeightPipeline(allocator=allocator, risk_limits=RiskLimits(max_position=0.3)).allocator == allocator


@pytest.mark.parametrize("timing", [TurbulenceTiming(), ConstantTiming(exposure=0.9)])
def test_free_cash_beside_a_timing_that_scales_it_is_refused(timing):
    with pytest.raises(ValidationError):
        WeightPipeline(allocator=CufolioAllocator(cash_ceiling=0.5), timing=timing)


def test_caps_that_leave_more_cash_than_the_ceiling_are_refused_by_the_market():
    pipeline = WeightPipeline(allocator=CufolioAllocator(max_position_pct=0.1, cash_ceiling=0.1))
    with pytest.raises(ValueError):
        pipeline.start(PANEL)
