"""Panels of two names with given returns, and single transitions."""

from dataclasses import replace

import numpy as np

from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs
from nvtrader_pipelines.portfolio.costs import proportional_cost
from nvtrader_pipelines.portfolio.financing import Financing
from tests.markets import synthetic_panel

FILLS = ("next_open", "next_close", "same_close")
EXPENSIVE = Financing(margin_rate=0.20, borrow_fee=0.10)
FREE = Financing(margin_rate=0.0, borrow_fee=0.0)


def two_names(close_returns, overnight_returns=None, tradable=None, delisted=None):
    shape = np.shape(close_returns)
    everywhere = np.ones(shape, dtype=bool)
    return replace(
        synthetic_panel(shape[0], 2),
        close_returns=np.array(close_returns),
        overnight_returns=None if overnight_returns is None else np.array(overnight_returns),
        tradable=everywhere if tradable is None else np.array(tradable),
        delisted=~everywhere if delisted is None else np.array(delisted),
    )


def run(panel, fill, weights, target, n_sessions, *, cost_rate=0.0, t=0, trade=True, financing=FREE):
    period = holding_period(market_legs(panel, fill, financing), np.array([t]), n_sessions)
    return hold(np.array([weights]), np.array([target]), np.array([trade]), period, proportional_cost(cost_rate))
