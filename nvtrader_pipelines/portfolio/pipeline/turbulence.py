"""Turbulence: sessions whose returns are unlike the past's, in size or in how names move together."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import compress
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.pipeline.stage import (
    AccountPath,
    Adjust,
    BoolArray,
    FloatArray,
    Situation,
    Thresholds,
    check_finite,
    scaled,
)


def turbulence_index(panel: MarketPanel, t: int, history: int) -> float | None:
    """Squared Mahalanobis distance of the returns of session `t` from those of the `history` sessions before it.

    Counted are the names with a price at `t` that were listed when the history began. None where there is no such
    name, or less history. Directions in which the past never moved do not count.

    Raises:
        ValueError: if a return is not finite.

    Source: Kritzman & Li (2010), "Skulls, Financial Turbulence, and Risk Management".
    """
    first, names = t - history, _compared(panel, t, history)
    if not names.any():
        return None
    returns = np.ascontiguousarray(panel.close_returns[first : t + 1, names])
    check_finite(returns, list(compress(panel.symbols, names)), f"returns up to {panel.sessions[t]}")
    past = returns[:-1]
    deviation = returns[-1] - past.mean(axis=0)
    precision = np.linalg.pinv(np.atleast_2d(np.cov(past, rowvar=False)), hermitian=True)
    return float(deviation @ precision @ deviation)


def _compared(panel: MarketPanel, t: int, history: int) -> BoolArray:
    """The names (N,) that the index of session `t` counts; none where there is less history."""
    first = t - history
    return panel.tradable[t] & panel.tradable[: max(0, first + 1)].any(axis=0)


class TurbulenceTiming(Component):
    """Out of the market, or with a share of the weights, while it is turbulent and for some sessions after.

    The index is that of one session's returns against the history before it, and on average about the number of
    names: 140 was set for thirty. A threshold of null is fitted to the market: the quantile of the index over the
    training sessions.

    Source: Kritzman & Li (2010); threshold and scale of AlphaSwarm's TurbulenceTimingAdjuster, after FinRL.
    """

    kind: Literal["turbulence"] = "turbulence"
    threshold: PositiveFloat | None = 140.0  # of the index, a squared distance; null: fitted on the training period
    quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95  # of the training sessions' index, where it is fitted
    history: Annotated[int, Field(ge=20)] = 252  # sessions; more than names
    cooldown_scale: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0  # share of the weights that stays
    cooldown: NonNegativeInt = 0  # sessions after a turbulent one that count as turbulent too

    @property
    def lookback(self) -> int:
        """The history, the session that is compared with it, and the cool-down."""
        return self.history + 1 + self.cooldown

    @property
    def needs_fit(self) -> bool:
        """Whether the threshold is fitted."""
        return self.threshold is None

    @property
    def needs_path(self) -> bool:
        """The market's own returns are enough."""
        return False

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:  # noqa: ARG002
        """Refuse windows of which no session has an index to fit to.

        Raises:
            ValueError: naming how many sessions there are.
        """
        fitted_on = [t for first, last in windows for t in range(first, last + 1)]
        if self.needs_fit and not any(_compared(panel, t, self.history).any() for t in fitted_on):
            raise ValueError(
                f"the threshold of turbulence is a quantile over training sessions with {self.history} sessions "
                f"before them that are not tested, but of the {len(fitted_on)} to fit on none has as many; shorten "
                "history, train for longer, or name a threshold"
            )

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """The quantile of the index over the sessions of the windows.

        Raises:
            ValueError: if none of them has the history.
        """
        if self.threshold is not None:
            return Thresholds()
        self.require_sessions(panel, windows, 1)
        index = self._index(panel)
        found = [index(t) for first, last in windows for t in range(first, last + 1)]
        known = [value for value in found if value is not None]
        return Thresholds(turbulence=float(np.quantile(known, self.quantile)))

    def start(self, panel: MarketPanel) -> Adjust:
        """The stage on one panel."""
        index = self._index(panel)

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            threshold, t = self._threshold(situation.thresholds), situation.t
            for session in range(t, max(-1, t - self.cooldown - 1), -1):
                found = index(session)
                if found is not None and found > threshold:
                    reason = f"turbulence of {found:.1f} on {panel.sessions[session]}, above {threshold:.1f}"
                    return scaled(weights, self.cooldown_scale), f"{reason}: {self.cooldown_scale:.0%} of the weights"
            return weights, ""

        return adjust

    def _index(self, panel: MarketPanel) -> Callable[[int], float | None]:
        """The index of each session, computed where it is asked for.

        Raises:
            ValueError: if the history is no longer than there are names, so that every session is far from it.
        """
        if self.history <= len(panel.symbols):
            raise ValueError(
                f"turbulence needs more sessions of history than names, but history is {self.history} and the market "
                f"has {len(panel.symbols)} names; lengthen history or name fewer symbols"
            )
        return cache(lambda t: turbulence_index(panel, t, self.history))

    def _threshold(self, fitted: Thresholds) -> float:
        if self.threshold is not None:
            return self.threshold
        if fitted.turbulence is None:
            raise ValueError("turbulence without a threshold needs the fitted one, but none was given; fit it first")
        return fitted.turbulence
