"""Regime guard: lower exposure after losses, smaller steps when turnover is high."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import (
    AccountPath,
    FloatArray,
    Guard,
    Guards,
    Situation,
    Thresholds,
    gross_exposure,
    move_towards,
    one_way_turnover,
    restrict_to,
    scale_exposure,
)

MAX_WINDOW = 63  # sessions of returns that an account stores
RemainingShare = Annotated[float, Field(ge=0.0, le=1.0)]


class RegimeGuard(Component):
    """Three guards that lower exposure or slow trading; a share of 1 switches one off.

    No guard raises the sum of the names. A drawdown above `max_drawdown` scales the weights by `drawdown_share`, and a
    return over the last `window` sessions below `min_trailing_return` by `trailing_return_share`; if both apply, by the
    smaller. If the one-way turnover to the scaled weights is above `max_turnover`, only `turnover_share` of the trade
    is made, unless no name is held; names no longer selected are then sold step by step. A threshold of null is fitted
    to the unadjusted account's path on the training sessions, never on test sessions: the quantile, or for returns one
    minus the quantile and at most 0. Each stretch of the training has its own account, so that no return, drawdown or
    turnover spans a gap.

    Source: the regime guard of lee101/stock-prediction, whose thresholds were quantiles of the test window and whose
    guard on returns changed only the training reward; here all three act on the weights.
    """

    kind: Literal["regime_guard"] = "regime_guard"
    has_guards: ClassVar[bool] = True
    aliases: ClassVar[tuple[str, ...]] = ("RegimeGuard",)
    history: ClassVar[int] = 0  # earlier sessions of the market that fitting needs
    max_drawdown: Share | None = None  # loss from the account's peak; null: fitted
    drawdown_share: RemainingShare = 0.5  # of the weights
    min_trailing_return: Annotated[float, Field(gt=-1.0, le=0.0)] | None = None  # compounded; null: fitted
    trailing_return_share: RemainingShare = 0.5  # of the weights
    window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = 42  # sessions of the trailing return
    max_turnover: Share | None = None  # one-way, per decision; null: fitted
    turnover_share: RemainingShare = 0.5  # of the trade
    quantile: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.9  # of the training path, where thresholds are fitted

    @model_validator(mode="after")
    def _require_positive_share(self) -> Self:
        if self.drawdown_share == 0.0:
            raise ValueError(
                "drawdown_share must be above 0 but is 0: an account in cash never leaves its drawdown, so it would "
                "stay in cash forever; choose a small share"
            )
        return self

    @property
    def needs_fit(self) -> bool:
        """Whether an active guard's threshold must be fitted."""
        return bool(self._thresholds_to_fit())

    @property
    def needs_path(self) -> bool:
        """Whether fitting needs an account's path: every threshold does."""
        return self.needs_fit

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:  # noqa: ARG002
        """Raise if no stretch of the training is long required for a second decision.

        Raises:
            ValueError: with the longest stretch.
        """
        needed = self._thresholds_to_fit()
        required = rebal_freq + 2 if "turnover" in needed else 2  # the first decision is made at the first close
        longest = max((last - first + 1 for first, last in windows), default=0)
        if needed and longest < required:
            raise ValueError(
                f"to fit the regime guard's {', '.join(needed)}, a stretch of the training must have at least "
                f"{required} sessions, but the longest has {longest}; train for longer or set the thresholds"
            )

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """Fit the thresholds that are null to the paths.

        Raises:
            ValueError: if no path has a session, or none a second decision.
        """
        needed = self._thresholds_to_fit()
        if not needed:
            return Thresholds()
        if not _concat(path.net_returns for path in paths).size or (
            "turnover" in needed and not _concat(path.turnover for path in paths).size
        ):
            raise ValueError(
                f"to fit the regime guard's {', '.join(needed)}, an account's path must have two decisions in the "
                "training, but none has; train for longer or set the thresholds"
            )
        samples = {
            "drawdown": (path.drawdown for path in paths),
            "trailing_return": (_trailing_returns(path.net_returns, self.window) for path in paths),
            "turnover": (path.turnover for path in paths),
        }
        levels = {"drawdown": self.quantile, "trailing_return": 1.0 - self.quantile, "turnover": self.quantile}
        thresholds = {name: float(np.quantile(_concat(samples[name]), levels[name])) for name in needed}
        if "trailing_return" in thresholds:
            thresholds["trailing_return"] = min(0.0, thresholds["trailing_return"])
        return Thresholds(**thresholds)

    def start(self, panel: MarketPanel) -> Guard:
        """Return the stage for one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str, Guards]:
            held = restrict_to(situation.held, panel.eligible[situation.t])
            shares = self._remaining_shares(situation)
            share, cause = min(shares.values(), default=(1.0, ""))
            # Scale before the turnover is compared, since the held weights are scaled already.
            target = scale_exposure(weights, share) if share < 1.0 else weights
            stepped, slowed = self._limit_turnover(target, held, situation)
            guards = Guards("drawdown" in shares, "trailing_return" in shares, turnover=bool(slowed), scale=share)
            return stepped, "; ".join(reason for reason in (cause, slowed) if reason), guards

        return adjust

    def _limit_turnover(self, weights: FloatArray, held: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
        """Trade part of the way from the held weights, to no more exposure than the target's."""
        turnover = one_way_turnover(held, weights)
        if self.turnover_share == 1.0 or not held[:-1].any():
            return weights, ""
        most = self._threshold("turnover", situation.thresholds)
        if turnover <= most:
            return weights, ""
        stepped, wanted = move_towards(held, weights, self.turnover_share), gross_exposure(weights)
        gross = gross_exposure(stepped)
        if gross > wanted:
            stepped = scale_exposure(stepped, wanted / gross)
        return stepped, f"turnover of {turnover:.1%}, above {most:.1%}: {self.turnover_share:.0%} of the way"

    def _remaining_shares(self, situation: Situation) -> dict[str, tuple[float, str]]:
        """Share of the weights that each guard leaves, and the reason, by the guards that fired."""
        shares = {}
        if self.drawdown_share < 1.0:
            most = self._threshold("drawdown", situation.thresholds)
            if situation.drawdown > most:
                cause = f"drawdown of {situation.drawdown:.1%}, above {most:.1%}"
                shares["drawdown"] = self.drawdown_share, f"{cause}: {self.drawdown_share:.0%} of the weights"
        if self.trailing_return_share < 1.0:
            least = self._threshold("trailing_return", situation.thresholds)
            earned = float(np.prod(1.0 + situation.recent_returns[-self.window :])) - 1.0
            if earned < least:
                cause, share = f"return of {earned:.1%}, below {least:.1%}", self.trailing_return_share
                shares["trailing_return"] = share, f"{cause}: {share:.0%} of the weights"
        return shares

    def _thresholds_to_fit(self) -> list[str]:
        """Thresholds of active guards that are null."""
        return [name for name, (threshold, share) in self._guards().items() if threshold is None and share < 1.0]

    def _guards(self) -> dict[str, tuple[float | None, float]]:
        return {
            "drawdown": (self.max_drawdown, self.drawdown_share),
            "trailing_return": (self.min_trailing_return, self.trailing_return_share),
            "turnover": (self.max_turnover, self.turnover_share),
        }

    def _threshold(self, name: str, fitted: Thresholds) -> float:
        threshold, found = self._guards()[name][0], getattr(fitted, name)
        if threshold is None and found is None:
            raise ValueError(f"the regime guard's threshold of {name} is neither set nor fitted")
        return found if threshold is None else threshold


def _trailing_returns(net_returns: FloatArray, window: int) -> FloatArray:
    """Compounded returns (S,) over the last `window` sessions at each; 0 before the first."""
    padded = np.concatenate([np.zeros(window - 1), net_returns])
    return np.prod(1.0 + np.lib.stride_tricks.sliding_window_view(padded, window), axis=1) - 1.0


def _concat(parts: Iterable[FloatArray]) -> FloatArray:
    return np.concatenate([np.zeros(0), *parts])
