"""Account of shares and cash: orders, their fills within a bar, and the value at its close."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.bars import market_bars
from nvtrader_pipelines.evaluation.engines.engine_account import EngineAccount, OrderOutcome, SessionFigures
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import total_cost

TOLERANCE = 1e-12  # of the account's value: purchases that exceed the cash by less are paid
SHARE_ROUNDING = 1e-6  # of a share: missing by rounding only


class LedgerSettings(Component):
    """Orders, shares and prices of an account of shares and cash."""

    timing: Literal["next", "next_open"] = "next"  # target weights are sized at the decision's close, or at the open
    whole_shares: bool = False
    capital: PositiveFloat = 1_000_000.0  # account currency
    first_closes: dict[str, PositiveFloat] = Field(default={})  # of the panel's first session, else near 100


@dataclass(frozen=True)
class OrderRequest:
    """Order for the next bar."""

    name: int  # index into the market's names
    is_sale: bool  # at the decision
    shares: float  # negative to sell; NaN: the target weight is sized at the fill
    limit: float | None
    weight: float | None = None  # target


class ShareAccount(EngineAccount):
    """Account of shares and cash; orders fill in the bar after their decision, long-only and without debt.

    A name's losses are not counted: timings that need them see none.
    """

    def __init__(self, panel: MarketPanel, environment: EnvSpec, t: int, spec: LedgerSettings) -> None:
        super().__init__(panel, t)
        self._spec, self.bars = spec, market_bars(panel, spec.first_closes)
        self.cash, self.shares = spec.capital, np.zeros(len(panel.symbols))  # account currency; (N,)
        self._fills_at_open = resolve_fill(environment.fill, panel) == "next_open"
        self._cost = total_cost(environment.cost_models, panel)
        self._requests: list[OrderRequest] = []
        self._turnover = self._paid = 0.0  # of the session

    @property
    def value(self) -> float:
        """Cash and shares at the last close, account currency."""
        return self._value_at(self.bars.closes[self.t])

    @property
    def account(self) -> Account:
        """State at the last close."""
        recent = [0.0] * RECENT_SESSIONS + [row.net_return for row in self.figures[-RECENT_SESSIONS:]]
        weights = self._weights_at(self.bars.closes[self.t])
        return Account(weights, self.value / self._spec.capital, self.peak, np.array(recent[-RECENT_SESSIONS:]))

    def order(self, symbol: str, shares: float, limit: float | None = None) -> None:
        """Order shares, negative to sell, for the next bar; at the market without a limit.

        Raises:
            ValueError: if the market lacks the name, or a number is not finite.
        """
        j = self._position(symbol, shares, limit)
        self._requests.append(OrderRequest(j, shares < 0.0, float(shares), limit))

    def order_target_percent(self, symbol: str, weight: float, limit: float | None = None) -> None:
        """Order a weight, a fraction of equity, for the next bar, in place of an earlier target.

        Raises:
            ValueError: if the market lacks the name, or a number is not finite.
        """
        j, closes = self._position(symbol, weight, limit), self.bars.closes[self.t]
        request = OrderRequest(j, weight < self._weights_at(closes)[j], np.nan, limit, float(weight))
        for earlier in [each for each in self._requests if each.name == j and each.weight is not None]:
            self._requests.remove(earlier)
            self._record(earlier, self.t, "replaced by a later target")
        self._requests.append(self._sized(request, closes) if self._spec.timing == "next" else request)

    def trade(self, target: FloatArray | None, n_sessions: int) -> list[SessionFigures]:
        """Order target weights (N+1,), or nothing for None, and hold; returns the figures of each close."""
        if target is not None:
            for symbol, weight in zip(self.panel.symbols, target[:-1].tolist(), strict=True):
                self.order_target_percent(symbol, weight)
        for _ in range(n_sessions):
            self.advance()
        return self.figures[-n_sessions:]

    def advance(self) -> None:
        """Fill the orders in the next bar, and move to its close."""
        t, requests = self.t + 1, self._requests
        opens, closes, delisted = self.bars.opens[t], self.bars.closes[t], self.panel.delisted[t]
        self._requests, self._turnover, self._paid = [], 0.0, 0.0
        self.cash += float(self.shares[delisted] @ closes[delisted])  # paid out at the last price
        self.shares[delisted] = 0.0
        has_price = self.panel.tradable[t] & (opens > 0.0) & ((closes > 0.0) | self._fills_at_open)
        for request in requests:
            if not has_price[request.name]:
                self._record(request, t, "no price in this session")
        priced = [request for request in requests if has_price[request.name]]
        market = [request for request in priced if request.limit is None]
        limited = [self._sized(request, opens) for request in priced if request.limit is not None]
        has_open = self.panel.overnight_returns is not None
        at_open = [r for r in limited if has_open and np.sign(r.shares) * (opens[r.name] - (r.limit or 0.0)) <= 0.0]
        self._fill([*market, *at_open] if self._fills_at_open else at_open, t, opens)
        self._fill_within([request for request in limited if request not in at_open], t)
        self._fill([] if self._fills_at_open else market, t, closes)
        equity = self._value_at(closes) / self._spec.capital
        self.record_close(self._weights_at(closes), equity, self._turnover, self._paid)

    def _fill_within(self, requests: list[OrderRequest], t: int) -> None:
        """Fill limit orders that the bar's range reaches, at their limits; the others end.

        Purchases spend no cash of the bar's sales, since which came first is unknown.
        """
        reached = []
        for request in requests:
            low, high = self.bars.lows[t, request.name], self.bars.highs[t, request.name]
            if low <= (request.limit or 0.0) <= high:
                reached.append(request)
            else:
                self._record(request, t, f"the limit {request.limit:.6g} is outside [{low:.6g}, {high:.6g}]")
        self._fill(reached, t, self.bars.opens[t], at_limits=True)

    def _fill(self, requests: list[OrderRequest], t: int, marks: FloatArray, *, at_limits: bool = False) -> None:
        """Fill orders together, at marks (N,) or their limits: sales of what is held, purchases that cash pays."""
        value = self._value_at(marks)
        if not requests or not value > 0.0:
            for request in requests:
                self._record(request, t, "the account has lost all")
            return
        names = np.array([request.name for request in requests])
        prices = np.array([request.limit if at_limits else marks[request.name] for request in requests])
        wanted, planned = self._wanted(requests, prices, marks, t)

        held = self._cut_to_holdings(names, wanted)
        whole = self._whole(held)
        bought, sold = (float((np.maximum(sign * whole, 0.0) * prices).sum()) for sign in (1.0, -1.0))
        funds, filled = self.cash + (0.0 if at_limits else sold), whole
        changes = np.where(whole == wanted, planned, whole * prices / value)
        cost = self._cost_of(names, changes, t)
        if bought > max(0.0, funds - cost * value) + TOLERANCE * value:
            room = max(0.0, funds - self._cost_of(names, whole * prices / value, t) * value)  # what is cut costs less
            filled = self._whole(np.where(whole > 0.0, whole * (room / bought), whole))
            changes = filled * prices / value
            cost = self._cost_of(names, changes, t)
        self.shares = np.maximum(0.0, self.shares + self._by_name(names, filled))  # sums of sales may round below zero
        self.cash = max(0.0, self.cash - float((filled * prices).sum()) - cost * value)
        self._turnover += 0.5 * float(np.abs(changes).sum() + abs(changes.sum()))
        self._paid += cost
        for k, request in enumerate(requests):
            reason = _reason(wanted[k], held[k], whole[k], filled[k])
            self._record(request, t, reason, float(filled[k]), float(prices[k]), float(changes[k]))

    def _wanted(
        self, requests: list[OrderRequest], prices: FloatArray, marks: FloatArray, t: int
    ) -> tuple[FloatArray, FloatArray]:
        """Shares (K,) of orders, of target weights at marks (N,), and their changes of weight (K,) before costs.

        The cost is taken pro rata from what is bought, as by the environment's transition.
        """
        value, wanted = self._value_at(marks), np.array([request.shares for request in requests])
        planned, targets = wanted * prices / value, [request for request in requests if np.isnan(request.shares)]
        if targets:
            names, weights = np.array([r.name for r in targets]), np.array([r.weight or 0.0 for r in targets])
            before, executed = self.shares * marks / value, np.maximum(weights, 0.0)
            room, total = max(0.0, 1.0 - np.delete(before, names).sum()), executed.sum()
            executed *= room / total if total > room else 1.0
            planned[np.isnan(wanted)] = changes = executed - before[names]
            after = executed * (1.0 - self._cost_of(names, changes, t)) + np.minimum(weights, 0.0)  # below 0: cut later
            wanted[np.isnan(wanted)] = after * value / marks[names] - self.shares[names]
        return wanted, planned

    def _cut_to_holdings(self, names: NDArray[np.int64], wanted: FloatArray) -> FloatArray:
        """Shares (K,) of orders with sales cut to what is held, in order."""
        cut, held = wanted.copy(), self.shares.copy()
        for k in np.flatnonzero(wanted < 0.0):
            cut[k] = max(wanted[k], -held[names[k]])
            held[names[k]] += cut[k]
        return cut

    def _whole(self, shares: FloatArray) -> FloatArray:
        """Shares (K,), truncated if the account trades whole ones."""
        return np.trunc(shares + np.copysign(SHARE_ROUNDING, shares)) if self._spec.whole_shares else shares

    def _by_name(self, names: NDArray[np.int64], changes: FloatArray) -> FloatArray:
        """Sums (N,) of changes (K,) by name."""
        return np.bincount(names, changes, len(self.shares)).astype(np.float64)

    def _cost_of(self, names: NDArray[np.int64], changes: FloatArray, t: int) -> float:
        """Cost of changes of weight (K,), a fraction of equity; purchases and sales of one name do not net."""
        sides = [self._by_name(names, np.maximum(changes, 0.0)), self._by_name(names, np.minimum(changes, 0.0))]
        return min(1.0, float(self._cost(np.stack(sides), np.array([t, t])).sum()))

    def _sized(self, request: OrderRequest, marks: FloatArray) -> OrderRequest:
        """Order with the shares of its target weight at marks (N,)."""
        mark = marks[request.name]
        if request.weight is None or not np.isnan(request.shares) or not mark > 0.0:
            return request
        shares = request.weight * self._value_at(marks) / mark - self.shares[request.name]
        return replace(request, shares=float(shares))

    def _value_at(self, marks: FloatArray) -> float:
        """Cash and shares at marks (N,), account currency."""
        return self.cash + float(self.shares @ marks)

    def _weights_at(self, marks: FloatArray) -> FloatArray:
        """Weights (N+1,) at marks (N,); cash of an account that lost all."""
        value = self._value_at(marks)
        return np.append(self.shares * marks, self.cash) / value if value > 0.0 else opening_account(len(marks)).weights

    def _position(self, symbol: str, amount: float, limit: float | None) -> int:
        """Index of the name of an order with finite numbers."""
        if symbol not in self.panel.symbols:
            near = suggest(symbol, self.panel.symbols)
            raise ValueError(f"an order must be of a name of the market, but it has no {symbol!r}; choose one{near}")
        if not np.isfinite([amount, limit or 0.0]).all():
            raise ValueError(f"an order needs finite numbers, but {symbol} has {amount} at limit {limit}; check them")
        return self.panel.symbols.index(symbol)

    def _record(
        self, request: OrderRequest, t: int, reason: str, shares: float = 0.0, price: float = 0.0, change: float = 0.0
    ) -> None:
        """Record an order that ends in session `t`, with its shares, price and change of weight."""
        days, symbol = self.panel.sessions[[self.t, t]].tolist(), self.panel.symbols[request.name]
        side = "sell" if (shares < 0.0 if shares else request.is_sale) else "buy"
        what = abs(shares), price if shares else None, request.limit, change, "filled" if shares else "ended", reason
        self.orders.append(OrderOutcome(*days, symbol, side, *what))


def _reason(wanted: float, held: float, whole: float, filled: float) -> str:
    """Why an order fills with less than wanted; empty for a complete fill."""
    if held != wanted:
        return "cut to the shares held"
    if filled != whole:
        return "cut to what the cash pays for"
    if whole != held:
        return "rounded down to whole shares"
    return "" if filled else "nothing to trade"
