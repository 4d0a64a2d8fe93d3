import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.components.component import canonical_json, content_hash
from nvtrader_pipelines.desk.rows import weight_frame
from nvtrader_pipelines.execution.invariants import invalid_stage_sums
from nvtrader_pipelines.execution.plan import Stage
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, NetExposure, PositionCap, TurnoverLimit
from nvtrader_pipelines.storage.tables import TARGET_WEIGHTS
from tests.execution.plans import a_plan
from tests.markets import synthetic_panel
from tests.portfolio.pipeline.situations import ALLOCATORS, LIMITS, SELECTORS, TIMINGS, result_of, situation

PANEL = synthetic_panel(160, 4)
WITHIN = np.array([0.25, 0.2, 0.2, 0.15, 0.2])


def test_the_default_pipeline_hands_on_the_very_array_that_is_within_the_limits():
    found = result_of(WeightPipeline(), WITHIN, situation(PANEL))
    run = WeightPipeline().start(PANEL)
    assert run(WITHIN, situation(PANEL)).weights is WITHIN
    assert [stage.name for stage in found.stages] == [
        "policy", "static_universe", "policy_action", "constant", "position_cap", "gross_exposure"
    ]  # fmt: skip
    assert not found.truncated


def test_every_stage_is_kept_with_its_weights_and_its_reason():
    found = result_of(WeightPipeline(timing=TIMINGS[0]), [0.5, 0.1, 0.1, 0.1, 0.2], situation(PANEL))
    by_name = {stage.name: stage for stage in found.stages}
    np.testing.assert_allclose(by_name["constant"].weights, [0.45, 0.09, 0.09, 0.09, 0.28])
    assert by_name["constant"].reason == "90% of the weights"
    np.testing.assert_allclose(by_name["position_cap"].weights, [0.25, 0.09, 0.09, 0.09, 0.48])
    assert by_name["gross_exposure"].weights is by_name["position_cap"].weights is found.weights
    assert found.truncated


def test_a_pipeline_is_a_document_with_a_hash():
    pipeline = WeightPipeline(selector=SELECTORS[1], allocator=ALLOCATORS[3], timing=TIMINGS[2], limits=tuple(LIMITS))
    again = WeightPipeline.model_validate_json(canonical_json(pipeline))
    assert again == pipeline
    assert content_hash(again) == content_hash(pipeline) != content_hash(WeightPipeline())


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((PositionCap(),), "must name position_cap and gross_exposure"),
        ((PositionCap(), GrossExposure(), PositionCap()), "each kind once"),
        ((PositionCap(), TurnoverLimit(), GrossExposure()), "turnover_limit must be the first of the limits"),
    ],
)
def test_limits_that_would_not_all_hold_are_refused(limits, message):
    with pytest.raises(ValidationError, match=message):
        WeightPipeline(limits=limits)


def test_a_net_limit_below_the_gross_one_needs_its_stage():
    tight = RiskLimits(max_net=0.8)
    with pytest.raises(
        ValidationError, match=r"must name net_exposure, since risk_limits\.max_net is 0\.8, below the 1"
    ):
        WeightPipeline(risk_limits=tight)
    pipeline = WeightPipeline(limits=(PositionCap(), GrossExposure(), NetExposure()), risk_limits=tight)
    found = result_of(pipeline, [0.25, 0.25, 0.25, 0.25, 0.0], situation(PANEL))
    assert found.weights[-1] == pytest.approx(0.2)


def test_a_least_exposure_is_refused_as_no_stage_raises_one():
    with pytest.raises(ValidationError, match=r"risk_limits\.min_net must be 0 but is 0\.5: no stage raises"):
        WeightPipeline(risk_limits=RiskLimits(min_net=0.5))


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (
            [0.2, np.nan, 0.2, 0.2, 0.2],
            "policy's proposed weights at the close of .* must be finite, but of BBB they are not",
        ),
        ([0.2, 0.2, 0.2, 0.2, np.inf], "but of cash they are not"),
        ([0.5, -0.1, 0.2, 0.2, 0.2], "must be long-only and sum to 1, .* its least weight is -0.1"),
        ([0.2, 0.2, 0.2, 0.2, 0.1], "its sum 0.9"),
        ([0.2, 0.2, 0.2, 0.2, 0.2 + 8e-7], "its sum 1.0000008; normalise what the policy returns"),
        ([0.5, 0.5], r"a weight for each of 4 names and cash, but has shape \(2,\)"),
    ],
)
def test_a_proposal_that_is_no_portfolio_is_refused(proposal, message):
    with pytest.raises(ValueError, match=message):
        result_of(WeightPipeline(), proposal, situation(PANEL))


@given(off=st.floats(-2e-9, 2e-9))
def test_what_is_taken_for_a_portfolio_is_one_for_the_evenings_check_too(off):
    proposal = [0.2, 0.2, 0.2, 0.2, 0.2 + off]
    try:
        stages = result_of(WeightPipeline(), proposal, situation(PANEL)).stages
    except ValueError:
        assert abs(off) > 1e-9 - 1e-15
        return
    kept = tuple(Stage(name=each.name, weights=tuple(each.weights.tolist())) for each in stages)
    plan = a_plan(symbols=(*PANEL.symbols, "cash"), held=tuple(WITHIN), stages=kept)
    assert invalid_stage_sums(weight_frame(TARGET_WEIGHTS, [plan])).is_empty()


@pytest.mark.parametrize(
    ("account", "message"),
    [
        ({"held": [np.nan, 0.0, 0.0, 0.0, 1.0]}, "the held weights .* must be finite, but of AAA they are not"),
        ({"held": [1.2, 0.0, 0.0, 0.0, -0.2]}, r"long-only and its weights sum to 1, .* its least weight is -0\.2"),
        ({"held": [0.2, 0.2, 0.2, 0.2, 0.1]}, r"its weights sum to 1, .* and its sum 0\.9;"),
        ({"drawdown": np.nan}, "drawdown and recent returns must be finite"),
        ({"recent_returns": np.full(63, np.nan)}, "drawdown and recent returns must be finite"),
    ],
)
def test_an_account_that_lost_its_way_is_refused(account, message):
    with pytest.raises(ValueError, match=message):
        result_of(WeightPipeline(), WITHIN, situation(PANEL, **account))


@pytest.mark.parametrize(
    "stage",
    [*({"allocator": allocator} for allocator in ALLOCATORS[2:]), {"timing": TIMINGS[1]}],
    ids=lambda stage: next(iter(stage.values())).kind,
)
def test_a_return_that_is_not_a_number_is_refused_with_its_symbol(stage):
    panel = synthetic_panel(160, 4)
    panel.close_returns[90, 1] = np.nan
    with pytest.raises(
        ValueError, match=f"returns up to {panel.sessions[100]} must be finite, but of BBB they are not"
    ):
        result_of(WeightPipeline(**stage), WITHIN, situation(panel))


@pytest.mark.parametrize("selector", SELECTORS[1:], ids=lambda selector: selector.kind)
def test_a_feature_that_is_not_a_number_is_refused_with_its_symbol(selector):
    panel = synthetic_panel(160, 4)
    panel.features[100, 2] = np.nan
    with pytest.raises(ValueError, match=f" of {panel.sessions[100]} must be finite, but of CCC they are not"):
        result_of(WeightPipeline(selector=selector), WITHIN, situation(panel))
