import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import (
    GrossExposure,
    NetExposure,
    PartialAdjustment,
    PositionCap,
    SectorCap,
    TurnoverLimit,
)
from nvtrader_pipelines.portfolio.pipeline.stage import one_way_turnover
from tests.contracts.families import simplex
from tests.evaluation.golden import golden
from tests.execution.plans import a_plan
from tests.markets import synthetic_panel
from tests.panels import INELIGIBLE, eventful_panel
from tests.portfolio.pipeline.situations import SECTORS, cash, result_of, situation, stage

PANEL = synthetic_panel(160, 4)
WIDE = RiskLimits(max_position=1.0, max_sector=1.0)
PROPOSAL = np.array([0.4, 0.3, 0.2, 0.0, 0.1])


def apply_limit(limit, proposal=PROPOSAL, panel=PANEL, held=None, risk_limits=WIDE):
    """Return the stage of one limit, with the limits that every pipeline has."""
    kinds = {each.kind: each for each in (limit, PositionCap(), GrossExposure())}
    first = {limit.kind: limit, **kinds} if limit.kind not in {"position_cap", "gross_exposure"} else kinds
    pipeline = WeightPipeline(limits=tuple({**first, limit.kind: limit}.values()), risk_limits=risk_limits)
    return stage(pipeline, limit.kind, proposal, situation(panel, held=held))


