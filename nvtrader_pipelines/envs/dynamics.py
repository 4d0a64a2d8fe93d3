"""Transition of an account: drift, trade, pay, drift; shared by environments and back-tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.fill_timing import FillTiming
from nvtrader_pipelines.envs.transition import (
    AFTER_FILL,
    ALL_IN_PANEL,
    AT,
    BEFORE_CAP,
    BEFORE_FILL,
    CAP_COST,
    CAP_TURNOVER,
    CASH,
    DELISTED,
    DRIFTED,
    EXECUTED,
    FINANCED,
    GROSS,
    GROWTH,
    HELD,
    PLACE,
    PLAIN_ROWS,
    TRACKED_ROWS,
    TRADABLE,
    TRADES,
    WHOLE,
    close_rows,
    drift_rows,
    hold_rows,
    pay_cap_costs,
)
from nvtrader_pipelines.market.history import ReadOnlyArrays
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostFunction
from nvtrader_pipelines.portfolio.financing import STANDARD_FINANCING, FinancingModel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Legs(ReadOnlyArrays):
    """Returns and charges of a panel, with each session split at the fill, (T, N) each."""

    returns: FloatArray  # (3, T, N) fractions: before the fill, after it, the whole session
    charges: FloatArray  # (3, T, 3) fractions of borrowed cash, short value, gross above 1, on the same three legs
    condition: NDArray[np.uint8]  # (T, N) flags at a fill: tradable, delisted
    fill: FillTiming
    close_cap: float = np.inf  # of gross at a close; names above it are scaled down, and fills at a close keep it
    tracks_exposure: bool = False  # whether transitions have exposures of their own

    @property
    def before_fill(self) -> FloatArray:
        """Returns from the previous close to the fill, (T, N)."""
        return self.returns[BEFORE_FILL]

    def filled_at(self, decided_at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sessions (n,) of the fills of decisions at the closes of `decided_at` (n,)."""
        return decided_at if self.fill == "same_close" else decided_at + 1


def market_legs(
    panel: MarketPanel,
    fill: FillTiming,
    financing: FinancingModel = STANDARD_FINANCING,
    *,
    close_cap: float = np.inf,
    tracks_exposure: bool = False,
) -> Legs:
    """Split returns and charges at the fill, for decisions at the previous close.

    Positions held after a close, also those filled at it, are charged for the days to the next close. Charges are paid
    in cash when the next session begins: before a fill at its open or close.

    Raises:
        ValueError: if the fill is `next_open` and the panel has no opens.
    """
    returns, charges = np.zeros((3, *panel.close_returns.shape)), np.zeros((3, len(panel.sessions), 3))
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
    return Legs(returns, charges, condition, fill, close_cap, tracks_exposure or np.isfinite(close_cap))


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


class Exposures(NamedTuple):
    """Gross exposure and financing of n portfolios in k sessions, (n, k) each."""

    before_cap: FloatArray  # sum of absolute weights of names at each close
    gross: FloatArray  # the same after the cap on it at the close
    financing: FloatArray  # paid in the session, a fraction of equity at the close before
    cap_turnover: FloatArray  # one-way, of the cap's trades at the close
    cap_cost: FloatArray  # of these trades, a fraction of equity at the close


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
    tracked: Exposures | None = None  # of legs that track them
    capped: tuple[FloatArray, NDArray[np.int64]] | None = None  # (m, N) trades of the cap, and (m,) row * k + session

    @property
    def growth(self) -> FloatArray:
        """Equity at the end over equity at the start, net of cost, (n,)."""
        return self.session_growth.prod(axis=1)

    @property
    def cap_trades(self) -> FloatArray | None:
        """Change of weight by the cap on gross at each close, (n, k, N); None if exposures are not tracked."""
        if self.capped is None:
            return None
        trades, places = self.capped
        every = np.zeros((self.session_growth.size, trades.shape[1]))
        every[places] = trades
        return every.reshape(*self.session_growth.shape, -1)

    @property
    def exposures(self) -> Exposures:
        """Exposures of each session; those of a long-only account follow from its cash."""
        if self.tracked is not None:
            return self.tracked
        gross, none = 1.0 - self.session_cash, np.zeros_like(self.session_cash)
        return Exposures(gross, gross, none, none, none)


