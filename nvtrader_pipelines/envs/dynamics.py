"""Transition of an account: drift, trade, pay, drift; shared by environments and back-tests."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.fill_timing import FillTiming
from nvtrader_pipelines.envs.transition import (
    AFTER_FILL,
    ALL_IN_PANEL,
    BEFORE_FILL,
    DELISTED,
    DRIFTED,
    EXECUTED,
    HELD,
    TRADABLE,
    TRADES,
    WHOLE,
    close_rows,
    drift_rows,
    hold_rows,
)
from nvtrader_pipelines.market.history import ReadOnlyArrays
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import STANDARD_FINANCING, CostFunction, Financing

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Legs(ReadOnlyArrays):
    """Returns and charges of a panel, with each session split at the fill, (T, N) each."""

    returns: FloatArray  # (3, T, N) fractions: before the fill, after it, the whole session
    charges: FloatArray  # (3, T, 2) fractions of borrowed cash and of short value, on the same three legs
    condition: NDArray[np.uint8]  # (T, N) flags at a fill: tradable, delisted
    fill: FillTiming

    @property
    def before_fill(self) -> FloatArray:
        """Returns from the previous close to the fill, (T, N)."""
        return self.returns[BEFORE_FILL]

    def filled_at(self, decided_at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sessions (n,) of the fills of decisions at the closes of `decided_at` (n,)."""
        return decided_at if self.fill == "same_close" else decided_at + 1


def market_legs(panel: MarketPanel, fill: FillTiming, financing: Financing = STANDARD_FINANCING) -> Legs:
    """Split returns and charges at the fill, for decisions at the previous close.

    Positions held after a close, also those filled at it, are charged for the days to the next close. Charges are paid
    in cash when the next session begins: before a fill at its open or close.

    Raises:
        ValueError: if the fill is `next_open` and the panel has no opens.
    """
    returns, charges = np.zeros((3, *panel.close_returns.shape)), np.zeros((3, len(panel.sessions), 2))
    returns[WHOLE], charges[WHOLE] = panel.close_returns, financing.charges(panel.sessions)
    night = AFTER_FILL if fill == "same_close" else BEFORE_FILL
    charges[night] = charges[WHOLE]
    if fill != "next_open":
        returns[night] = panel.close_returns
    elif panel.overnight_returns is None:
        raise ValueError(f"next_open needs opens, but the panel of {panel.source!r} has none; choose next_close")
    else:
        returns[BEFORE_FILL] = panel.overnight_returns
        returns[AFTER_FILL] = (1.0 + panel.close_returns) / (1.0 + panel.overnight_returns) - 1.0
    condition = np.ascontiguousarray(
        TRADABLE * panel.tradable.view(np.uint8) | DELISTED * panel.delisted.view(np.uint8)
    )
    return Legs(returns, charges, condition, fill)


@dataclass(frozen=True, eq=False)
class HoldingPeriod:
    """`n_sessions` sessions of n portfolios from one decision to the next."""

    legs: Legs
    decided_at: NDArray[np.int64]  # (n,) session of the decision
    filled_at: NDArray[np.int64]  # (n,) session of the fill
    n_sessions: int


def holding_period(legs: Legs, decided_at: NDArray[np.int64], n_sessions: int) -> HoldingPeriod:
    """Periods of `n_sessions` after decisions at the closes of `decided_at` (n,)."""
    return HoldingPeriod(legs, decided_at, legs.filled_at(decided_at), n_sessions)


@dataclass(frozen=True, eq=False)
class Transition:
    """Result of one decision of n portfolios over the k sessions until the next."""

    session_growth: FloatArray  # (n, k) equity over the previous session's, net of cost
    session_cash: FloatArray  # (n, k) weight of cash at each close
    drifted: FloatArray  # (n, N+1) before the trade
    executed: FloatArray  # (n, N+1) after the trade
    weights: FloatArray  # (n, N+1) at the last close
    trades: FloatArray  # (n, N+1) change of weight by trading, cash last; a write-off is no trade
    turnover: FloatArray  # (n,) one-way: half the sum of absolute trades
    cost: FloatArray  # (n,) fraction of equity paid at the fill

    @property
    def growth(self) -> FloatArray:
        """Equity at the end over equity at the start, net of cost, (n,)."""
        return self.session_growth.prod(axis=1)


