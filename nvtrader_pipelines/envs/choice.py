"""Portfolios of the discrete action, tilted by descriptors of names over a past window."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.observations.builder import beyond_panel_error
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import equal_weights, fill_with_cash

Choice = Literal["cash", "equal_weight", "ar", "sr", "wr", "mdd", "er"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
DESCRIPTORS: tuple[Choice, ...] = CHOICES[2:]
FLAT = 1e-12  # deviation of returns or of scores that is rounding


def descriptors(returns: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """AR, SR, WR, MDD and ER of each name over the `window` returns up to each session, (5, T, N); higher is better.

    NaN before the first whole window, and where a return (T, N) in it is NaN.
    """
    total, squares, gains, moves, drawdown = (np.zeros_like(returns) for _ in range(5))
    wealth, peak = np.ones_like(returns), np.ones_like(returns)
    for age in range(window - 1, -1, -1):  # from the oldest return of every window to the latest
        past = np.full_like(returns, np.nan)
        past[age:] = returns[: max(len(returns) - age, 0)]
        total += past
        squares += past**2
        gains += np.where(np.isnan(past), np.nan, past > 0.0)
        moves += np.abs(past)
        wealth *= 1.0 + past
        peak = np.maximum(peak, wealth)
        drawdown = np.maximum(drawdown, 1.0 - wealth / peak)
    mean = total / window
    deviation = np.sqrt(np.maximum(squares / window - mean**2, 0.0))
    sharpe, efficiency = mean / np.maximum(deviation, FLAT), np.abs(total) / np.maximum(moves, FLAT)
    return np.stack([mean, sharpe, gains / window, -drawdown, efficiency])


def tilted_weights(scores: NDArray[np.float64], eligible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Softmax (T, N+1) of scores (T, N) standardized across eligible names with a score; cash last, all without one."""
    is_held = eligible & np.isfinite(scores)
    n_held = np.maximum(is_held.sum(axis=1, keepdims=True), 1)
    centered = np.where(is_held, scores, 0.0)
    centered = np.where(is_held, centered - centered.sum(axis=1, keepdims=True) / n_held, 0.0)
    deviation = np.sqrt((centered**2).sum(axis=1, keepdims=True) / n_held)
    factors = np.where(is_held, np.exp(centered / np.maximum(deviation, FLAT)), 0.0)
    weights = np.zeros((len(scores), scores.shape[1] + 1))
    weights[:, :-1] = factors / np.maximum(factors.sum(axis=1, keepdims=True), FLAT)
    return fill_with_cash(weights)


class ChoiceMap:
    """Map from scores of the choices (n, A) to the weights of the best one that a session allows."""

    def __init__(self, panel: MarketPanel, choices: Sequence[Choice], window: int) -> None:
        is_known = np.cumsum(panel.tradable, axis=0) > 1  # a name's first price has no return
        returns = np.where(is_known, panel.close_returns, np.nan)
        scores = dict(zip(DESCRIPTORS, descriptors(returns, window), strict=True))
        cash = np.zeros((len(panel.sessions), len(panel.symbols) + 1))
        cash[:, -1] = 1.0
        portfolios = {
            "cash": cash,
            "equal_weight": equal_weights(panel),
            **{name: tilted_weights(scores[name], panel.eligible) for name in choices if name in scores},
        }
        self._portfolios = np.stack([portfolios[name] for name in choices], axis=1)  # (T, A, N+1)
        is_held = self._portfolios[:, :, :-1].any(axis=2)
        self.allowed = is_held | np.array([name == "cash" for name in choices])  # (T, A)

    def __call__(self, actions: NDArray[np.floating], t: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return weights (n, N+1) of eligible names and cash; NaN for a score that is NaN."""
        if ((t < 0) | (t >= len(self.allowed))).any():
            raise beyond_panel_error(t, len(self.allowed))
        allowed = self.allowed[t]
        best = np.where(allowed, actions, -np.inf).argmax(axis=1)
        best = np.where(allowed[np.arange(len(t)), best], best, allowed.argmax(axis=1))  # scores of -inf
        weights = self._portfolios[t, best]
        weights[np.isnan(actions).any(axis=1)] = np.nan
        return weights