@pytest.mark.parametrize(
    ("limit", "expected", "reason"),
    [
        (PositionCap(max_position=0.25), [0.25, 0.25, 0.2, 0.0, 0.3], "AAA, BBB cut to 25.0%"),
        (GrossExposure(max_gross=0.6), [0.8 / 3, 0.2, 0.4 / 3, 0.0, 0.4], "gross of 90.0% cut to 60.0%"),
        (NetExposure(max_net=0.45), [0.2, 0.15, 0.1, 0.0, 0.55], "net of 90.0% cut to 45.0%"),
        (SectorCap(sectors=SECTORS, max_sector=0.35), [0.2, 0.15, 0.2, 0.0, 0.45], "tech of 70.0% cut to 35.0%"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_limit_cuts_to_cash_with_a_reason(limit, expected, reason):
    found = apply_limit(limit)
    np.testing.assert_allclose(found.weights, expected)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("limit", "field"),
    [
        (PositionCap(), "max_position"),
        (GrossExposure(), "max_gross"),
        (NetExposure(), "max_net"),
        (SectorCap(sectors=SECTORS), "max_sector"),
        (TurnoverLimit(), "max_turnover"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_limit_without_value_uses_the_risk_limits(limit, field):
    tight = {"max_gross": 0.3, "max_net": 0.3} if field == "max_gross" else {field: 0.3}
    kinds = () if field != "max_net" else (limit,)
    pipeline = WeightPipeline(
        limits=tuple(
            {each.kind: each for each in (limit, *kinds, PositionCap(), GrossExposure(), NetExposure())}.values()
        ),
        risk_limits=WIDE.model_copy(update=tight),
    )
    found = stage(pipeline, limit.kind, PROPOSAL, situation(PANEL))
    assert found.reason.endswith("30.0%")


def test_weights_at_the_limit_are_unchanged():
    for limit in (PositionCap(max_position=0.4), GrossExposure(max_gross=0.9), NetExposure(max_net=0.9)):
        assert apply_limit(limit).reason == ""
    assert apply_limit(SectorCap(sectors=SECTORS, max_sector=0.7)).reason == ""
    assert apply_limit(TurnoverLimit(max_turnover=0.9), risk_limits=RiskLimits(max_turnover=0.9)).reason == ""


@given(seed=st.integers(0, 2**32 - 1), largest=st.floats(0.01, 1.0))
def test_turnover_limit_moves_as_far_as_allowed_to_the_target(seed, largest):
    held, target = simplex(np.random.default_rng(seed), 2, 4)
    risk_limits = WIDE.model_copy(update={"max_turnover": 1.0})
    found = apply_limit(TurnoverLimit(max_turnover=largest), target, held=held, risk_limits=risk_limits).weights
    share = min(1.0, largest / one_way_turnover(held, target))
    np.testing.assert_allclose(found, held + share * (target - held), atol=1e-12)


def test_turnover_limit_sells_ineligible_names_first():
    panel = eventful_panel()
    held, proposal = cash(6), cash(6)
    held[[0, INELIGIBLE, 6]] = 0.5, 0.15, 0.35
    proposal[[1, 6]] = 0.5, 0.5
    found = apply_limit(TurnoverLimit(), proposal, panel, held, RiskLimits(max_position=1.0)).weights
    assert found[INELIGIBLE] == 0.0
    assert one_way_turnover(held, found) <= 0.2 + 1e-12
    np.testing.assert_allclose(found[:2], [0.45, 0.05])
    held[[0, INELIGIBLE]] = 0.15, 0.5
    found = apply_limit(TurnoverLimit(), proposal, panel, held, RiskLimits(max_position=1.0)).weights
    np.testing.assert_allclose(found[[0, 1, 6]], [0.15, 0.0, 0.85])  # selling ineligible names exceeded the limit


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 1.0))
def test_partial_adjustment_moves_the_mix_at_target_exposure(seed, share):
    held, target = simplex(np.random.default_rng(seed), 2, 4)
    found = apply_limit(PartialAdjustment(share=share), target, held=held).weights
    mixes = held[:-1] / (1.0 - held[-1]), target[:-1] / (1.0 - target[-1])
    expected = (1.0 - target[-1]) * ((1.0 - share) * mixes[0] + share * mixes[1])
    np.testing.assert_allclose(found, [*expected, target[-1]], atol=1e-12)


def test_partial_adjustment_sells_ineligible_names_in_full():
    panel = eventful_panel()
    held, proposal = cash(6), cash(6)
    held[[0, INELIGIBLE, 6]] = 0.4, 0.3, 0.3
    proposal[[1, 6]] = 0.8, 0.2
    found = apply_limit(PartialAdjustment(), proposal, panel, held)
    np.testing.assert_allclose(found.weights[[0, 1, INELIGIBLE, 6]], [0.6, 0.2, 0.0, 0.2])
    assert found.reason == "25% of the way from the held mix"


def test_partial_adjustment_leaves_the_market_at_once():
    assert apply_limit(PartialAdjustment(), cash(4), held=[0.5, 0.3, 0.0, 0.0, 0.2]).weights[-1] == 1.0
    found = apply_limit(PartialAdjustment(), PROPOSAL / 2.0 + cash(4) / 2.0, held=PROPOSAL)
    np.testing.assert_allclose(found.weights, PROPOSAL / 2.0 + cash(4) / 2.0)


@pytest.mark.parametrize("name", [-1, INELIGIBLE], ids=["cash", "ineligible"])
def test_partial_adjustment_without_positions_buys_the_whole_target(name):
    proposal = np.array([0.3, 0.2, 0.0, 0.0, 0.0, 0.0, 0.5])
    found = apply_limit(PartialAdjustment(), proposal, eventful_panel(), held=np.eye(7)[name])
    np.testing.assert_array_equal(found.weights, proposal)
    assert found.reason == ""


def test_partial_adjustment_marks_no_cut_and_later_limits_hold():
    held = situation(PANEL, held=[0.9, 0.1, 0.0, 0.0, 0.0])
    wide, capped = (
        result_of(
            WeightPipeline(limits=(PartialAdjustment(), PositionCap(), GrossExposure()), risk_limits=risk_limits),
            PROPOSAL,
            held,
        )
        for risk_limits in (WIDE, RiskLimits())
    )
    assert (wide.truncated, capped.truncated) == (False, True)
    assert capped.weights[:-1].max() == RiskLimits().max_position


@pytest.mark.parametrize("first", [TurnoverLimit(), PartialAdjustment()], ids=lambda limit: limit.kind)
def test_partial_adjustment_stays_within_the_turnover_limit(first):
    steps = (first, *(each for each in (TurnoverLimit(), PartialAdjustment()) if each != first))
    held, proposal = np.array([0.0, 0.0, 0.1, 0.9, 0.0]), np.array([0.9, 0.1, 0.0, 0.0, 0.0])
    pipeline = WeightPipeline(limits=(*steps, PositionCap(), GrossExposure()), risk_limits=WIDE)
    found = result_of(pipeline, proposal, situation(PANEL, held=held)).weights
    expected = 0.2 if first.kind == "partial_adjustment" else 0.05
    assert one_way_turnover(held, found) == pytest.approx(expected)


@pytest.mark.parametrize(
    "limit",
    [
        PositionCap(max_position=0.3),
        GrossExposure(max_gross=0.9),
        NetExposure(max_net=0.9),
        SectorCap(max_sector=0.5),
        TurnoverLimit(max_turnover=0.3),
    ],
    ids=lambda limit: limit.kind,
)
def test_limit_looser_than_the_risk_limits_is_refused(limit):
    others = [each for each in (PositionCap(), GrossExposure(), NetExposure()) if each.kind != limit.kind]
    with pytest.raises(ValueError, match=limit.risk_limit):
        WeightPipeline(limits=(limit, *others), risk_limits=RiskLimits(max_gross=0.8, max_net=0.8))


def test_name_without_sector_is_refused():
    with pytest.raises(ValueError):
        apply_limit(SectorCap(sectors={"AAA": "tech", "BBB": "tech"}))


def test_limit_without_mark_truncated_cuts_unmarked():
    for marks in (True, False):
        cap = PositionCap(max_position=0.2, mark_truncated=marks)
        found = result_of(WeightPipeline(limits=(cap, GrossExposure())), PROPOSAL, situation(PANEL))
        assert found.stages[-2].reason
        assert found.truncated == marks


def restricted_pipeline(*names):
    return WeightPipeline(risk_limits=RiskLimits(max_position=0.5, restricted=names))


def test_restricted_name_is_never_bought():
    held = np.array([0.2, 0.1, 0.0, 0.3, 0.4])
    proposal = np.array([0.3, 0.2, 0.2, 0.2, 0.1])
    found = stage(restricted_pipeline("AAA", "CCC", "DDD"), "restricted", proposal, situation(PANEL, held=held))
    np.testing.assert_array_equal(found.weights[:-1], [0.2, 0.2, 0.0, 0.2])
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert found.reason == "AAA, CCC restricted: held or sold, and not bought"
    assert result_of(restricted_pipeline("AAA"), proposal, situation(PANEL, held=held)).truncated


def test_drifted_restricted_name_causes_no_hard_finding():
    held, proposal = np.array([0.19, 0.21, 0.2, 0.2, 0.2]), np.full(5, 0.2)
    pipeline = restricted_pipeline("AAA")
    found = result_of(pipeline, proposal, situation(PANEL, held=held))
    plan = a_plan(tuple(found.weights.tolist()), held=tuple(held.tolist()), symbols=(*PANEL.symbols, "cash"))
    findings = compliance_findings(plan, pipeline.risk_limits, ComplianceData(), 0.1)
    assert not [finding for finding in findings if finding.level == "hard"]


def test_restriction_without_effect_returns_the_same_array():
    for names in ((), ("AAA",), ("ZZZ",)):
        found = restricted_pipeline(*names).start(PANEL)(PROPOSAL, situation(PANEL, held=PROPOSAL))
        assert found.weights is PROPOSAL
        assert ("restricted" in [each.name for each in found.stages]) == bool(names)


@given(seed=st.integers(0, 2**32 - 1))
def test_restriction_adds_no_turnover_and_breaks_no_limit(seed):
    proposal, held = simplex(np.random.default_rng(seed), 2, 4)
    limits = (TurnoverLimit(), PositionCap(), GrossExposure(max_gross=0.9))
    pipelines = [
        WeightPipeline(limits=limits, risk_limits=RiskLimits(max_position=0.5, restricted=names))
        for names in ((), ("BBB", "DDD"))
    ]
    free, bound = (result_of(pipeline, proposal, situation(PANEL, held=held)).weights for pipeline in pipelines)
    assert (bound[[1, 3]] <= held[[1, 3]]).all()
    assert (bound[:-1] <= free[:-1]).all()
    assert one_way_turnover(held, bound) <= one_way_turnover(held, free) + 1e-12


def test_one_way_turnover_is_half_of_the_two_sided():
    trade = golden("performance_metrics")["turnover"]
    drifted, target = np.array(trade["drifted"]), np.array(trade["w_target"])
    assert one_way_turnover(drifted, target) == pytest.approx(trade["one_sided_half"], rel=1e-14)
    assert 2.0 * one_way_turnover(drifted, target) == pytest.approx(trade["two_sided_vs_drifted"], rel=1e-14)


SHORT = RiskLimits(max_position=1.0, max_short=1.0, max_gross=2.0, max_net=1.0, min_net=-0.2)
NAMES = st.lists(st.floats(-1.5, 1.5), min_size=4, max_size=4).map(np.array)


@given(proposed=NAMES, held=NAMES, restricted=st.booleans())
def test_limits_keep_gross_net_and_short_positions_of_every_proposal(proposed, held, restricted):
    limits = SHORT.model_copy(update={"restricted": (PANEL.symbols[0],) if restricted else ()})
    pipeline = WeightPipeline(limits=(PositionCap(), GrossExposure(), NetExposure()), risk_limits=limits)
    before = situation(PANEL, held=np.append(held, 1.0 - held.sum()))
    names = pipeline.start(PANEL)(np.append(proposed, 1.0 - proposed.sum()), before).weights[:-1]
    assert np.abs(names).sum() <= 2.0 + 1e-9
    assert -0.2 - 1e-9 <= names.sum() <= 1.0 + 1e-9
    assert (np.abs(names) <= np.abs(np.where(PANEL.eligible[before.t], proposed, 0.0)) + 1e-12).all()
    if restricted:
        assert min(0.0, held[0]) - 1e-12 <= names[0] <= max(0.0, held[0]) + 1e-12