def hold_to_closes(executed: FloatArray, period: HoldingPeriod) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield weights (n, N+1) and growth (n,) at each close of the period."""
    held = np.empty((period.n_sessions, *executed.shape))
    growth = np.empty((period.n_sessions, len(executed)))
    legs = period.legs
    _require_in_panel(close_rows(executed, legs.returns, legs.charges, period.decided_at, held, growth), period)
    return ((held[session], growth[session]) for session in range(period.n_sessions))


def drift(weights: FloatArray, period: HoldingPeriod, cost: CostFunction) -> Transition:
    """Hold portfolios (n, N+1) for one session without a decision: only the cap on gross trades.

    `hold` does the same in every session of a period after the first.

    Raises:
        ValueError: if the period is not one session, or the shapes differ from the panel's.
        IndexError: if the session of a portfolio is beyond the panel.
    """
    legs = period.legs
    _require_shapes(weights, weights, np.zeros(len(weights), np.bool_), period)
    if period.n_sessions != 1:
        raise ValueError(f"drift needs a period of one session, but it has {period.n_sessions}")
    weights = np.ascontiguousarray(weights, np.float64)
    held, path, nothing = np.empty(weights.shape), np.empty((TRACKED_ROWS, len(weights), 1)), np.zeros(len(weights))
    cap_trades, capped = np.empty((len(weights), legs.returns.shape[2])), np.empty((2, len(weights)), np.int64)
    beyond = drift_rows(
        weights, legs.returns, legs.charges, legs.condition, period.decided_at, legs.close_cap, held, path, cap_trades,
        capped,
    )  # fmt: skip
    _require_in_panel(beyond, period)
    m = ALL_IN_PANEL - beyond
    return Transition(
        session_growth=path[GROWTH],
        session_cash=path[CASH],
        drifted=weights,
        executed=weights,
        weights=held,
        trades=np.zeros_like(weights),
        turnover=nothing,
        cost=nothing,
        tracked=_pay_cap_costs(path, cap_trades[:m], capped[:, :m], cost) if legs.tracks_exposure else None,
        capped=(cap_trades[:m], capped[PLACE, :m]) if legs.tracks_exposure else None,
    )


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
    portfolios, path, turnover, cap_trades, capped = _run_transition(weights, target, trade, period)
    growth, trades = path[GROWTH], portfolios[TRADES]
    paid = np.minimum(1.0, cost(trades[:, :-1], period.filled_at))
    growth[:, 0] *= 1.0 - paid
    is_tracked = period.legs.tracks_exposure
    if is_tracked and period.legs.fill == "same_close":
        path[FINANCED, :, 0] *= 1.0 - paid  # charged on what is left after the fill
    return Transition(
        session_growth=growth,
        session_cash=path[CASH],
        drifted=portfolios[DRIFTED],
        executed=portfolios[EXECUTED],
        weights=portfolios[HELD],
        trades=trades,
        turnover=turnover,
        cost=paid,
        tracked=_pay_cap_costs(path, cap_trades, capped, cost) if is_tracked else None,
        capped=(cap_trades, capped[PLACE]) if is_tracked else None,
    )


def _pay_cap_costs(
    path: FloatArray, cap_trades: FloatArray, capped: NDArray[np.int64], cost: CostFunction
) -> Exposures:
    """Take the costs of the cap's trades (m, N) from the growth of their sessions; returns the exposures."""
    if len(cap_trades):
        pay_cap_costs(path, capped, cost(cap_trades, capped[AT]))
    return Exposures(path[BEFORE_CAP], path[GROSS], path[FINANCED], path[CAP_TURNOVER], path[CAP_COST])


def _run_transition(
    weights: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, NDArray[np.int64]]:
    """Run `hold_rows`: portfolios (4, n, N+1), path (2 or 7, n, k), turnover (n,), and the cap's m trades.

    These are changes of weight (m, N), and places and sessions (2, m).
    """
    legs = period.legs
    _require_shapes(weights, target, trade, period)
    portfolios, turnover = np.empty((4, *weights.shape)), np.empty(len(weights))
    path = np.empty((TRACKED_ROWS if legs.tracks_exposure else PLAIN_ROWS, len(weights), period.n_sessions))
    n_closes = path[0].size if legs.tracks_exposure else 0
    cap_trades, capped = np.empty((n_closes, weights.shape[1] - 1)), np.empty((2, n_closes), np.int64)
    beyond = hold_rows(
        np.ascontiguousarray(weights, np.float64), np.ascontiguousarray(target, np.float64),
        np.ascontiguousarray(trade), legs.returns, legs.charges, legs.condition, period.decided_at, period.filled_at,
        legs.close_cap, np.inf if legs.fill == "next_open" else legs.close_cap, portfolios, path, turnover, cap_trades,
        capped,
    )  # fmt: skip
    _require_in_panel(beyond, period)
    m = ALL_IN_PANEL - beyond
    return portfolios, path, turnover, cap_trades[:m], capped[:, :m]


def _require_shapes(weights: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod) -> None:
    """Raise if shapes differ: compiled loops do not check bounds."""
    shape = (len(period.decided_at), period.legs.returns.shape[2] + 1)
    if period.n_sessions < 1:
        raise ValueError(f"a period needs at least one session, but has {period.n_sessions}")
    if weights.shape != shape or target.shape != shape or trade.shape != shape[:1]:
        raise ValueError(f"weights, target and trade of {shape} have {weights.shape}, {target.shape}, {trade.shape}")


def _require_in_panel(beyond: int, period: HoldingPeriod) -> None:
    if beyond > ALL_IN_PANEL:
        raise IndexError(
            f"{period.n_sessions} sessions after session {period.decided_at[beyond]} end beyond the panel of "
            f"{period.legs.returns.shape[1]}"
        )
