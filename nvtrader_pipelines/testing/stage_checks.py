"""Checks of the weight pipeline's stages: portfolios, reasons, and no look-ahead."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nvtrader_pipelines.market.look_ahead import cut_after, with_other_future
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.losses import NEVER
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, Situation, Thresholds, WeightPipeline
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, PositionCap
from nvtrader_pipelines.testing.synthetic_panels import eventful_panel, simplex

SESSIONS = (0, 31, 64, 140)
FITTED = Thresholds(turbulence=5.0, drawdown=0.05, trailing_return=-0.02, turnover=0.3)
WIDE = WeightPipeline(limits=(PositionCap(), GrossExposure()), risk_limits=RiskLimits(max_position=1.0))


def check_decision(pipeline: WeightPipeline, proposal: Any, at: Situation) -> Any:
    """Run one decision; require a portfolio after each stage, and a reason for each change."""
    decided = pipeline.start(at.panel)(np.array(proposal), at)
    expected = ["policy", pipeline.selector.kind, pipeline.allocator.kind, pipeline.timing.kind]
    assert [stage.name for stage in decided.stages] == [*expected, *(limit.kind for limit in pipeline.limits)]
    for before, after in zip(decided.stages, decided.stages[1:], strict=False):
        assert (after.weights >= 0.0).all(), f"weights after {after.name} must not be negative"
        assert abs(after.weights.sum() - 1.0) <= 1e-12, f"weights after {after.name} must sum to 1"
        assert not after.weights[:-1][~at.panel.eligible[at.t]].any(), "ineligible names must have no weight"
        assert (after.weights is before.weights) == np.array_equal(after.weights, before.weights)
        assert bool(after.reason) == (after.weights is not before.weights), f"{after.name} must give a reason"
    _, selected, allocated, timed = (stage.weights for stage in decided.stages[:4])
    names = pipeline.selector.start(at.panel)(at)[0]
    assert not selected[:-1][~names].any()
    assert not allocated[:-1][~names].any(), "an allocator must give weight to selected names only"
    assert timed[:-1].sum() <= allocated[:-1].sum() + 1e-12, "a timing must not raise exposure"
    return decided


def _situation(panel: MarketPanel, t: int) -> tuple[Any, Situation]:
    """Draw a proposal and an account, both of which may hold ineligible names."""
    generator = np.random.default_rng(t)
    proposal, held = simplex(generator, 2, len(panel.symbols))
    recent = generator.normal(0.0, 0.01, 63)
    drawdown, since_loss = generator.uniform(0.0, 0.15), generator.choice([0, 1, 5, NEVER], len(panel.symbols))
    return proposal, Situation(panel, t, held, drawdown, recent, FITTED, rebal_freq=5, since_loss=since_loss)


def _alone(field: str, stage: Any) -> WeightPipeline:
    """Return a pipeline of one stage, with other stages that change nothing."""
    return WIDE.model_copy(update={field: (stage, *WIDE.limits) if field == "limits" else stage})


def _checks_of(field: str) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
    """Checks of the stages of one field of the pipeline."""

    def check_stage_returns_portfolios(stage: Any) -> None:
        """Require portfolios after each stage, and a reason for each change."""
        panel = eventful_panel()
        for t in SESSIONS:
            check_decision(_alone(field, stage), *_situation(panel, t))

    def check_stage_does_not_look_ahead(stage: Any) -> None:
        """Require bit-equal decisions when the future is removed or replaced."""
        panel, pipeline = eventful_panel(), _alone(field, stage)
        run = pipeline.start(panel)
        run(*_situation(panel, 120))  # earlier decisions do not matter
        for t in SESSIONS[1:]:
            proposal, at = _situation(panel, t)
            known = run(proposal, at).weights.tobytes()
            for other in (panel, with_other_future(panel, t), cut_after(panel, t)):
                found = pipeline.start(other)(*_situation(other, t)).weights.tobytes()
                assert found == known, f"the decision at {t} must not depend on later sessions or on other calls"

    return check_stage_returns_portfolios, check_stage_does_not_look_ahead


SELECTORS, ALLOCATORS, TIMINGS, LIMITS = map(_checks_of, ("selector", "allocator", "timing", "limits"))
