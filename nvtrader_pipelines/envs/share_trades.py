"""Whole shares of the action `share_trades`: orders, what cash pays for, and weights after costs."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import AccountMap
from nvtrader_pipelines.envs.observations.builder import beyond_panel_error
from nvtrader_pipelines.market.panel import MarketPanel

FloatArray = NDArray[np.float64]
ROUNDING = 1e-12  # of a sum of weights
N_ITERATIONS = 12  # of the cost; each multiplies its error by the rate, at most .05


def start_share_trades(panel: MarketPanel, hmax: int, capital: float, rate: float) -> AccountMap:
    """Return the map for one panel, with a cost of `rate` times the traded value."""
    prices, tradable = np.ascontiguousarray(panel.feature("adjusted_close") / capital), panel.tradable.copy()

    def target_weights(
        actions: NDArray[np.floating], t: NDArray[np.int64], weights: FloatArray, equity: FloatArray
    ) -> FloatArray:
        # in float32, as FinRL's actions are: .29 of 100 shares are 29
        bounded = np.clip(np.asarray(actions, np.float32), np.float32(-1.0), np.float32(1.0))
        orders = np.trunc(bounded * np.float32(hmax)).astype(np.float64, order="C")
        targets = np.array(weights, np.float64, order="C")
        if orders.shape != (len(t), prices.shape[1]):
            raise ValueError(f"share_trades takes {(len(t), prices.shape[1])} values, but got {orders.shape}")
        if not trade_shares(orders, prices, tradable, np.array(t), np.array(equity, np.float64), rate, targets):
            raise beyond_panel_error(t, len(prices))
        return targets

    return target_weights


@njit(cache=True)
def trade_shares(  # noqa: PLR0913 - flat arrays keep a compiled call cheap
    orders: FloatArray,
    prices: FloatArray,
    tradable: NDArray[np.bool_],
    t: NDArray[np.int64],
    equity: FloatArray,
    rate: float,
    weights: FloatArray,
) -> bool:
    """Turn held weights (n, N+1) into those after orders (n, N) of shares; False if a session is not in the panel."""
    cash = orders.shape[1]
    for i in range(len(orders)):
        if t[i] < 0 or t[i] >= len(prices):
            return False
        if np.isnan(orders[i]).any():
            weights[i] = np.nan
        elif equity[i] > 0.0:
            held, is_priced, ranks = weights[i].copy(), tradable[t[i]], np.argsort(orders[i], kind="mergesort")
            share = prices[t[i]] / equity[i]  # weight of one
            bought, values = _fill_orders(orders[i], ranks, share, held, rate)
            if np.array_equal(values, held[:cash]):
                continue
            _write_weights(values, is_priced, held, rate, weights[i])
            # the cost of all trades is more than the sum of each alone
            while weights[i, cash] < -ROUNDING and (bought > 0.0).any():
                last = ranks[np.argmax(bought[ranks] > 0.0)]
                bought[last] -= 1.0
                values[last] -= share[last]
                _write_weights(values, is_priced, held, rate, weights[i])
            weights[i, cash] = max(weights[i, cash], 0.0)
    return True


@njit(cache=True)
def _fill_orders(
    orders: FloatArray, ranks: NDArray[np.int64], share: FloatArray, held: FloatArray, rate: float
) -> tuple[FloatArray, FloatArray]:
    """Return shares bought (N,) and values of names (N,) over equity before costs; ranks of orders ascend.

    An order ends at a whole number of shares, the nearest if the account holds a fraction.
    """
    values, cash = held[:-1].copy(), held[-1]
    shares, bought = np.zeros(len(orders)), np.zeros(len(orders))
    for j in ranks:
        shares[j] = held[j] / share[j] if share[j] > 0.0 else 0.0
        if orders[j] < 0.0 and shares[j] > 0.0:
            left = max(np.rint(shares[j] + orders[j]), 0.0)
            values[j] = left * share[j]
            cash += (shares[j] - left) * share[j] * (1.0 - rate)
    for j in ranks[::-1]:
        price = share[j] * (1.0 + rate)
        if orders[j] > 0.0 and price > 0.0:
            total = min(np.rint(shares[j] + orders[j]), np.floor(shares[j] + cash / price))
            if total > shares[j]:
                bought[j] = total - shares[j]
                values[j] = total * share[j]
                cash -= bought[j] * price
    return bought, values


@njit(cache=True)
def _write_weights(
    values: FloatArray, is_priced: NDArray[np.bool_], held: FloatArray, rate: float, weights: FloatArray
) -> None:
    """Write weights (N+1,) whose values after the cost of trading to them are the given ones; cash may be negative.

    Names without a price keep their weight, and so lose value by the cost.
    """
    cost, cash = 0.0, len(values)
    for _ in range(N_ITERATIONS):
        traded = 0.0
        for j in range(cash):
            weights[j] = values[j] / (1.0 - cost) if is_priced[j] else held[j]
            traded += abs(weights[j] - held[j])
        cost = rate * traded
    weights[cash] = 1.0 - weights[:cash].sum()
