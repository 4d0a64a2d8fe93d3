import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.components.component import canonical_json, content_hash
from nvtrader_pipelines.desk.portfolio_rows import weight_frame
from nvtrader_pipelines.execution.invariants import invalid_stage_sums
from nvtrader_pipelines.execution.plan import Stage
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import (
    GrossExposure,
    NetExposure,
    PartialAdjustment,
    PositionCap,
    TurnoverLimit,
)
from nvtrader_pipelines.storage.tables import TARGET_WEIGHTS
from tests.execution.plans import a_plan
from tests.markets import synthetic_panel, with_values
from tests.portfolio.pipeline.situations import ALLOCATORS, LIMITS, SELECTORS, TIMINGS, result_of, situation

PANEL = synthetic_panel(160, 4)
WITHIN = np.array([0.25, 0.2, 0.2, 0.15, 0.2])


def test_default_pipeline_returns_the_same_array_within_limits():
    found = result_of(WeightPipeline(), WITHIN, situation(PANEL))
    run = WeightPipeline().start(PANEL)
    assert run(WITHIN, situation(PANEL)).weights is WITHIN
    assert [stage.name for stage in found.stages] == [
        "policy", "static_universe", "policy_action", "constant", "position_cap", "gross_exposure"
    ]  # fmt: skip
    assert not found.truncated


def test_result_has_weights_and_reason_of_every_stage():
    found = result_of(WeightPipeline(timing=TIMINGS[0]), [0.5, 0.1, 0.1, 0.1, 0.2], situation(PANEL))
    by_name = {stage.name: stage for stage in found.stages}
    np.testing.assert_allclose(by_name["constant"].weights, [0.45, 0.09, 0.09, 0.09, 0.28])
    assert by_name["constant"].reason == "90% of the weights"
    np.testing.assert_allclose(by_name["position_cap"].weights, [0.25, 0.09, 0.09, 0.09, 0.48])
    assert by_name["gross_exposure"].weights is by_name["position_cap"].weights is found.weights
    assert found.truncated


def test_pipeline_survives_json_with_its_hash():
    pipeline = WeightPipeline(selector=SELECTORS[1], allocator=ALLOCATORS[3], timing=TIMINGS[2], limits=tuple(LIMITS))
    again = WeightPipeline.model_validate_json(canonical_json(pipeline))
    assert again == pipeline
    assert content_hash(again) == content_hash(pipeline) != content_hash(WeightPipeline())


@pytest.mark.parametrize(
    "limits",
    [
        (PositionCap(),),
        (PositionCap(), GrossExposure(), PositionCap()),
        (PositionCap(), TurnoverLimit(), GrossExposure()),
        (PositionCap(), PartialAdjustment(), GrossExposure()),
        (PartialAdjustment(), PositionCap(), TurnoverLimit(), GrossExposure()),
    ],
)
def test_inconsistent_limits_are_refused(limits):
    with pytest.raises(ValidationError):
        WeightPipeline(limits=limits)


def test_net_limit_below_gross_requires_its_stage():
    tight = RiskLimits(max_net=0.8)
    with pytest.raises(ValidationError):
        WeightPipeline(risk_limits=tight)
    pipeline = WeightPipeline(limits=(PositionCap(), GrossExposure(), NetExposure()), risk_limits=tight)
    found = result_of(pipeline, [0.25, 0.25, 0.25, 0.25, 0.0], situation(PANEL))
    assert found.weights[-1] == pytest.approx(0.2)


def test_positive_minimum_exposure_is_refused():
    with pytest.raises(ValidationError):
        WeightPipeline(risk_limits=RiskLimits(min_net=0.5))


@pytest.mark.parametrize(
    "proposal",
    [
        [0.2, np.nan, 0.2, 0.2, 0.2],
        [0.2, 0.2, 0.2, 0.2, np.inf],
        [0.5, -0.1, 0.2, 0.2, 0.2],
        [0.2, 0.2, 0.2, 0.2, 0.1],
        [0.2, 0.2, 0.2, 0.2, 0.2 + 8e-7],
        [0.5, 0.5],
    ],
)
def test_invalid_proposal_is_refused(proposal):
    with pytest.raises(ValueError):
        result_of(WeightPipeline(), proposal, situation(PANEL))


@given(off=st.floats(-2e-9, 2e-9))
def test_accepted_proposal_passes_the_check_of_weights(off):
    proposal = [0.2, 0.2, 0.2, 0.2, 0.2 + off]
    try:
        stages = result_of(WeightPipeline(), proposal, situation(PANEL)).stages
    except ValueError:
        assert abs(off) > 1e-9 - 1e-15
        return
    stored = tuple(Stage(name=each.name, weights=tuple(each.weights.tolist())) for each in stages)
    plan = a_plan(symbols=(*PANEL.symbols, "cash"), held=tuple(WITHIN), stages=stored)
    assert invalid_stage_sums(weight_frame(TARGET_WEIGHTS, [plan])).is_empty()


@pytest.mark.parametrize(
    "account",
    [
        {"held": [np.nan, 0.0, 0.0, 0.0, 1.0]},
        {"held": [1.2, 0.0, 0.0, 0.0, -0.2]},
        {"held": [0.2, 0.2, 0.2, 0.2, 0.1]},
        {"drawdown": np.nan},
        {"recent_returns": np.full(63, np.nan)},
    ],
)
def test_invalid_account_is_refused(account):
    with pytest.raises(ValueError):
        result_of(WeightPipeline(), WITHIN, situation(PANEL, **account))


@pytest.mark.parametrize(
    "stage",
    [*({"allocator": allocator} for allocator in ALLOCATORS[2:]), {"timing": TIMINGS[1]}, {"timing": TIMINGS[3]}],
    ids=lambda stage: next(iter(stage.values())).kind,
)
def test_nan_return_is_refused_with_its_symbol(stage):
    panel = with_values(synthetic_panel(160, 4), "close_returns", (90, 1), np.nan)
    with pytest.raises(ValueError, match="BBB"):
        result_of(WeightPipeline(**stage), WITHIN, situation(panel))


@pytest.mark.parametrize("selector", SELECTORS[1:], ids=lambda selector: selector.kind)
def test_nan_feature_is_refused_with_its_symbol(selector):
    panel = with_values(synthetic_panel(160, 4), "features", (100, 2), np.nan)
    with pytest.raises(ValueError, match="CCC"):
        result_of(WeightPipeline(selector=selector), WITHIN, situation(panel))
