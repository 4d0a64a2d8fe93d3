"""Guards of gymrl as published: on drawdown, negative return and turnover, with a loss shutdown."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.loss_shutdown import LossShutdown, Probe
from nvtrader_pipelines.portfolio.pipeline.regime_guard import MAX_WINDOW
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import (
    FloatArray,
    Guard,
    Guards,
    Situation,
    UnfittedTiming,
    one_way_turnover,
    scale_exposure,
)


class GymrlGuard(UnfittedTiming):
    """Loss shutdown and the three guards of gymrl, with set thresholds; a guard fires at its threshold or beyond.

    The shutdown cuts first. A drawdown then scales the weights by `leverage_scale`. A compounded return over the last
    `window` sessions at or below `min_trailing_return` replaces the turnover penalty of the reward in training through
    the pipeline; it changes no weight, so of a trained policy it is only recorded. A turnover at or above
    `max_turnover`, after the shutdown and before the scaling, cuts the names in their shutdown to `probe`. No guard
    raises a weight.

    `regime_guard` is our own version: its thresholds may be fitted in training, a low return lowers exposure, and a
    high turnover slows trading.

    Source: the RegimeGuard of lee101/stock-prediction (gymrl). The defaults are those of its plan. It counts a step as
    a session, and an account's first return, even of 0, as one; here a return must differ from 0.
    """

    kind: Literal["gymrl_guard"] = "gymrl_guard"
    has_guards: ClassVar[bool] = True
    max_drawdown: Share = 0.18  # loss from the account's peak
    leverage_scale: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5  # share of the weights in a drawdown
    min_trailing_return: Annotated[float, Field(gt=-1.0)] = 0.0  # compounded
    window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = 42  # sessions of the trailing return
    turnover_penalty: NonNegativeFloat = 0.0075  # reward per unit of turnover after a low return
    max_turnover: PositiveFloat = 0.5  # sum of absolute changes of weight, cash included: twice the one-way turnover
    probe: Probe = 0.0015  # of names in their shutdown when the turnover is high
    shutdown: LossShutdown | None = LossShutdown()  # null: none, and no guard on turnover

    def require_experiment(self, spec: Any, field: str) -> None:  # noqa: ARG002 - one signature for all components
        """Require a penalty that its guard on negative returns can replace, in training through the pipeline.

        Raises:
            ValueError: if the experiment has none.
        """
        terms = [term.kind for term in spec.environment.rewards]
        if spec.environment.pipeline and "turnover_penalty" not in terms:
            raise ValueError(
                "environment.rewards: training through the gymrl_guard needs a turnover_penalty, which its guard on "
                f"negative returns replaces, but has {terms}; add it"
            )

    def start(self, panel: MarketPanel) -> Guard:
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str, Guards]:
            reasons, probe, is_high = list[str](), None, False
            names = np.zeros(len(panel.symbols), dtype=np.bool_)
            timed = weights
            if self.shutdown is not None:
                timed, names = self.shutdown.cut(timed, situation, self.shutdown.probe)
                is_high = 2.0 * one_way_turnover(situation.held, timed) >= self.max_turnover
                probe = min(self.probe, self.shutdown.probe) if is_high else self.shutdown.probe
            in_drawdown, is_penalized = situation.drawdown >= self.max_drawdown, self._is_penalized(situation)
            scale = self.leverage_scale if in_drawdown else 1.0
            if scale < 1.0:
                timed = scale_exposure(timed, scale)
                cause = f"drawdown of {situation.drawdown:.1%}, at least {self.max_drawdown:.1%}"
                reasons.append(f"{cause}: {scale:.0%} of the weights")
            if self.shutdown is not None and probe is not None:
                timed, more = self.shutdown.cut(timed, situation, probe)
                names |= more
                reasons.append(self.shutdown.reason(panel, names, probe))
            penalty = self.turnover_penalty if is_penalized else None
            guards = Guards(in_drawdown, is_penalized, is_high, scale, penalty, int(names.sum()), probe)
            return timed, "; ".join(filter(None, reasons)), guards

        return adjust

    def _is_penalized(self, situation: Situation) -> bool:
        """Whether the trailing return is at or below its threshold; False until the account has a return."""
        recent = situation.recent_returns
        return bool(recent.any()) and float(np.prod(1.0 + recent[-self.window :])) - 1.0 <= self.min_trailing_return
