"""Builder of the observation for a network shared by all names, with its compiled loop."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.observations.builder import AccountView, ObservationLayout, beyond_panel_error
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import market_returns, trailing_windows

ASSET_COLUMNS = 14  # the last two are the anchor's and the held weight
CONTEXT_COLUMNS = 7  # the last is the held cash
CLIP = 4.0
LONG_WINDOW = 252  # sessions
MIN_SCALE = 1e-8


class PerAssetBuilder:
    """Builder of N * 14 columns, name by name, then 7 of context."""

    def __init__(self, panel: MarketPanel, anchor: NDArray[np.float64]) -> None:
        n_sessions, n_symbols = panel.eligible.shape
        self.length = n_symbols * ASSET_COLUMNS + CONTEXT_COLUMNS
        self.layout = ObservationLayout(self.length, n_symbols, lookback=0)
        self._anchor = anchor
        self._market = np.zeros((n_sessions, self.length), dtype=np.float32)  # held weights are filled in at each step
        assets = self._market[:, :-CONTEXT_COLUMNS].reshape(n_sessions, n_symbols, ASSET_COLUMNS, copy=False)
        assets[:, :, :-2] = _clip(asset_columns(panel) * panel.eligible[:, :, None])
        assets[:, :, -2] = _clip(n_symbols * anchor[:, :-1] - 1.0)
        self._market[:, -CONTEXT_COLUMNS:-1] = _clip(context_columns(panel))

    def observe(self, t: NDArray[np.int64], view: AccountView) -> NDArray[np.float32]:
        """Build observations (n, length) at the closes of `t` (n,).

        Raises:
            IndexError: if a session is not in the panel.
        """
        observations = np.empty((len(t), self.length), dtype=np.float32)
        if not _observe(t, view.weights, self._anchor, self._market, observations):
            raise beyond_panel_error(t, len(self._market))
        return observations


@njit(cache=True)
def _observe(
    t: NDArray[np.int64],
    weights: NDArray[np.float64],
    anchor: NDArray[np.float64],
    market: NDArray[np.float32],
    observations: NDArray[np.float32],
) -> bool:
    """Write the observations; False if a session is not in the panel."""
    n_symbols = weights.shape[1] - 1
    for i in range(len(t)):
        if t[i] < 0 or t[i] >= len(market):
            return False
        known, aim, held, row = market[t[i]], anchor[t[i]], weights[i], observations[i]
        for j in range(len(known)):
            row[j] = known[j]
        for j in range(n_symbols):
            row[(j + 1) * ASSET_COLUMNS - 1] = min(max(n_symbols * (held[j] - aim[j]), -CLIP), CLIP)
        row[len(known) - 1] = held[n_symbols]
    return True


def _clip(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.clip(values, -CLIP, CLIP).astype(np.float32)


def asset_columns(panel: MarketPanel) -> NDArray[np.float64]:
    """Market columns of each name, (T, N, 12)."""
    daily, monthly, yearly = (np.maximum(panel.feature(f"volatility_{window}"), MIN_SCALE) for window in (21, 63, 252))
    counted = np.maximum(panel.eligible.sum(axis=1, keepdims=True), 1)
    log_volatility = np.log(monthly) * panel.eligible
    columns = [
        panel.feature("return_1") / daily / 2.0,
        panel.feature("return_5") / daily / np.sqrt(5.0),
        panel.feature("return_21") / yearly / np.sqrt(21.0),
        panel.feature("momentum_12_1") / yearly / np.sqrt(231.0),
        panel.feature("momentum_6_1") / yearly / np.sqrt(105.0),
        2.0 * np.log(daily / yearly),
        2.0 * (log_volatility - log_volatility.sum(axis=1, keepdims=True) / counted),
        3.0 * panel.feature("drawdown_252"),
        *(panel.feature(f"rank_{name}") for name in ("return_5", "return_21", "momentum_12_1", "volatility_63")),
    ]
    return np.stack(columns, axis=2)


def context_columns(panel: MarketPanel) -> NDArray[np.float64]:
    """Context columns of the equal-weight market, (T, 6)."""
    market = market_returns(panel)
    months = trailing_windows(market, 63)
    short = np.maximum(trailing_windows(market, 21).std(axis=1), MIN_SCALE)
    long = np.maximum(trailing_windows(market, LONG_WINDOW).std(axis=1), MIN_SCALE)
    level = np.cumsum(np.log1p(market))
    counted = np.maximum(panel.eligible.sum(axis=1), 1)
    own_variance = (panel.feature("volatility_63") ** 2 * panel.eligible).sum(axis=1) / counted
    columns = [
        trailing_windows(market, 21).sum(axis=1) / long / np.sqrt(21.0),
        trailing_windows(market, LONG_WINDOW).sum(axis=1) / long / np.sqrt(LONG_WINDOW),
        np.log(short * np.sqrt(panel.calendar.periods_per_year) / 0.18),
        np.log(short / long),
        3.0 * (np.exp(level - trailing_windows(level, LONG_WINDOW).max(axis=1)) - 1.0),
        months.var(axis=1) / np.maximum(own_variance, MIN_SCALE),  # approximately the mean correlation of names
    ]
    return np.stack(columns, axis=1)
