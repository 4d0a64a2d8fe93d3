"""The one transition of the account: drift, trade once, pay, drift on; environments and back-tests share it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostFunction

FillTiming = Literal["next_open", "next_close", "same_close"]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Account:
    """One portfolio at the close of a session."""

    weights: FloatArray  # (N+1,) of equity, cash last
    equity: float = 1.0
    peak: float = 1.0

    @property
    def drawdown(self) -> float:
        """Loss from the highest equity so far, as a positive fraction."""
        return 1.0 - self.equity / self.peak


def opening_account(n_symbols: int) -> Account:
    """An account of equity 1, all in cash."""
    weights = np.zeros(n_symbols + 1)
    weights[-1] = 1.0
    return Account(weights=weights)


@dataclass(frozen=True, eq=False)
class Legs:
    """Each session's returns split at the moment an order fills, all (T, N) fractions."""

    before_fill: FloatArray
    after_fill: FloatArray
    whole: FloatArray


def resolve_fill(fill: FillTiming, panel: MarketPanel) -> FillTiming:
    """The fill timing the panel supports: `next_open` needs opens and is `next_close` without them."""
    return "next_close" if fill == "next_open" and panel.overnight_returns is None else fill


def market_legs(panel: MarketPanel, fill: FillTiming) -> Legs:
    """Returns before and after the fill, for a decision at the close of the session before.

    Raises:
        ValueError: if the fill is `next_open` and the panel has no opens.
    """
    whole = panel.close_returns
    still = np.zeros_like(whole)
    if fill == "next_close":
        return Legs(before_fill=whole, after_fill=still, whole=whole)
    if fill == "same_close":
        return Legs(before_fill=still, after_fill=whole, whole=whole)
    if panel.overnight_returns is None:
        raise ValueError(
            f"next_open fills need opening prices, but the panel of {panel.source!r} has only closes; "
            "choose next_close or deliver opens"
        )
    intraday = (1.0 + whole) / (1.0 + panel.overnight_returns) - 1.0
    return Legs(before_fill=panel.overnight_returns, after_fill=intraday, whole=whole)


@dataclass(frozen=True, eq=False)
class HoldingPeriod:
    """What the market does to n portfolios from one decision to the next, `k` sessions later."""

    before_fill: FloatArray  # (n, N) from the decision to the fill
    after_fill: FloatArray  # (n, N) from the fill to that session's close
    later: FloatArray  # (n, k-1, N) the sessions after
    tradable: NDArray[np.bool_]  # (n, N) at the fill
    delisted: NDArray[np.bool_]  # (n, N) at the fill
    filled_at: NDArray[np.int64]  # (n,) session of the fill


def holding_period(
    panel: MarketPanel, legs: Legs, decided_at: NDArray[np.int64], n_sessions: int, *, fill: FillTiming
) -> HoldingPeriod:
    """The periods that follow decisions at the closes of `decided_at` (n,), each `n_sessions` long."""
    filled_at = decided_at if fill == "same_close" else decided_at + 1
    later = decided_at[:, None] + np.arange(2, n_sessions + 1)
    return HoldingPeriod(
        before_fill=legs.before_fill[decided_at + 1],
        after_fill=legs.after_fill[decided_at + 1],
        later=legs.whole[later],
        tradable=panel.tradable[filled_at],
        delisted=panel.delisted[filled_at],
        filled_at=filled_at,
    )


@dataclass(frozen=True, eq=False)
class Transition:
    """What one decision did to n portfolios over the k sessions until the next."""

    session_growth: FloatArray  # (n, k) equity over equity one session earlier, net of cost
    session_cash: FloatArray  # (n, k) weight of cash at each close
    drifted: FloatArray  # (n, N+1) just before the trade
    executed: FloatArray  # (n, N+1) just after the trade
    weights: FloatArray  # (n, N+1) at the last close
    trades: FloatArray  # (n, N+1) change of weight by trading, cash last; a write-off is no trade
    turnover: FloatArray  # (n,) one-way: half the sum of absolute trades
    cost: FloatArray  # (n,) fraction of equity paid at the fill

    @property
    def growth(self) -> FloatArray:
        """Equity at the end over equity at the start, net of cost, (n,)."""
        return self.session_growth.prod(axis=1)


def _drift(weights: FloatArray, returns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (n, N+1) after the names earned `returns` (n, N) and cash nothing; and the growth (n,)."""
    grown = weights.copy()
    grown[:, :-1] *= 1.0 + returns
    growth = grown.sum(axis=1)
    if growth.all():
        return grown / growth[:, None], growth
    lost = growth == 0.0  # nothing is left, and it is cash
    grown[lost, -1] = 1.0
    return grown / np.where(lost, 1.0, growth)[:, None], growth


def closes(executed: FloatArray, period: HoldingPeriod) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Weights (n, N+1) at each close of the period, and growth (n,) from the fill or the close before to it."""
    held, growth = _drift(executed, period.after_fill)
    yield held, growth
    for session in range(period.later.shape[1]):
        held, growth = _drift(held, period.later[:, session])
        yield held, growth


def _execute(drifted: FloatArray, target: FloatArray, trade: NDArray[np.bool_], period: HoldingPeriod) -> FloatArray:
    """Weights after the trade: names without a price stay as they are, delisted ones become cash."""
    held = np.where(period.delisted, 0.0, drifted[:, :-1])
    movable = period.tradable & trade[:, None]
    frozen = np.where(movable, 0.0, held)
    wanted = np.where(movable, target[:, :-1], 0.0)
    room = 1.0 - frozen.sum(axis=1)
    total = wanted.sum(axis=1)
    scale = np.where(total > room, room / np.where(total > 0.0, total, 1.0), 1.0)
    executed = np.empty_like(drifted)
    executed[:, :-1] = np.where(movable, wanted * scale[:, None], held)
    executed[:, -1] = np.maximum(0.0, 1.0 - executed[:, :-1].sum(axis=1))
    return executed


def hold(
    weights: FloatArray,
    target: FloatArray,
    trade: NDArray[np.bool_],
    period: HoldingPeriod,
    cost: CostFunction,
) -> Transition:
    """Trade once to `target` and hold: the accounting of one decision.

    The cost is taken pro rata from every position, so the executed weights are those after it too.

    Args:
        weights: (n, N+1) at the close of the decision, cash last, rows sum to 1.
        target: (n, N+1) wanted weights, cash last, rows sum to 1; ignored where `trade` is False.
        trade: (n,) whether the portfolio trades at all.
        period: what the market does.
        cost: what the trades of the names, from drifted weights, take from equity; at most all of it is taken.
    """
    drifted, growth_before = _drift(weights, period.before_fill)
    executed = _execute(drifted, target, trade, period)
    trades = np.zeros_like(executed)
    trades[:, :-1] = np.where(period.delisted, 0.0, executed[:, :-1] - drifted[:, :-1])
    trades[:, -1] = -trades[:, :-1].sum(axis=1)
    paid = np.minimum(1.0, cost(trades[:, :-1], period.filled_at))
    session_growth = np.empty((len(weights), period.later.shape[1] + 1))
    session_cash = np.empty_like(session_growth)
    held = executed
    for session, (held, growth) in enumerate(closes(executed, period)):
        session_growth[:, session] = growth
        session_cash[:, session] = held[:, -1]
    session_growth[:, 0] *= growth_before * (1.0 - paid)
    return Transition(
        session_growth=session_growth,
        session_cash=session_cash,
        drifted=drifted,
        executed=executed,
        weights=held,
        trades=trades,
        turnover=0.5 * np.abs(trades).sum(axis=1),
        cost=paid,
    )
