"""Contract of the weight pipeline's stages, alone and in any combination."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.components.component import kind_of
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from nvtrader_pipelines.portfolio.pipeline.stage import one_way_turnover
from nvtrader_pipelines.testing.stage_checks import check_decision
from tests.contracts.families import FAMILIES, members, simplex
from tests.panels import cut, eventful_panel, with_other_future
from tests.portfolio.pipeline.situations import (
    ALLOCATORS,
    LIMITS,
    SECTORS,
    SELECTORS,
    TIMINGS,
    cash,
    result_of,
    situation,
)

PANEL = eventful_panel()
N_SYMBOLS = len(PANEL.symbols)
OPTIONAL = [limit for limit in LIMITS if limit.kind not in {"position_cap", "gross_exposure"}]
STEPS = [limit for limit in LIMITS if limit.kind in {"turnover_limit", "partial_adjustment"}]  # later limits may exceed
HARD = [limit for limit in LIMITS if limit not in STEPS]
WIDE = WeightPipeline(limits=(PositionCap(), GrossExposure()), risk_limits=RiskLimits(max_position=1.0))


def alone(**stage):
    """Build a pipeline of one stage, with other stages that change nothing."""
    return WIDE.model_copy(update=stage)


ALONE = [
    *(alone(selector=selector) for selector in SELECTORS),
    *(alone(allocator=allocator) for allocator in ALLOCATORS),
    *(alone(timing=timing) for timing in TIMINGS),
    *(alone(limits=(limit, *WIDE.limits)) for limit in OPTIONAL),
    alone(limits=(LIMITS[2], GrossExposure())),
    alone(limits=(PositionCap(), LIMITS[4])),
]
IDS = [f"{p.selector.kind}-{p.allocator.kind}-{p.timing.kind}-{p.limits[0].kind}" for p in ALONE]


@st.composite
def pipelines(draw):
    """Combine any stages; steps from the held weights first, the other limits in any order."""
    further = draw(st.lists(st.sampled_from(OPTIONAL), unique_by=lambda limit: limit.kind))
    limits = draw(st.permutations([*further, *(limit for limit in LIMITS if limit not in OPTIONAL)]))
    return WeightPipeline(
        selector=draw(st.sampled_from(SELECTORS)),
        allocator=draw(st.sampled_from(ALLOCATORS)),
        timing=draw(st.sampled_from(TIMINGS)),
        limits=tuple(sorted(limits, key=lambda limit: limit not in STEPS)),
    )


def any_situation(seed, t):
    """Draw a proposal and an account, both of which may hold ineligible names."""
    generator = np.random.default_rng(seed)
    proposal, held = simplex(generator, 2, N_SYMBOLS)
    opened = generator.random() < 0.2
    return proposal, situation(
        PANEL,
        t,
        held=cash(N_SYMBOLS) if opened else held,
        drawdown=generator.uniform(0.0, 0.15),
        recent_returns=generator.normal(0.0, 0.01, 63),
        since_loss=generator.choice([0, 1, 5, NEVER], N_SYMBOLS),
    )


def breach(weights, limit):
    """Excess over the limit; a breach if positive."""
    names = weights[:-1]
    if limit.kind == "position_cap":
        return names.max() - limit.max_position
    if limit.kind == "sector_cap":
        own = np.array([SECTORS[symbol] for symbol in PANEL.symbols])
        return max(names[own == sector].sum() for sector in own) - limit.max_sector
    return names.sum() - getattr(limit, limit.risk_limit)


def check(pipeline, proposal, at):
    """Run one decision and assert the contract."""
    found = check_decision(pipeline, proposal, at)
    assert all(breach(found.weights, limit) <= 1e-12 for limit in pipeline.limits if limit in HARD)
    limited = zip(pipeline.limits, found.stages[4:], strict=True)
    assert found.truncated == any(limit.mark_truncated and bool(stage.reason) for limit, stage in limited)
    return found


def bits(result):
    return [(stage.name, stage.weights.tobytes(), stage.reason) for stage in result.stages]


@pytest.mark.parametrize("family", ["selector", "allocator", "timing", "limit"])
def test_every_pipeline_stage_is_tested(family):
    tried = {"selector": SELECTORS, "allocator": ALLOCATORS, "timing": TIMINGS, "limit": LIMITS}[family]
    assert [member.kind for member in tried] == [kind_of(member) for member in members(FAMILIES[family])]


@pytest.mark.parametrize("pipeline", ALONE, ids=IDS)
@pytest.mark.parametrize("t", [0, 31, 64, 140])
def test_stage_alone_returns_a_portfolio_and_explains_changes(pipeline, t):
    check(pipeline, *any_situation(t, t))


@pytest.mark.parametrize("pipeline", ALONE, ids=IDS)
def test_stage_alone_changes_some_decision(pipeline):
    changed = {s.name for t in range(60, 160, 10) for s in check(pipeline, *any_situation(t, t)).stages if s.reason}
    assert changed - {"static_universe"} or pipeline == WIDE


@pytest.mark.slow
@settings(max_examples=40)
@given(pipeline=pipelines(), seed=st.integers(0, 2**32 - 1), t=st.integers(0, 159))
def test_stages_together_keep_every_limit(pipeline, seed, t):
    check(pipeline, *any_situation(seed, t))


@pytest.mark.parametrize("pipeline", ALONE, ids=IDS)
@pytest.mark.parametrize("t", [31, 64, 140])
def test_decision_is_reproducible_and_does_not_look_ahead(pipeline, t):
    proposal, at = any_situation(t, t)
    inputs = proposal.tobytes(), at.held.tobytes(), at.recent_returns.tobytes()
    known = bits(result_of(pipeline, proposal, at))
    run = pipeline.start(PANEL)
    run(*any_situation(7, 120))  # earlier decisions do not matter
    assert bits(run(proposal, at)) == known
    assert bits(run(proposal, at)) == known
    assert (proposal.tobytes(), at.held.tobytes(), at.recent_returns.tobytes()) == inputs
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        elsewhere = replace(at, panel=other)
        assert bits(result_of(pipeline, proposal, elsewhere)) == known


@pytest.mark.parametrize("pipeline", ALONE, ids=IDS)
def test_weights_without_eligible_names_are_cash(pipeline):
    ineligible = situation(replace(PANEL, eligible=np.zeros_like(PANEL.eligible)))
    found = result_of(pipeline, np.full(N_SYMBOLS + 1, 1.0 / (N_SYMBOLS + 1)), ineligible)
    np.testing.assert_array_equal(found.weights, cash(N_SYMBOLS))


@pytest.mark.parametrize("pipeline", ALONE, ids=IDS)
def test_a_proposal_of_cash_stays_cash(pipeline):
    found = result_of(pipeline, cash(N_SYMBOLS), situation(PANEL))
    np.testing.assert_array_equal(found.weights, cash(N_SYMBOLS))
    assert not any(stage.reason for stage in found.stages)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_turnover_limit_holds_unless_a_later_limit_cuts(seed):
    proposal, at = any_situation(seed, 100)
    only_eligible = np.append(at.held[:-1] * PANEL.eligible[100], 0.0)
    only_eligible[-1] = 1.0 - only_eligible.sum()
    at = situation(PANEL, 100, held=only_eligible)
    found = result_of(alone(limits=(LIMITS[0], *WIDE.limits)), proposal, at)
    assert one_way_turnover(at.held, found.weights) <= WIDE.risk_limits.max_turnover + 1e-12
