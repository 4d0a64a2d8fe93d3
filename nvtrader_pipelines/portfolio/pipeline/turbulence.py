"""Turbulence: sessions whose returns are unusual in size or in their correlations."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import compress
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.features.unusual_returns import require_more_sessions_than_names, squared_distance
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.pipeline.stage import (
    AccountPath,
    Adjust,
    BoolArray,
    FloatArray,
    Situation,
    Thresholds,
    require_finite,
    scale_exposure,
)


def turbulence_index(panel: MarketPanel, t: int, history: int) -> float | None:
    """Squared Mahalanobis distance of session `t`'s returns from `history` earlier sessions.

    Only names with a price at `t` that were listed when the history began count; None if there is no such name or too
    little history. Directions without past variance do not count.

    Raises:
        ValueError: if a return is not finite.

    Source: Kritzman & Li (2010), "Skulls, Financial Turbulence, and Risk Management".
    """
    first, names = t - history, _compared_names(panel, t, history)
    if not names.any():
        return None
    returns = panel.close_returns[first : t + 1, names]
    require_finite(returns, list(compress(panel.symbols, names)), f"returns up to {panel.sessions[t]}")
    return squared_distance(returns)


def _compared_names(panel: MarketPanel, t: int, history: int) -> BoolArray:
    """Names (N,) in the index of session `t`; none with too little history."""
    first = t - history
    return panel.tradable[t] & panel.tradable[: max(0, first + 1)].any(axis=0)


class TurbulenceTiming(Component):
    """Reduced exposure during turbulence and some sessions after it.

    The index compares one session's returns with the history before it. Its mean is about the number of names: 140 was
    chosen for thirty. A threshold of null is fitted to the market, as a quantile of the index over the training
    sessions.

    Source: Kritzman & Li (2010); threshold and scale of AlphaSwarm's TurbulenceTimingAdjuster, after FinRL.
    """

    kind: Literal["turbulence"] = "turbulence"
    has_guards: ClassVar[bool] = False
    threshold: PositiveFloat | None = 140.0  # of the index, a squared distance; null: fitted on the training period
    quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95  # of the training sessions' index, where it is fitted
    history: Annotated[int, Field(ge=20)] = 252  # sessions; more than names
    cooldown_scale: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0  # share of the weights held while turbulent
    cooldown: NonNegativeInt = 0  # further sessions that count as turbulent

    @property
    def lookback(self) -> int:
        """Sessions of the history, the compared session and the cool-down."""
        return self.history + 1 + self.cooldown

    @property
    def needs_fit(self) -> bool:
        """Whether the threshold must be fitted."""
        return self.threshold is None

    @property
    def needs_path(self) -> bool:
        """Whether fitting needs an account's path: never."""
        return False

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:  # noqa: ARG002
        """Raise if no session of the windows has an index to fit to.

        Raises:
            ValueError: with the number of sessions.
        """
        fitted_on = [t for first, last in windows for t in range(first, last + 1)]
        if self.needs_fit and not any(_compared_names(panel, t, self.history).any() for t in fitted_on):
            raise ValueError(
                f"to fit the threshold of turbulence, a training session needs {self.history} earlier sessions, but "
                f"none of {len(fitted_on)} has; shorten history, train for longer, or set a threshold"
            )

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """Fit the threshold as a quantile of the index over the sessions of the windows.

        Raises:
            ValueError: if no session has enough history.
        """
        if self.threshold is not None:
            return Thresholds()
        self.require_sessions(panel, windows, 1)
        index = self._index(panel)
        values = [index(t) for first, last in windows for t in range(first, last + 1)]
        known = [value for value in values if value is not None]
        return Thresholds(turbulence=float(np.quantile(known, self.quantile)))

    def start(self, panel: MarketPanel) -> Adjust:
        """Return the stage for one panel."""
        index = self._index(panel)

        def adjust(weights: FloatArray, situation: Situation) -> tuple[FloatArray, str]:
            threshold, t = self._threshold(situation.thresholds), situation.t
            for session in range(t, max(-1, t - self.cooldown - 1), -1):
                value = index(session)
                if value is not None and value > threshold:
                    reason = f"turbulence of {value:.1f} on {panel.sessions[session]}, above {threshold:.1f}"
                    return scale_exposure(
                        weights, self.cooldown_scale
                    ), f"{reason}: {self.cooldown_scale:.0%} of the weights"
            return weights, ""

        return adjust

    def _index(self, panel: MarketPanel) -> Callable[[int], float | None]:
        """Return the index as a cached function of the session.

        Raises:
            ValueError: if the history is no longer than the number of names, so that every session would be unusual.
        """
        require_more_sessions_than_names("history", self.history, len(panel.symbols))
        return cache(lambda t: turbulence_index(panel, t, self.history))

    def _threshold(self, fitted: Thresholds) -> float:
        if self.threshold is not None:
            return self.threshold
        if fitted.turbulence is None:
            raise ValueError("the threshold of turbulence is neither set nor fitted")
        return fitted.turbulence
