"""Weight pipeline, shared by back-test, replay, paper and live trading."""

from collections.abc import Callable
from typing import Self

import numpy as np
from pydantic import model_validator

from nvtrader_pipelines.components.arrays import order_by_names
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline.allocators import Allocator, PolicyAction
from nvtrader_pipelines.portfolio.pipeline.cufolio_allocator import CufolioAllocator
from nvtrader_pipelines.portfolio.pipeline.limits import (
    GrossExposure,
    Limit,
    PartialAdjustment,
    PositionCap,
    TurnoverLimit,
    restriction,
)
from nvtrader_pipelines.portfolio.pipeline.risk_limits import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.selectors import Selector, StaticUniverse
from nvtrader_pipelines.portfolio.pipeline.stage import (
    ROUNDING,
    FloatArray,
    PipelineResult,
    Selection,
    Situation,
    StageWeights,
    drop_rounding,
    format_names,
    gross_exposure,
    require_finite,
    restrict_to,
)
from nvtrader_pipelines.portfolio.pipeline.timings import ConstantTiming, Timing

Run = Callable[[FloatArray, Situation], PipelineResult]
RESTRICTED = "restricted"  # name of the stage if risk limits restrict names


class WeightPipeline(Component):
    """Stages between a policy's proposal and the target weights; every stage is pure."""

    selector: Selector = StaticUniverse()
    allocator: Allocator = PolicyAction()
    timing: Timing = ConstantTiming()
    limits: tuple[Limit, ...] = (PositionCap(), GrossExposure())  # in order
    risk_limits: RiskLimits = RiskLimits()

    @model_validator(mode="after")
    def _require_consistent_limits(self) -> Self:
        kinds = [limit.kind for limit in self.limits]
        if len(set(kinds)) != len(kinds) or not {"position_cap", "gross_exposure"} <= set(kinds):
            raise ValueError(
                f"limits must name position_cap and gross_exposure, and each kind once, but they are {kinds}"
            )
        partial = [limit.kind for limit in self.limits if isinstance(limit, TurnoverLimit | PartialAdjustment)]
        if kinds[: len(partial)] != partial:
            raise ValueError(
                f"limits must begin with {' and '.join(partial)}, since trading part of the way from held weights may "
                f"breach the others, but they are {kinds}; change the order"
            )
        if self.risk_limits.max_net < self.risk_limits.max_gross and "net_exposure" not in kinds:
            raise ValueError(
                f"limits must name net_exposure, since risk_limits.max_net is {self.risk_limits.max_net}, below the "
                f"{self.risk_limits.max_gross} of risk_limits.max_gross, but they are {kinds}; add it"
            )
        limits = self.risk_limits
        if limits.max_short > 0.0 and limits.min_net > -limits.max_gross and kinds[-1] != "net_exposure":
            raise ValueError(
                f"limits must end with net_exposure, since risk_limits.max_short is {limits.max_short} and min_net is "
                f"{limits.min_net}, which short positions may break, but they are {kinds}; add it last"
            )
        if self.risk_limits.min_net > 0.0:
            raise ValueError(
                f"risk_limits.min_net must be 0 but is {self.risk_limits.min_net}: no stage raises exposure; use 0"
            )
        return self

    @model_validator(mode="after")
    def _require_tighter_limits(self) -> Self:
        for limit in self.limits:
            if limit.risk_limit is None:
                continue
            own, most = getattr(limit, limit.risk_limit), getattr(self.risk_limits, limit.risk_limit)
            if own is not None and own > most:
                raise ValueError(
                    f"limits.{limit.kind}.{limit.risk_limit} is {own}, looser than the {most} of "
                    f"risk_limits.{limit.risk_limit}, above which compliance stops a plan; "
                    "lower the first or raise the second"
                )
        return self

    @model_validator(mode="after")
    def _require_suitable_cufolio(self) -> Self:
        if not isinstance(self.allocator, CufolioAllocator):
            return self
        self.allocator.require_cap_within("pipeline.allocator", self.risk_limits.max_position)
        if self.allocator.has_free_cash and self.timing != ConstantTiming():
            raise ValueError(
                f"a cufolio allocator with cash from cash_floor {self.allocator.cash_floor:g} to cash_ceiling "
                f"{self.allocator.cash_ceiling:g} needs the constant timing at exposure 1, but timing is "
                f"{self.timing.kind}, which would scale what is held again at every decision; leave cash_ceiling out"
            )
        return self

    @property
    def lookback(self) -> int:
        """Sessions of the panel that a decision depends on beside its features, including its own."""
        return max(getattr(stage, "lookback", 1) for stage in (self.selector, self.allocator, self.timing))

    @property
    def limit_names(self) -> tuple[str, ...]:
        """Names of the stages that are limits."""
        return (*(limit.kind for limit in self.limits), RESTRICTED)

    @property
    def max_gross(self) -> float:
        """Highest gross of the target weights."""
        (limit,) = (limit for limit in self.limits if isinstance(limit, GrossExposure))
        return self.risk_limits.max_gross if limit.max_gross is None else limit.max_gross

    def start(self, panel: MarketPanel) -> Run:
        """Return the pipeline for one panel, from a proposal (N+1,) to target weights.

        The pipeline raises a ValueError if a proposal or a stage's weights are not finite.

        Raises:
            ValueError: if the panel lacks a feature or sector that a stage needs.
        """
        select, allocate = self.selector.start(panel), self.allocator.start(panel)
        time, is_timed = self.timing.start(panel), self.timing != ConstantTiming()
        limits = [(limit.kind, limit.mark_truncated, limit.start(panel, self.risk_limits)) for limit in self.limits]
        if self.risk_limits.restricted:
            last = len(limits) - (self.risk_limits.max_short > 0.0 and limits[-1][0] == "net_exposure")
            limits.insert(last, (RESTRICTED, True, restriction(panel, self.risk_limits.restricted)))

        most = max(1.0, self.risk_limits.max_gross)

        def run(proposal: FloatArray, situation: Situation) -> PipelineResult:
            proposal = order_by_names(proposal, (*panel.symbols, CASH), "a proposal")
            proposal = _require_portfolio(proposal, situation, self.risk_limits)
            _require_account(situation, self.risk_limits)
            names, cause = select(situation)
            selected = restrict_to(proposal, names)
            dropped = (proposal[:-1] != 0.0) & ~names
            reason = f"{format_names(panel.symbols, dropped)} {cause}" if dropped.any() else ""
            stages = [StageWeights("policy", proposal), StageWeights(self.selector.kind, selected, reason)]
            selection = Selection(selected, names, min(most, gross_exposure(proposal)), is_timed)
            stages.append(_apply(stages[-1], self.allocator.kind, allocate(selection, situation), situation))
            weights, reason, *guards = time(stages[-1].weights, situation)
            stages.append(_apply(stages[-1], self.timing.kind, (weights, reason), situation))
            truncated = False
            for name, mark_truncated, adjust in limits:
                stages.append(_apply(stages[-1], name, adjust(stages[-1].weights, situation), situation))
                truncated |= mark_truncated and bool(stages[-1].reason)
            return PipelineResult(tuple(stages), truncated, guards[0] if guards else None)

        return run


