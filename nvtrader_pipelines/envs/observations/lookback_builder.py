"""Builder of the default observation, with its compiled loop."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.observations.builder import (
    CLIP,
    AccountView,
    ObservationLayout,
    ObservationScaler,
    beyond_panel_error,
)
from nvtrader_pipelines.market.panel import MarketPanel

FLOATS_PER_CACHE_LINE = 16  # float32


class LookbackBuilder:
    """Builder of (lookback * N returns, N * F features, N+1 weights, 1 drawdown) columns."""

    def __init__(self, panel: MarketPanel, scaler: ObservationScaler, lookback: int) -> None:
        means = np.asarray(scaler.means or (0.0,) * (panel.features.shape[2] + 1))
        deviations = np.asarray(scaler.deviations or (1.0,) * (panel.features.shape[2] + 1))
        returns = (np.log1p(panel.close_returns) - means[0]) / deviations[0]
        scaled = (panel.features - means[1:]) / deviations[1:]
        scaled *= panel.eligible[:, :, None]
        n_sessions, n_symbols = returns.shape
        padded = np.zeros((lookback - 1 + n_sessions, n_symbols), dtype=np.float32)  # a window is a contiguous part
        padded[lookback - 1 :] = np.clip(returns * panel.tradable, -CLIP, CLIP)
        self._returns = padded.ravel()
        self._features = np.clip(scaled, -CLIP, CLIP).astype(np.float32).reshape(n_sessions, -1)
        self.length = lookback * n_symbols + self._features.shape[1] + n_symbols + 2
        self.layout = ObservationLayout(self.length, n_symbols, lookback)

    def observe(self, t: NDArray[np.int64], view: AccountView) -> NDArray[np.float32]:
        """Build observations (n, length) at the closes of `t` (n,); earlier returns are 0.

        Raises:
            IndexError: if a session is not in the panel.
        """
        observations = np.empty((len(t), self.length), dtype=np.float32)
        if not _observe(t, view.weights, view.drawdown, self._returns, self._features, observations):
            raise beyond_panel_error(t, len(self._features))
        return observations


@njit(cache=True)
def _observe(
    t: NDArray[np.int64],
    weights: NDArray[np.float64],
    drawdown: NDArray[np.float64],
    returns: NDArray[np.float32],
    features: NDArray[np.float32],
    observations: NDArray[np.float32],
) -> bool:
    """Write the observations; False if a session is not in the panel."""
    n_weights, n_features = weights.shape[1], features.shape[1]
    n_returns = observations.shape[1] - n_features - n_weights - 1
    for i in range(len(t)):
        if t[i] < 0 or t[i] >= len(features):
            return False
        # prefetch: the reads of all rows wait for memory together
        newest = returns[t[i] * (n_weights - 1) + n_returns - 1]
        for j in range(0, n_features, FLOATS_PER_CACHE_LINE):
            newest += features[t[i], j]
        observations[i, 0] = newest
    for i in range(len(t)):
        first = t[i] * (n_weights - 1)
        past, known, held = returns[first : first + n_returns], features[t[i]], weights[i]
        window = observations[i, :n_returns]  # slices, as the compiler can prove that their indices are not negative
        columns = observations[i, n_returns : n_returns + n_features]
        account = observations[i, n_returns + n_features :]
        for j in range(n_returns):
            window[j] = past[j]
        for j in range(n_features):
            columns[j] = known[j]
        for j in range(n_weights):
            account[j] = held[j]
        account[n_weights] = drawdown[i]
    return True
