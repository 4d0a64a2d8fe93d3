"""Bars by hand, and strategies that call a function."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import EventDriven, Strategy
from nvtrader_pipelines.policies.weights_table import WeightsTable
from tests.markets import synthetic_panel

FREE = EnvSpec(turnover_cost_bps=0.0, rebal_freq=1)
WHOLE = EventDriven(whole_shares=True, capital=10_000.0)


def hand_made(*bars):
    """Panel of bars after a first close of 100; each bar has (open, high, low, close) per name."""
    prices = np.array(bars, dtype=float)  # (T - 1, N, 4)
    closes = np.vstack([np.full((1, prices.shape[1]), 100.0), prices[:, :, 3]])
    before, panel = closes[:-1, :, None], synthetic_panel(len(closes), prices.shape[1])
    returns = np.concatenate([np.zeros((1, *prices.shape[1:])), prices / before - 1.0])
    names = ("overnight_returns", "high_returns", "low_returns", "close_returns")
    return replace(panel, **{name: returns[:, :, i].copy() for i, name in enumerate(names)})


def dated(panel, weights):
    """Table of weights (T, N+1), a row per session."""
    return WeightsTable(panel.sessions, (*panel.symbols, "cash"), np.asarray(weights))


class Calls(Strategy):
    """Strategy that calls a function with its context and the number of the bar."""

    kind: Literal["calls"] = "calls"
    orders: Callable[[Any, int], None]

    def start(self, symbols):
        numbers = iter(range(10**6))
        return lambda context: self.orders(context, next(numbers))


def run(panel, orders, engine=WHOLE, environment=FREE):
    """Result of a strategy that calls `orders(context, number of the bar)`."""
    return engine.run(panel, environment, Calls(orders=orders))


def rows(result, *columns):
    """Rows of some columns of a result's orders."""
    return result.orders.select(columns).rows()