def hold_to_closes(executed: FloatArray, period: HoldingPeriod) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield weights (n, N+1) and growth (n,) at each close of the period."""
    held = np.empty((period.n_sessions, *executed.shape))
    growth = np.empty((period.n_sessions, len(executed)))
    legs = period.legs
    _require_in_panel(close_rows(executed, legs.returns, legs.charges, period.decided_at, held, growth), period)
    return ((held[session], growth[session]) for session in range(period.n_sessions))


def drift(weights: FloatArray, period: HoldingPeriod) -> tuple[FloatArray, FloatArray]:
    """Hold portfolios for one session without a trade; returns weights (n, N+1) and growth (n,).

    `hold` does the same in every session of a period after the first.

    Raises:
        ValueError: if the period is not one session, or the shapes differ from the panel's.
        IndexError: if the session of a portfolio is beyond the panel.
    """
    legs = period.legs
    _require_shapes(weights, weights, np.zeros(len(weights), np.bool_), period)
    if period.n_sessions != 1:
        raise ValueError(f"drift needs a period of one session, but it has {period.n_sessions}")
    held, growth = np.empty(weights.shape), np.empty(len(weights))
    weights = np.ascontiguousarray(weights, np.float64)
    _require_in_panel(drift_rows(weights, legs.returns, legs.charges, period.decided_at, held, growth), period)
    return held, growth


def hold(
    weights: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod, cost: CostFunction
) -> Transition:
    """Trade once to `target` and hold: the accounting of one decision.

    The cost is taken pro rata from every position, so it does not change the executed weights. Negative weights are
    short positions, and a negative weight of cash is a debt; both are charged by the legs' financing. A portfolio that
    loses everything has equity 0 from then on: it cannot owe, its weights are cash, and its orders do not fill.

    Args:
        weights: (n, N+1) at the close of the decision, cash last, rows sum to 1.
        target: (n, N+1) target weights, cash last, rows sum to 1; ignored where `trade` is False.
        trade: (n,) whether the portfolio trades.
        period: sessions, returns and charges of the period.
        cost: fraction of equity that the trades from drifted weights cost; capped at 1.

    Raises:
        ValueError: if the shapes differ from one another or from the panel's.
        IndexError: if the period of a portfolio ends beyond the panel.
    """
    portfolios, path, turnover = _run_transition(weights, target, trade, period)
    growth, trades = path[0], portfolios[TRADES]
    paid = np.minimum(1.0, cost(trades[:, :-1], period.filled_at))
    growth[:, 0] *= 1.0 - paid
    return Transition(
        session_growth=growth,
        session_cash=path[1],
        drifted=portfolios[DRIFTED],
        executed=portfolios[EXECUTED],
        weights=portfolios[HELD],
        trades=trades,
        turnover=turnover,
        cost=paid,
    )


def _run_transition(
    weights: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Run `hold_rows`: portfolios (4, n, N+1), path (2, n, k) and turnover (n,)."""
    legs = period.legs
    _require_shapes(weights, target, trade, period)
    portfolios, turnover = np.empty((4, *weights.shape)), np.empty(len(weights))
    path = np.empty((2, len(weights), period.n_sessions))
    beyond = hold_rows(
        np.ascontiguousarray(weights, np.float64), np.ascontiguousarray(target, np.float64),
        np.ascontiguousarray(trade), legs.returns, legs.charges, legs.condition, period.decided_at, period.filled_at,
        portfolios, path, turnover,
    )  # fmt: skip
    _require_in_panel(beyond, period)
    return portfolios, path, turnover


def _require_shapes(weights: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod) -> None:
    """Raise if shapes differ: compiled loops do not check bounds."""
    shape = (len(period.decided_at), period.legs.returns.shape[2] + 1)
    if period.n_sessions < 1:
        raise ValueError(f"a period needs at least one session, but has {period.n_sessions}")
    if weights.shape != shape or target.shape != shape or trade.shape != shape[:1]:
        raise ValueError(f"weights, target and trade of {shape} have {weights.shape}, {target.shape}, {trade.shape}")


def _require_in_panel(beyond: int, period: HoldingPeriod) -> None:
    if beyond != ALL_IN_PANEL:
        raise IndexError(
            f"{period.n_sessions} sessions after session {period.decided_at[beyond]} end beyond the panel of "
            f"{period.legs.returns.shape[1]}"
        )
