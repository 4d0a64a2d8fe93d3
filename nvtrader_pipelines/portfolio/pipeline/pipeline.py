"""The weight pipeline: select, allocate, time, limit; back-test, replay, paper and live trade all call this one."""

from collections.abc import Callable
from typing import Self

import numpy as np
from pydantic import model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator, PolicyAction
from nvtrader_pipelines.portfolio.pipeline.limits import GrossExposure, Limit, PositionCap, restriction
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector, StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.stage import (
    ROUNDING,
    FloatArray,
    PipelineResult,
    Selection,
    Situation,
    StageWeights,
    check_finite,
    listed,
    only,
)
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming, Timing

Run = Callable[[FloatArray, Situation], PipelineResult]
RESTRICTED = "restricted"  # the stage there is where risk limits restrict names


class WeightPipeline(Component):
    """What becomes of a policy's weights before they are traded; every stage is pure."""

    selector: Selector = StaticUniverse()
    allocator: Allocator = PolicyAction()
    timing: Timing = ConstantTiming()
    limits: tuple[Limit, ...] = (PositionCap(), GrossExposure())  # one after the other
    risk_limits: RiskLimits = RiskLimits()

    @model_validator(mode="after")
    def _limits_all_hold(self) -> Self:
        kinds = [limit.kind for limit in self.limits]
        if len(set(kinds)) != len(kinds) or not {"position_cap", "gross_exposure"} <= set(kinds):
            raise ValueError(
                f"limits must name position_cap and gross_exposure, and each kind once, but they are {kinds}"
            )
        if "turnover_limit" in kinds[1:]:
            raise ValueError(
                "turnover_limit must be the first of the limits, since it goes back towards what is held, which may "
                f"breach the others, but they are {kinds}; put it first"
            )
        if self.risk_limits.max_net < self.risk_limits.max_gross and "net_exposure" not in kinds:
            raise ValueError(
                f"limits must name net_exposure, since risk_limits.max_net is {self.risk_limits.max_net}, below the "
                f"{self.risk_limits.max_gross} of risk_limits.max_gross, but they are {kinds}; add it"
            )
        if self.risk_limits.min_net > 0.0:
            raise ValueError(
                f"risk_limits.min_net must be 0 but is {self.risk_limits.min_net}: no stage raises an exposure, and "
                "what a policy or a timing leaves in cash stays there"
            )
        return self

    @model_validator(mode="after")
    def _limits_are_no_looser(self) -> Self:
        for limit in self.limits:
            own, most = getattr(limit, limit.risk_limit), getattr(self.risk_limits, limit.risk_limit)
            if own is not None and own > most:
                raise ValueError(
                    f"limits.{limit.kind}.{limit.risk_limit} is {own}, looser than the {most} of "
                    f"risk_limits.{limit.risk_limit}, above which compliance stops a plan; "
                    "lower the one or raise the other"
                )
        return self

    @property
    def lookback(self) -> int:
        """Sessions of the panel that a decision is made from beside its features, its own included."""
        return max(getattr(stage, "lookback", 1) for stage in (self.selector, self.allocator, self.timing))

    def start(self, panel: MarketPanel) -> Run:
        """The pipeline on one panel: a proposal (N+1,) and the situation it is made in to target weights.

        What it returns raises a ValueError where a proposal or what a stage makes of it is not finite.

        Raises:
            ValueError: if the market lacks what a stage needs.
        """
        select, allocate = self.selector.start(panel), self.allocator.start(panel)
        time = self.timing.start(panel)
        limits = [(limit.kind, limit.mark_truncated, limit.start(panel, self.risk_limits)) for limit in self.limits]
        if self.risk_limits.restricted:
            limits.append((RESTRICTED, True, restriction(panel, self.risk_limits.restricted)))

        def run(proposal: FloatArray, situation: Situation) -> PipelineResult:
            _check_simplex(proposal, situation)
            _check_account(situation)
            names, why = select(situation)
            kept = only(proposal, names)
            dropped = (proposal[:-1] != 0.0) & ~names
            reason = f"{listed(panel.symbols, dropped)} {why}" if dropped.any() else ""
            stages = [StageWeights("policy", proposal), StageWeights(self.selector.kind, kept, reason)]
            selection = Selection(kept, names, min(1.0, float(proposal[:-1].sum())))
            stages.append(_after(stages[-1], self.allocator.kind, allocate(selection, situation), situation))
            stages.append(_after(stages[-1], self.timing.kind, time(stages[-1].weights, situation), situation))
            truncated = False
            for name, mark_truncated, adjust in limits:
                stages.append(_after(stages[-1], name, adjust(stages[-1].weights, situation), situation))
                truncated |= mark_truncated and bool(stages[-1].reason)
            return PipelineResult(tuple(stages), truncated)

        return run


def _after(before: StageWeights, name: str, found: tuple[FloatArray, str], situation: Situation) -> StageWeights:
    """The weights after a stage; the very array of the stage before, and no reason, where the names' are the same."""
    weights, reason = found
    if np.array_equal(weights[:-1], before.weights[:-1]):  # cash is what they leave, up to rounding
        return StageWeights(name, before.weights)
    _check_weights(weights, f"weights after {name}", situation)
    return StageWeights(name, weights, reason)


def _check_simplex(proposal: FloatArray, situation: Situation) -> None:
    n_symbols = len(situation.panel.symbols)
    if proposal.shape != (n_symbols + 1,):
        raise ValueError(
            f"a proposal is a weight for each of {n_symbols} names and cash, but has shape {proposal.shape}; "
            "use the policy of this market"
        )
    _check_weights(proposal, "a policy's proposed weights", situation)
    if proposal.min() < 0.0 or abs(proposal.sum() - 1.0) > ROUNDING:
        raise ValueError(
            f"a proposal must be long-only and sum to 1, but at the close of {_session(situation)} its least weight is "
            f"{proposal.min():g} and its sum {proposal.sum():.9g}; normalise what the policy returns"
        )


def _check_account(situation: Situation) -> None:
    held = situation.held
    _check_weights(held, "the held weights", situation)
    if held.min() < -ROUNDING or abs(held.sum() - 1.0) > ROUNDING:
        raise ValueError(
            f"an account must be long-only and its weights sum to 1, but at the close of {_session(situation)} its "
            f"least weight is {held.min():g} and its sum {held.sum():.9g}; look at what moved it"
        )
    if not (np.isfinite(situation.drawdown) and np.isfinite(situation.recent_returns).all()):
        raise ValueError(
            f"an account's drawdown and recent returns must be finite, but at the close of {_session(situation)} they "
            "are not; look at its equity"
        )


def _check_weights(weights: FloatArray, what: str, situation: Situation) -> None:
    check_finite(weights, (*situation.panel.symbols, CASH), f"{what} at the close of {_session(situation)}")


def _session(situation: Situation) -> str:
    return str(situation.panel.sessions[situation.t])