def _apply(before: StageWeights, name: str, found: tuple[FloatArray, str], situation: Situation) -> StageWeights:
    """Return the stage's weights; the array before and no reason if names are unchanged."""
    weights, reason = found
    if np.array_equal(weights[:-1], before.weights[:-1]):  # cash follows from the names, up to rounding
        return StageWeights(name, before.weights)
    _require_finite_weights(weights, f"weights after {name}", situation)
    return StageWeights(name, weights, reason)


def _require_portfolio(proposal: FloatArray, situation: Situation, limits: RiskLimits) -> FloatArray:
    """Return the proposal, of a long-only account without negative weights by rounding; raise if it is refused."""
    n_symbols = len(situation.panel.symbols)
    if proposal.shape != (n_symbols + 1,):
        raise ValueError(f"a proposal needs shape ({n_symbols + 1},), names and cash, but has {proposal.shape}")
    _require_finite_weights(proposal, "a policy's proposed weights", situation)
    if not _is_allowed(proposal, limits, is_held=False):
        raise ValueError(
            f"a proposal must be {_allowed(limits)} and sum to 1, but at the close of {_session(situation)} its lowest "
            f"name is {proposal[:-1].min():g}, its cash {proposal[-1]:g} and its sum {proposal.sum():.9g}; normalize "
            "the policy's weights, or allow more in risk_limits.max_short and max_gross"
        )
    rounded = proposal if limits.max_short > 0.0 else drop_rounding(proposal)
    return proposal if np.array_equal(rounded, proposal) else rounded / rounded.sum()


def _require_account(situation: Situation, limits: RiskLimits) -> None:
    held = situation.held
    _require_finite_weights(held, "the held weights", situation)
    if not _is_allowed(held, limits, is_held=True):
        raise ValueError(
            f"held weights must be {_allowed(limits)} and sum to 1, but at the close of {_session(situation)} their "
            f"lowest name is {held[:-1].min():g}, their cash {held[-1]:g} and their sum {held.sum():.9g}; check the "
            "account, or allow more in risk_limits.max_short and max_gross"
        )
    if not (np.isfinite(situation.drawdown) and np.isfinite(situation.recent_returns).all()):
        raise ValueError(
            f"drawdown and recent returns must be finite, but are not at the close of {_session(situation)}; "
            "check the account's equity"
        )


def _is_allowed(weights: FloatArray, limits: RiskLimits, *, is_held: bool) -> bool:
    """Whether weights (N+1,) sum to 1, without short positions or debt where the limits allow none."""
    may_short, may_borrow = limits.max_short > 0.0, limits.max_gross > 1.0
    may_borrow |= may_short and is_held  # fees and lacking prices leave a debt
    lowest = (np.inf if may_short else weights[:-1].min(initial=0.0), np.inf if may_borrow else weights[-1])
    return min(lowest) >= -ROUNDING and abs(weights.sum() - 1.0) <= ROUNDING


def _allowed(limits: RiskLimits) -> str:
    short = "long or short" if limits.max_short > 0.0 else "long-only"
    return f"{short}, {'with' if limits.max_gross > 1.0 else 'without'} debt"


def _require_finite_weights(weights: FloatArray, name: str, situation: Situation) -> None:
    require_finite(weights, (*situation.panel.symbols, CASH), f"{name} at the close of {_session(situation)}")


def _session(situation: Situation) -> str:
    return str(situation.panel.sessions[situation.t])
