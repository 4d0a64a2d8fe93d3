import numpy as np
import pytest
from skfolio import RiskMeasure
from skfolio.moments import LedoitWolf
from skfolio.optimization import MeanRisk, ObjectiveFunction
from skfolio.prior import EmpiricalPrior

from nvtrader_pipelines.portfolio.mean_risk import mean_cvar_weights
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.allocators import (
    EqualWeightAllocator,
    MeanCvarTilt,
    MinimumVarianceAllocator,
)
from nvtrader_pipelines.portfolio.pipeline.selectors import MomentumTopK
from nvtrader_pipelines.portfolio.scenarios import BlockBootstrap, Historical
from tests.markets import synthetic_panel
from tests.panels import LATE, LISTED_AT, eventful_panel
from tests.portfolio.pipeline.situations import ALLOCATORS, ESTIMATE, cash, situation, stage

PANEL = synthetic_panel(200, 5, seed=4)
PROPOSAL = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
T = 150
ESTIMATED = pytest.mark.parametrize("allocator", ALLOCATORS[2:4], ids=lambda allocator: allocator.kind)


def apply_allocator(allocator, proposal=PROPOSAL, at=None, **pipeline):
    """Return the allocator's stage."""
    whole = WeightPipeline(allocator=allocator, risk_limits=RiskLimits(max_position=1.0), **pipeline)
    return stage(whole, allocator.kind, proposal, situation(PANEL, T) if at is None else at)


def test_equal_weights_keep_the_policys_exposure():
    found = apply_allocator(EqualWeightAllocator())
    np.testing.assert_allclose(found.weights, [0.16] * 5 + [0.2])
    assert found.reason == "equal weights of 5 names"


@pytest.mark.parametrize("allocator", ALLOCATORS[1:4], ids=lambda allocator: allocator.kind)
def test_exposure_is_spread_over_the_selected_names(allocator):
    found = apply_allocator(allocator, selector=MomentumTopK(k=2))
    assert found.weights[-1] == pytest.approx(0.2)
    assert np.count_nonzero(found.weights[:-1]) <= 2


def test_minimum_variance_equals_skfolio_on_the_history():
    found = apply_allocator(MinimumVarianceAllocator(history=120, estimate_every=1))
    oracle = MeanRisk(
        objective_function=ObjectiveFunction.MINIMIZE_RISK,
        risk_measure=RiskMeasure.VARIANCE,
        prior_estimator=EmpiricalPrior(covariance_estimator=LedoitWolf()),
    ).fit(PANEL.close_returns[T - 119 : T + 1])
    np.testing.assert_allclose(found.weights[:-1], 0.8 * oracle.weights_, atol=1e-6)
    assert found.reason == "minimum variance of 5 names over 120 sessions"


@ESTIMATED
def test_weights_are_estimated_every_few_sessions_only(allocator):
    on, between, next_one = (apply_allocator(allocator, at=situation(PANEL, t)).weights for t in (150, 154, 155))
    np.testing.assert_array_equal(on, between)
    assert not np.array_equal(on, next_one)


@pytest.mark.parametrize("allocator", [ALLOCATORS[2], ALLOCATORS[3].model_copy(update={"strength": 0.0})])
def test_weights_without_history_are_equal(allocator):
    for t, is_equal in ((38, True), (39, True), (40, False)):  # forty sessions at 39, and the grid's next one is 40
        found = apply_allocator(allocator, at=situation(PANEL, t)).weights
        assert np.allclose(found, [0.16] * 5 + [0.2]) == is_equal


def test_tilt_without_history_explains_its_base():
    tilted, found = (apply_allocator(ALLOCATORS[3], at=situation(PANEL, t)).reason for t in (30, 60))
    assert tilted == "equal weights of 5 names, as none has 40 sessions of history, tilted by the policy"
    assert found == "Mean-CVaR of 5 names, tilted by the policy"


@ESTIMATED
def test_name_without_full_history_is_not_optimized(allocator):
    panel = eventful_panel()
    proposal = cash(6)
    proposal[[0, 1, LATE, 6]] = [0.3, 0.3, 0.2, 0.2]
    young, old = situation(panel, LISTED_AT + 30), situation(panel, LISTED_AT + 60)
    assert apply_allocator(allocator, proposal, young).weights[LATE] == 0.0
    assert apply_allocator(allocator, proposal, old).weights[LATE] > 0.0


def test_single_selected_name_gets_the_whole_exposure():
    found = apply_allocator(ALLOCATORS[3], selector=MomentumTopK(k=1))
    assert found.weights.max() == pytest.approx(0.8)


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_tilt_equals_its_documented_formula(strength):
    found = apply_allocator(MeanCvarTilt(history=120, estimate_every=1, strength=strength, max_score=0.5))
    base = mean_cvar_weights(PANEL.close_returns[T - 119 : T + 1])
    scores = np.clip(np.log(5 * PROPOSAL[:-1] / 0.8), -0.5, 0.5)
    expected = base * np.exp(strength * scores)
    np.testing.assert_allclose(found.weights[:-1], 0.8 * expected / expected.sum(), atol=1e-12)


def test_strong_tilt_concentrates_on_the_policys_best_name():
    base = apply_allocator(MeanCvarTilt(**ESTIMATE, strength=0.0)).weights[:-1]
    found = apply_allocator(MeanCvarTilt(**ESTIMATE, strength=1e308)).weights
    assert found[np.where(base > 0.0, PROPOSAL[:-1], 0.0).argmax()] == pytest.approx(0.8)


def test_tilt_towards_an_unweighted_name_changes_nothing():
    young, proposal = situation(eventful_panel(), LISTED_AT + 30), cash(6)
    proposal[[LATE, 6]] = 0.8, 0.2
    base = apply_allocator(MeanCvarTilt(**ESTIMATE, strength=0.0), proposal, young).weights
    found = apply_allocator(MeanCvarTilt(**ESTIMATE, max_score=1e308), proposal, young).weights
    np.testing.assert_allclose(found, base, atol=1e-12)


def test_tilt_reduces_names_without_policy_weight():
    base = mean_cvar_weights(PANEL.close_returns[T - 119 : T + 1])
    best = int(base.argmax())
    proposal = np.full(6, 0.2)
    proposal[[best, 5]] = 0.0, 0.2
    found = apply_allocator(MeanCvarTilt(history=120, estimate_every=1), proposal).weights
    assert 0.0 < found[best] < 0.8 * base[best]


def test_allocator_draws_the_same_scenarios_each_time():
    allocator = MeanCvarTilt(history=100, scenarios=BlockBootstrap(n_scenarios=500))
    np.testing.assert_array_equal(apply_allocator(allocator).weights, apply_allocator(allocator).weights)


def test_tail_of_less_than_one_scenario_is_refused():
    allocator = MeanCvarTilt
    with pytest.raises(ValueError):
        allocator(history=10)
    with pytest.raises(ValueError):
        allocator(history=30, scenarios=Historical(horizon=20))
    assert allocator(history=10, scenarios=BlockBootstrap(n_scenarios=500)).history == 10
    with pytest.raises(ValueError):
        allocator(history=10, scenarios=BlockBootstrap(horizon=11))
