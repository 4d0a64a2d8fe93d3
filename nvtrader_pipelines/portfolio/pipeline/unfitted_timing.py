"""Timing whose fields are all set: nothing is fitted in training."""

from collections.abc import Sequence
from typing import ClassVar

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.fitted_thresholds import Thresholds
from nvtrader_pipelines.portfolio.pipeline.stage import AccountPath


class UnfittedTiming(Component):
    """Timing without thresholds."""

    needs_fit: ClassVar[bool] = False  # whether thresholds must be fitted before use
    needs_path: ClassVar[bool] = False  # whether fitting needs an account's path
    history: ClassVar[int] = 0  # earlier sessions of the market that fitting needs

    def require_sessions(self, panel: MarketPanel, windows: Sequence[Window], rebal_freq: int) -> None:
        """Accept any training, since nothing is fitted."""

    def fit(self, panel: MarketPanel, windows: Sequence[Window], paths: Sequence[AccountPath]) -> Thresholds:  # noqa: ARG002
        """Return no thresholds."""
        return Thresholds()
