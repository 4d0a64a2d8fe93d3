"""Back-test of given weights over (session, name) arrays, in one pass of the environment's transition."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.dynamics import Legs, market_legs
from nvtrader_pipelines.envs.fill_timing import FillTiming, resolve_fill
from nvtrader_pipelines.envs.transition import hold_path
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.weights_table import align_weights
from nvtrader_pipelines.portfolio.costs import CostFunction, CostModel, ProportionalCost, total_cost
from nvtrader_pipelines.portfolio.financing import Financing, FinancingModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Days = NDArray[np.datetime64]


class Execution(Component):
    """Execution of target weights: fills, costs, financing and the gross limit.

    The limit applies to target weights: holdings may exceed it, since a name without a price keeps its weight.
    """

    fill: FillTiming = "next_open"  # next_close on a panel without opens
    costs: tuple[CostModel, ...] = (ProportionalCost(),)  # summed
    financing: FinancingModel = Financing()  # cost of debt and short positions
    gross_limit: Annotated[float, Field(gt=0.0, le=10.0)] = 1.0  # of the sum of absolute target weights, without cash


STANDARD_EXECUTION = Execution()


@dataclass(frozen=True, eq=False)
class BacktestPath:
    """Path of one account over S closes after the first of D decisions.

    An order is recorded in the session after its decision, even if it fills at the decision's close. An account with
    equity 0 stays in cash.
    """

    sessions: Days  # (S,) of the closes
    equity: FloatArray  # (S,) from 1 at the first decision
    net_returns: FloatArray  # (S,) fractions, after costs and financing
    drawdown: FloatArray  # (S,) positive fractions
    turnover: FloatArray  # (S,) one-way; 0 where no order fills
    cost: FloatArray  # (S,) fractions of equity paid at the fill
    cash: FloatArray  # (S,) weight of cash at the close
    weights: FloatArray  # (S, N+1) at the close, cash last
    decided_on: Days  # (D,)
    drifted: FloatArray  # (D, N+1) just before the trade
    executed: FloatArray  # (D, N+1) just after the trade
    trades: FloatArray  # (D, N+1) change of weight by trading, cash last; write-offs excluded


def weights_backtest(
    panel: MarketPanel,
    weights: ArrayLike,
    execution: Execution = STANDARD_EXECUTION,
    *,
    sessions: ArrayLike | None = None,
    symbols: Sequence[str] | None = None,
) -> BacktestPath:
    """Back-test an account that starts in cash and trades to given weights, up to the panel's last close.

    Each row is decided at the close of its session and held until the next. Missing prices, delistings, fills and costs
    are handled as in the environment. An order of the last session never fills and is dropped.

    Args:
        panel: the market.
        weights: (D, N) or (D, N+1) with cash last; without it, cash is the rest to 1. Negative weights are short
            positions, negative cash is debt. A pandas or polars frame is aligned by its names: columns of symbols, in
            any order, and days in the index or a column `date`.
        execution: fills, costs, financing and the gross limit.
        sessions: (D,) days of the decisions, ascending; None takes the frame's, or decides at every session.
        symbols: names of the columns, with "cash" if given; other names of the panel have weight 0. None takes the
            frame's, or the panel's names.

    Raises:
        ValueError: if shapes, sessions or symbols do not fit the panel or the frame, a weight is not finite, a row with
            cash does not sum to 1, or a row exceeds the gross limit; sums of float32 are scaled back if within 1e-6.
    """
    decided_at, target = align_weights(panel, weights, sessions, symbols, execution.gross_limit)
    n_filled = int(np.searchsorted(decided_at, len(panel.sessions) - 1))
    if not n_filled:
        raise ValueError(
            f"a back-test needs a decision before the panel's last session {panel.sessions[-1]}, but all "
            f"{len(decided_at)} are on it or none was given; give earlier decisions or a longer panel"
        )
    legs = market_legs(panel, resolve_fill(execution.fill, panel), execution.financing)
    return _run(panel, legs, target[:n_filled], decided_at[:n_filled], total_cost(execution.costs, panel))


def _run(panel: MarketPanel, legs: Legs, target: FloatArray, decided_at: IntArray, cost: CostFunction) -> BacktestPath:
    """Run the transition decision by decision, then the costs, which change no weight, all at once."""
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
    """Put an account with equity 0 in cash, without trades, in place."""
    if path.equity.all():
        return
    ruin = int(np.argmax(path.equity == 0.0))
    path.weights[ruin:] = opening_account(path.weights.shape[1] - 1).weights
    for changes in (path.net_returns, path.turnover, path.cost):
        changes[ruin + 1 :] = 0.0
    later = first > ruin
    path.trades[later] = 0.0
    path.drifted[later] = path.executed[later] = path.weights[ruin]
