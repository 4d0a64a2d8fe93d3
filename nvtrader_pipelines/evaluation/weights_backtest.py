"""Back-test of given weights over (session, name) arrays, in one pass of the environment's own transition."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.dynamics import FillTiming, Legs, market_legs, resolve_fill
from nvtrader_pipelines.envs.transition import hold_path
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.weights_table import align_weights
from nvtrader_pipelines.portfolio.costs import CostFunction, CostModel, ProportionalCost, total_cost
from nvtrader_pipelines.portfolio.financing import Financing

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Days = NDArray[np.datetime64]


class Execution(Component):
    """How wanted weights become holdings: when orders fill, what trading and borrowing cost, how far gross may go.

    The limit is on what is wanted: a name without a price keeps its weight, and may carry what is held beyond it.
    """

    fill: FillTiming = "next_open"  # next_close on a panel without opens
    costs: tuple[CostModel, ...] = (ProportionalCost(),)  # what trades take from equity, summed
    financing: Financing = Financing()  # what debts and short positions cost
    gross_limit: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0  # most that absolute wanted weights of names sum to


STANDARD_EXECUTION = Execution()


@dataclass(frozen=True, eq=False)
class BacktestPath:
    """What one account did and was worth, for S closes after the first of D decisions.

    What an order does is told in the session after its decision, also where it fills at the decision's close. An
    account worth 0 is over: it is in cash and neither earns nor trades.
    """

    sessions: Days  # (S,) of the closes
    equity: FloatArray  # (S,) from 1 at the first decision
    net_returns: FloatArray  # (S,) fractions, after costs and financing
    drawdown: FloatArray  # (S,) loss from the highest equity so far, positive fractions
    turnover: FloatArray  # (S,) one-way; 0 where no order fills
    cost: FloatArray  # (S,) fractions of equity paid at the fill
    cash: FloatArray  # (S,) weight of cash at the close
    weights: FloatArray  # (S, N+1) at the close, cash last
    decided_on: Days  # (D,)
    drifted: FloatArray  # (D, N+1) just before the trade
    executed: FloatArray  # (D, N+1) just after the trade
    trades: FloatArray  # (D, N+1) change of weight by trading, cash last; a write-off is no trade


def weights_backtest(
    panel: MarketPanel,
    weights: FloatArray,
    execution: Execution = STANDARD_EXECUTION,
    *,
    sessions: Days | None = None,
    symbols: Sequence[str] | None = None,
) -> BacktestPath:
    """Run an account, at first in cash, that trades to given weights, to the panel's last close.

    Each row is decided at the close of its session, and the account holds what it has until the next. Names without
    a price, delistings, fills and costs are those of the environment, of which this is the same arithmetic. An order
    of the last session never fills and is left out.

    Args:
        panel: the market.
        weights: a row per session of the panel, or per one of `sessions`; a column per name, and perhaps one of cash
            last, which is otherwise what the names leave of 1. Negative weights are short positions, negative cash is
            borrowed.
        execution: fills, costs, financing and the gross limit.
        sessions: (D,) days of the decisions, ascending; None decides at every session.
        symbols: names of the columns, "cash" perhaps last; names of the panel left out have no weight. None takes the
            panel's names in its order.

    Raises:
        ValueError: if shapes, sessions or symbols do not fit the panel, a weight is no finite number, a row with
            cash does not sum to 1, or a row is above the gross limit.
    """
    decided_at, target = align_weights(panel, weights, sessions, symbols, execution.gross_limit)
    n_filled = int(np.searchsorted(decided_at, len(panel.sessions) - 1))
    if not n_filled:
        raise ValueError(
            f"a back-test needs a decision before the panel's last session {panel.sessions[-1]}, but has "
            f"{len(decided_at)} and none before; give earlier decisions or a longer panel"
        )
    legs = market_legs(panel, resolve_fill(execution.fill, panel), execution.financing)
    return _run(panel, legs, target[:n_filled], decided_at[:n_filled], total_cost(execution.costs, panel))


def _run(panel: MarketPanel, legs: Legs, target: FloatArray, decided_at: IntArray, cost: CostFunction) -> BacktestPath:
    """The transition from decision to decision, and then the costs, which change no weight, of all trades at once."""
    start, shape = decided_at[0], target.shape
    sessions = panel.sessions[start + 1 :]
    drifted, executed, trades = np.empty(shape), np.empty(shape), np.empty(shape)
    closing = np.empty((len(sessions) + 1, shape[1]))
    growth, traded = np.empty(len(sessions)), np.empty(len(target))
    filled_at = legs.filled_at(decided_at)
    hold_path(
        target, legs.returns, legs.charges, legs.condition, decided_at, filled_at,
        drifted, executed, trades, closing, growth, traded,
    )  # fmt: skip
    first = decided_at - start
    turnover, paid = np.zeros(len(sessions)), np.zeros(len(sessions))
    turnover[first] = traded
    paid[first] = np.minimum(1.0, cost(trades[:, :-1], filled_at))
    growth *= 1.0 - paid
    equity = np.multiply.accumulate(growth)
    path = BacktestPath(
        sessions=sessions,
        equity=equity,
        net_returns=growth - 1.0,
        drawdown=1.0 - equity / np.maximum.accumulate(np.maximum(1.0, equity)),
        turnover=turnover,
        cost=paid,
        cash=closing[1:, -1],
        weights=closing[1:],
        decided_on=panel.sessions[decided_at],
        drifted=drifted,
        executed=executed,
        trades=trades,
    )
    _end_where_ruined(path, first)
    return path


def _end_where_ruined(path: BacktestPath, first: IntArray) -> None:
    """Leave in cash, at rest, what is worth 0."""
    if path.equity.all():
        return
    over = int(np.argmax(path.equity == 0.0))
    path.weights[over:] = opening_account(path.weights.shape[1] - 1).weights
    for changes in (path.net_returns, path.turnover, path.cost):
        changes[over + 1 :] = 0.0
    later = first > over
    path.trades[later] = 0.0
    path.drifted[later] = path.executed[later] = path.weights[over]
