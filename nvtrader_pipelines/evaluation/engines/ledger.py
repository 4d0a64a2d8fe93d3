"""Account of shares and cash: orders, their fills within a bar, and the value at its close."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.bars import Bar, Bars, market_bars
from nvtrader_pipelines.evaluation.engines.engine import EngineAccount, OrderOutcome, SessionFigures
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import total_cost

FloatArray = NDArray[np.float64]
OrderTiming = Literal["next", "next_open"]
TOLERANCE = 1e-12  # of the account's value: purchases within it of the cash are paid
SHARE_ROUNDING = 1e-6  # of a share: counts as missing by rounding only
NO_PRICE = "no price in this session"
AT_TARGET = "already at its target"
NOT_WHOLE = "less than one whole share"
NO_CASH = "cut to what the cash pays for"


class LedgerSettings(NamedTuple):
    """How an account of shares trades."""

    timing: OrderTiming
    whole_shares: bool
    capital: float  # account currency


@dataclass(frozen=True)
class OrderRequest:
    """Order for the next bar."""

    name: int  # index into the market's names
    shares: float | None  # negative to sell; None: the target weight is sized at the fill
    limit: float | None = None
    weight: float | None = None  # target


class ShareAccount(EngineAccount):
    """Account of shares and cash; orders fill in the bar after their decision, long-only and without debt.

    Its accounts count no decisions since a loss.
    """

    def __init__(
        self,
        panel: MarketPanel,
        environment: EnvSpec,
        t: int,
        settings: LedgerSettings,
        first_closes: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(panel, t)
        self.bars: Bars = market_bars(panel, first_closes)
        self.cash, self.shares = settings.capital, np.zeros(len(panel.symbols))  # account currency; (N,)
        self._settings = settings
        self._fills_at_open = resolve_fill(environment.fill, panel) == "next_open"
        self._cost = total_cost(environment.cost_models, panel)
        self._requests: list[OrderRequest] = []
        self._turnover = self._paid = 0.0  # of the session

    @property
    def value(self) -> float:
        """Cash and shares at the last close, account currency."""
        return self.cash + float(self.shares @ self.bars.closes[self.t])

    @property
    def account(self) -> Account:
        """State at the last close."""
        equity, n_recent = self.value / self._settings.capital, min(len(self.figures), RECENT_SESSIONS)
        recent = np.zeros(RECENT_SESSIONS)
        recent[RECENT_SESSIONS - n_recent :] = [row.net_return for row in self.figures[len(self.figures) - n_recent :]]
        return Account(self._weights_at(self.bars.closes[self.t], self.value), equity, self.peak, recent)

    def last_bar(self) -> Bar:
        """Last closed bar, and the account at its close."""
        bar = self.history(1)
        return Bar(self.panel.sessions[self.t], bar.opens[0], bar.highs[0], bar.lows[0], bar.closes[0], self.account)

    def history(self, n: int) -> Bars:
        """Return copies of the last `n` closed bars."""
        return self.bars.history(self.t, n)

    def order(self, symbol: str, shares: float, limit: float | None = None) -> None:
        """Order shares, negative to sell, for the next bar.

        Raises:
            ValueError: if the market lacks the name, or a number is not finite.
        """
        self._requests.append(OrderRequest(self._index_of(symbol, shares, limit), float(shares), limit))

    def order_target_percent(self, symbol: str, weight: float, limit: float | None = None) -> None:
        """Order what brings a name to a weight in the next bar, in place of an earlier target of the bar.

        Raises:
            ValueError: if the market lacks the name, or a number is not finite.
        """
        name = self._index_of(symbol, weight, limit)
        request = OrderRequest(name, None, limit, float(weight))
        if self._settings.timing == "next":
            request = self._sized(request, self.bars.closes[self.t])
        replaced = [earlier for earlier in self._requests if earlier.name == name and earlier.weight is not None]
        for earlier in replaced:
            self._requests.remove(earlier)
            self._end(earlier, self.t, "replaced by a later target")
        self._requests.append(request)

    def trade(self, target: FloatArray | None, n_sessions: int) -> list[SessionFigures]:
        """Order target weights (N+1,), or nothing for None, and hold; returns the figures of each close."""
        if target is not None:
            for symbol, weight in zip(self.panel.symbols, np.asarray(target)[:-1].tolist(), strict=True):
                self.order_target_percent(symbol, weight)
        for _ in range(n_sessions):
            self.advance()
        return self.figures[-n_sessions:]

    def advance(self) -> None:
        """Fill the orders in the next bar, and move to its close."""
        t = self.t + 1
        opens, closes = self.bars.opens[t], self.bars.closes[t]
        requests, self._requests, self._turnover, self._paid = self._requests, [], 0.0, 0.0
        gone = self.panel.delisted[t]
        self.cash += float(self.shares[gone] @ closes[gone])  # paid out at the last price
        self.shares[gone] = 0.0
        requests = self._end_unpriced(requests, t)
        market = [request for request in requests if request.limit is None]
        limited = [self._sized(request, opens) for request in requests if request.limit is not None]
        crossed = [request for request in limited if _crosses(request, opens[request.name])]
        self._fill([*market, *crossed] if self._fills_at_open else crossed, t, opens)
        self._fill_within([request for request in limited if request not in crossed], t)
        self._fill([] if self._fills_at_open else market, t, closes)
        value = self.cash + float(self.shares @ closes)
        traded = self._turnover, self._paid
        self.record_close(self._weights_at(closes, value), value / self._settings.capital, traded)

    def _fill_within(self, requests: list[OrderRequest], t: int) -> None:
        """Fill limit orders that the bar's range reaches at their limits; end the others.

        Purchases spend no cash of the bar's sales, since which came first is unknown.
        """
        highs, lows = self.bars.highs[t], self.bars.lows[t]
        reached = []
        for request in requests:
            j, limit = request.name, request.limit
            if lows[j] <= limit <= highs[j]:
                reached.append(request)
            else:
                self._end(request, t, f"limit {limit:.6g} is outside [{lows[j]:.6g}, {highs[j]:.6g}]")
        self._fill(reached, t, self.bars.opens[t], at_limits=True)

    def _fill(self, requests: list[OrderRequest], t: int, marks: FloatArray, *, at_limits: bool = False) -> None:
        """Fill orders together, at marks (N,) or at their limits; sales are cut to holdings, purchases to the cash."""
        value = self.cash + float(self.shares @ marks)
        if not requests or not value > 0.0:
            for request in requests:
                self._end(request, t, "the account has lost all")
            return
        batch = _Batch(requests, np.array([r.limit if at_limits else marks[r.name] for r in requests]), value)
        changes, reasons, planned = self._planned(batch, t, marks)
        wanted = changes
        changes = self._affordable(batch, self._whole(changes), t, spends_sales=not at_limits)
        is_complete = np.array_equal(changes, wanted)
        trades = planned if is_complete else self._trades(batch, changes)
        values, cost = changes * batch.prices, self._cost_of(trades, t)
        self.shares += np.bincount(batch.names, changes, len(self.shares))
        self.cash = max(0.0, self.cash - float(values.sum()) - cost * value)
        self._turnover += 0.5 * float(np.abs(trades).sum() + abs(trades.sum()))
        self._paid += cost
        for k, request in enumerate(requests):
            reason = reasons[k] or _cut_reason(float(wanted[k]), float(changes[k]))
            self._record(request, t, reason, (float(changes[k]), float(batch.prices[k]), float(values[k] / value)))

    def _planned(self, batch: "_Batch", t: int, marks: FloatArray) -> tuple[FloatArray, list[str], FloatArray]:
        """Changes of shares (K,) that the holdings allow, reasons of cuts, and changes of weight (N,) with targets."""
        changes, reasons, held = np.zeros(len(batch.requests)), [""] * len(batch.requests), self.shares.copy()
        for k, request in enumerate(batch.requests):
            if request.shares is not None:
                changes[k] = max(request.shares, -held[request.name])
                held[request.name] += min(0.0, changes[k])
            if changes[k] != (request.shares or 0.0) or (request.weight or 0.0) < 0.0:
                reasons[k] = "cut to the shares held"
        trades = self._trades(batch, changes)
        sized = np.array([k for k, request in enumerate(batch.requests) if request.shares is None], dtype=np.int64)
        if not len(sized):
            return changes, reasons, trades
        names, before = batch.names[sized], self.shares * marks / batch.value
        executed = before + trades
        held_beside = executed.sum() - executed[names].sum()
        executed[names] = [max(0.0, batch.requests[k].weight or 0.0) for k in sized]
        room, total = max(0.0, 1.0 - held_beside), executed[names].sum()
        executed[names] *= room / total if total > room else 1.0
        planned = executed - before
        after = executed[names] * batch.value * (1.0 - self._cost_of(planned, t)) / marks[names]
        changes[sized] = after - self.shares[names] - np.bincount(batch.names, changes, len(marks))[names]
        return changes, reasons, planned

    def _affordable(self, batch: "_Batch", changes: FloatArray, t: int, *, spends_sales: bool) -> FloatArray:
        """Changes of shares (K,) with purchases cut in proportion to the cash, after costs."""
        values = changes * batch.prices
        bought, sold = np.maximum(values, 0.0).sum(), -np.minimum(values, 0.0).sum()
        cost = self._cost_of(self._trades(batch, changes), t) * batch.value
        room = max(0.0, self.cash + (sold if spends_sales else 0.0) - cost)
        if bought <= room + TOLERANCE * batch.value:
            return changes
        return self._whole(np.where(changes > 0.0, changes * (room / bought), changes))

    def _whole(self, changes: FloatArray) -> FloatArray:
        """Changes of shares (K,), truncated to whole shares if the account trades whole ones."""
        return np.trunc(changes + np.copysign(SHARE_ROUNDING, changes)) if self._settings.whole_shares else changes

    def _trades(self, batch: "_Batch", changes: FloatArray) -> FloatArray:
        """Changes of weight (N,) by changes of shares (K,)."""
        return np.bincount(batch.names, changes * batch.prices / batch.value, len(self.shares)).astype(np.float64)

    def _cost_of(self, trades: FloatArray, t: int) -> float:
        """Cost of changes of weight (N,), a fraction of equity."""
        return min(1.0, float(self._cost(trades[None, :], np.array([t]))[0]))

    def _sized(self, request: OrderRequest, marks: FloatArray) -> OrderRequest:
        """Order with the shares of its target weight at marks (N,)."""
        if request.shares is not None or request.weight is None or not marks[request.name] > 0.0:
            return request
        value = self.cash + float(self.shares @ marks)
        shares = request.weight * value / marks[request.name] - self.shares[request.name]
        return replace(request, shares=float(shares))

    def _end_unpriced(self, requests: list[OrderRequest], t: int) -> list[OrderRequest]:
        """End the orders of names without a price in session `t`; returns the others."""
        has_price = self.panel.tradable[t] & (self.bars.opens[t] > 0.0) & (self.bars.closes[t] > 0.0)
        for request in requests:
            if not has_price[request.name]:
                self._end(request, t, NO_PRICE)
        return [request for request in requests if has_price[request.name]]

    def _end(self, request: OrderRequest, t: int, reason: str) -> None:
        self._record(request, t, reason, (0.0, None, 0.0))

    def _record(self, request: OrderRequest, t: int, reason: str, filled: tuple[float, float | None, float]) -> None:
        """Record an order, with the shares, price and change of weight that filled."""
        change, price, weight = filled
        wanted = change or (request.weight if request.shares is None else request.shares) or 0.0
        self.orders.append(
            OrderOutcome(
                decided_on=self.panel.sessions[self.t].item(),
                session=self.panel.sessions[t].item(),
                symbol=self.panel.symbols[request.name],
                side="sell" if wanted < 0.0 else "buy",
                quantity=abs(change),
                price=price if change else None,
                limit=request.limit,
                change=weight,
                status="filled" if change else "ended",
                reason=reason,
            )
        )

    def _index_of(self, symbol: str, amount: float, limit: float | None) -> int:
        """Index of a name of an order with finite numbers."""
        if symbol not in self.panel.symbols:
            raise ValueError(
                f"an order must be of a name of the market, but {symbol!r} is none; it has "
                f"{', '.join(self.panel.symbols)}{suggest(symbol, self.panel.symbols)}"
            )
        if not np.isfinite([amount, 0.0 if limit is None else limit]).all():
            raise ValueError(
                f"an order needs finite numbers, but that of {symbol} has {amount:g} with the limit {limit}; check the "
                "strategy's arithmetic"
            )
        return self.panel.symbols.index(symbol)

    def _weights_at(self, marks: FloatArray, value: float) -> FloatArray:
        """Weights (N+1,) at marks (N,); cash of an account that lost all."""
        if not value > 0.0:
            return opening_account(len(marks)).weights
        return np.append(self.shares * marks, self.cash) / value


class _Batch(NamedTuple):
    """Orders that fill together."""

    requests: list[OrderRequest]
    prices: FloatArray  # (K,) of the fills
    value: float  # of the account just before them

    @property
    def names(self) -> NDArray[np.int64]:
        """Indices of the names, (K,)."""
        return np.array([request.name for request in self.requests])


def _crosses(request: OrderRequest, price: float) -> bool:
    """Whether a limit order fills at a price, which is its limit or better."""
    limit = np.nan if request.limit is None else request.limit
    return price >= limit if (request.shares or 0.0) < 0.0 else price <= limit


def _cut_reason(wanted: float, change: float) -> str:
    """Why less than wanted filled; empty for a complete fill."""
    if not wanted:
        return AT_TARGET
    missing = abs(wanted - change)
    if missing <= TOLERANCE * abs(wanted):
        return ""
    return NOT_WHOLE if not change and abs(wanted) < 1.0 else NO_CASH if missing >= 1.0 else NOT_WHOLE
