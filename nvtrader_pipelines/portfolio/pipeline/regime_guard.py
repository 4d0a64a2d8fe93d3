"""The regime guard: less of the names after losses, and smaller steps when the proposal turns over too much."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import (
    AccountPath,
    Adjust,
    FloatArray,
    Situation,
    Thresholds,
    one_way,
    only,
    part_way,
    scaled,
)

REMEMBERED = 63  # sessions whose returns an account keeps
Kept = Annotated[float, Field(ge=0.0, le=1.0)]


class RegimeGuard(Component):
    """Three guards on the weights; none can raise the sum of the names, and a share of 1 switches one off.

    A drawdown above `max_drawdown` keeps `drawdown_share` of the weights, and a return over the last `window` sessions
    below `min_trailing_return` keeps `trailing_return_share`; of both, the smaller. Where the one-way turnover to what
    is kept is above `max_turnover`, only `turnover_share` of the way from what is held is traded, unless nothing is
    held; names no longer selected then leave step by step. A threshold of null is fitted: the quantile, for returns the
    opposite one and never above 0, over the unadjusted account's path on the training sessions, so on nothing that is
    tested. Each stretch of a training has an account of its own: no return, loss or turnover is counted over a gap.

    Source: the regime guard of lee101/stock-prediction, whose thresholds were quantiles of the window it was judged on
    and whose guard on returns changed the training's reward alone; here all three act on the weights.
    """

    kind: Literal["regime_guard"] = "regime_guard"
    history: ClassVar[int] = 0  # sessions before each that fitting looks back to in the market
    max_drawdown: Share | None = None  # loss from the account's peak; null: fitted
    drawdown_share: Kept = 0.5  # of the weights
    min_trailing_return: Annotated[float, Field(gt=-1.0, le=0.0)] | None = None  # compounded; null: fitted
    trailing_return_share: Kept = 0.5  # of the weights
    window: Annotated[int, Field(ge=1, le=REMEMBERED)] = 42  # sessions of the trailing return
    max_turnover: Share | None = None  # one-way, of one decision; null: fitted
    turnover_share: Kept = 0.5  # of the way from what is held
    quantile: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.9  # of the training path, where thresholds are fitted

    @model_validator(mode="after")
    def _comes_back(self) -> Self:
        if self.drawdown_share == 0.0:
            raise ValueError(
                "drawdown_share must be above 0 but is 0: an account that is all in cash never leaves its drawdown, so "
                "it would stay there for good; keep a small share"
            )
        return self

    @property
    def needs_fit(self) -> bool:
        """Whether a threshold of a guard that is on is fitted."""
        return bool(self._fitted())

    @property
    def needs_path(self) -> bool:
        """Every threshold is one of the account."""
        return self.needs_fit

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:  # noqa: ARG002
        """Refuse a training without a stretch that is long enough to fit to: with a decision after its first.

        Raises:
            ValueError: naming the longest stretch.
        """
        needed = self._fitted()
        enough = rebal_freq + 2 if "turnover" in needed else 2  # the first decision is made at the first close
        longest = max((last - first + 1 for first, last in windows), default=0)
        if needed and longest < enough:
            raise ValueError(
                f"the regime guard's thresholds of {', '.join(needed)} are quantiles of an account's path, so a "
                f"stretch of the training must have at least {enough} sessions, but the longest has {longest}; train "
                "for longer or name the thresholds"
            )

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """The quantiles of the paths together that are not given as thresholds.

        Raises:
            ValueError: if none of the paths has a session, or none a decision after its first.
        """
        needed = self._fitted()
        if not needed:
            return Thresholds()
        if not _joined(path.net_returns for path in paths).size or (
            "turnover" in needed and not _joined(path.turnover for path in paths).size
        ):
            raise ValueError(
                f"the regime guard's thresholds of {', '.join(needed)} are quantiles of an account's path over the "
                "training sessions, with a decision after its first, but there is no such path; train for longer or "
                "name the thresholds"
            )
        samples = {
            "drawdown": (path.drawdown for path in paths),
            "trailing_return": (self._trailing(path.net_returns) for path in paths),
            "turnover": (path.turnover for path in paths),
        }
        levels = {"drawdown": self.quantile, "trailing_return": 1.0 - self.quantile, "turnover": self.quantile}
        found = {name: float(np.quantile(_joined(samples[name]), levels[name])) for name in needed}
        if "trailing_return" in found:
            found["trailing_return"] = min(0.0, found["trailing_return"])
        return Thresholds(**found)

    def start(self, panel: MarketPanel) -> Adjust:
        """The stage on one panel."""

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            held = only(situation.held, panel.eligible[situation.t])
            share, why = self._share(situation)
            target = scaled(weights, share) if share < 1.0 else weights  # first: what is held is scaled already
            stepped, slowed = self._slowed(target, held, situation)
            return stepped, "; ".join(reason for reason in (why, slowed) if reason)

        return adjust

    def _slowed(self, weights: FloatArray, held: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
        """Part of the way from what is held, and no more in names than was wanted."""
        turnover = one_way(held, weights)
        if self.turnover_share == 1.0 or not held[:-1].any():
            return weights, ""
        most = self._threshold("turnover", situation.thresholds)
        if turnover <= most:
            return weights, ""
        stepped, wanted = part_way(held, weights, self.turnover_share), weights[:-1].sum()
        gross = stepped[:-1].sum()
        if gross > wanted:
            stepped = scaled(stepped, wanted / gross)
        return stepped, f"turnover of {turnover:.1%}, above {most:.1%}: {self.turnover_share:.0%} of the way"

    def _share(self, situation: Situation) -> tuple[float, str]:
        """The share of the weights that stays, and why."""
        shares = [(1.0, "")]
        if self.drawdown_share < 1.0:
            most = self._threshold("drawdown", situation.thresholds)
            if situation.drawdown > most:
                shares.append((self.drawdown_share, f"drawdown of {situation.drawdown:.1%}, above {most:.1%}"))
        if self.trailing_return_share < 1.0:
            least = self._threshold("trailing_return", situation.thresholds)
            earned = float(np.prod(1.0 + situation.recent_returns[-self.window :])) - 1.0
            if earned < least:
                shares.append((self.trailing_return_share, f"return of {earned:.1%}, below {least:.1%}"))
        share, why = min(shares)
        return share, f"{why}: {share:.0%} of the weights" if why else ""

    def _fitted(self) -> list[str]:
        """The thresholds that are null, of guards that are on."""
        return [name for name, (given, share) in self._guards().items() if given is None and share < 1.0]

    def _guards(self) -> dict[str, tuple[float | None, float]]:
        """Each guard's threshold as given, and its share."""
        return {
            "drawdown": (self.max_drawdown, self.drawdown_share),
            "trailing_return": (self.min_trailing_return, self.trailing_return_share),
            "turnover": (self.max_turnover, self.turnover_share),
        }

    def _threshold(self, name: str, fitted: Thresholds) -> float:
        given, found = self._guards()[name][0], getattr(fitted, name)
        if given is None and found is None:
            raise ValueError(f"the regime guard's {name} needs a threshold, but it is neither given nor fitted; fit it")
        return found if given is None else given

    def _trailing(self, net_returns: FloatArray) -> FloatArray:
        """Compounded returns (S,) over the last `window` sessions at each, 0 before the first."""
        padded = np.concatenate([np.zeros(self.window - 1), net_returns])
        return np.prod(1.0 + np.lib.stride_tricks.sliding_window_view(padded, self.window), axis=1) - 1.0


def _joined(parts: Iterable[FloatArray]) -> FloatArray:
    return np.concatenate([np.zeros(0), *parts])
