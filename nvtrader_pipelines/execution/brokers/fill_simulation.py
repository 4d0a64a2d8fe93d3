"""Simulated fills: the orders of a plan at its fill session, and the shares, prices and costs that bars fill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.dynamics import Transition
from nvtrader_pipelines.execution.book import MIN_HOLDING
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket, to_vector
from nvtrader_pipelines.execution.brokers.venue import OrderSettings
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Ticket, make_orders, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage
from nvtrader_pipelines.portfolio.cash import CASH

NO_PRICE = "it has no price on {session}; its holding is unchanged"
NO_LIQUIDITY = "not filled: the session's volume or the cash was used up; the order is cancelled"
FILL_TOLERANCE = 1e-9  # of a trade's value: fills within it count as complete


class FillSettings(OrderSettings, Protocol):
    """Settings of a simulated account by which its orders are sized and filled."""

    @property
    def capital(self) -> float:
        """Account currency at the opening."""
        ...

    @property
    def slippage_bps(self) -> float:
        """Basis points of the price, against every order."""
        ...

    @property
    def volume_share(self) -> float | None:
        """Maximum share of the session's volume per order; None for no limit."""
        ...


@dataclass(frozen=True, eq=False)
class PlannedTrades:
    """Trades of a plan at its fill session."""

    transition: Transition  # if every order fills completely
    orders: tuple[Order, ...]
    prices: FloatArray  # (N,) of the fill
    value: float  # of the account just before the fill, account currency


class FillSimulator:
    """Simulator of fills on one market, with the settings of an account."""

    def __init__(self, market: SimulatedMarket, spec: FillSettings) -> None:
        self._market, self._spec = market, spec
        self._symbols = market.panel.symbols
        self._positions = {symbol: j for j, symbol in enumerate(self._symbols)}
        self._is_plain = not (spec.whole_shares or spec.min_order or spec.skip_below or spec.volume_share)

    def planned_trades(self, plan: RebalancePlan, account: Account, capital: float, t: int) -> PlannedTrades:
        """Return the trades of a plan decided at the close of session `t`.

        Raises:
            ExecutionError: if the plan is of another session, over names without a price, or short or in debt where
                the environment is long-only.
        """
        market, spec = self._market, self._spec
        self._require_plan(plan, t)
        plan = _with_market_names(plan, self._symbols)
        target = np.array(plan.target)
        prices, tradable = market.fill_prices(t), market.tradable(t)
        held = np.maximum(np.abs(account.weights[:-1]), np.abs(target[:-1])) > MIN_HOLDING
        require_prices(self._symbols, held, prices, market.fill_session(t))
        value = market.growth_to_fill(account, t) * account.equity * capital
        transition = market.hold(account, t, target)
        trades = np.abs(transition.trades[0, :-1])
        small = (trades > 0.0) & ((trades < spec.skip_below) | (trades * value < spec.min_order))
        if small.any():
            transition = market.hold(account, t, target, frozen=small)
        executed, drifted = transition.executed[0, :-1], transition.drifted[0, :-1]
        changes = (executed * (1.0 - transition.cost[0]) - drifted) * value
        traded = (transition.trades[0, :-1] != 0.0) & tradable & ~small
        shares = np.divide(changes, prices, out=np.zeros_like(changes), where=traded)
        ticket = Ticket(plan, market.fill_session(t), shares, prices)
        orders = make_orders(ticket, whole_shares=spec.whole_shares, min_order=spec.min_order)
        return PlannedTrades(transition, orders, prices, value)

    def fill(
        self, orders: Sequence[Order], planned: PlannedTrades, account: Account, t: int
    ) -> tuple[list[Fill], dict[str, str]]:
        """Fill open orders; return the fills, and the reasons of orders without a fill by id."""
        return self._make_fills(orders, self._filled_shares(orders, planned, account, t), planned, t)

    def transition(
        self, plan: RebalancePlan | None, bought: FloatArray, account: Account, capital: float, t: int
    ) -> tuple[Transition, float]:
        """Return the transition after a decision at session `t`, and the fraction of unfilled names paid as cost.

        A back-test charges costs to all positions in proportion; after partial fills, cash pays them. The value
        `bought` (N,), negative if sold, is in account currency, of which `capital` is a unit of equity.
        """
        if plan is None or not bought.any():
            return self._market.hold(account, t, None), 0.0
        planned = self.planned_trades(plan, account, capital, t)
        if self._is_complete(bought, planned):
            return planned.transition, float(planned.transition.cost[0])
        return self._market.partial_fill(account, t, bought / planned.value), 0.0

    def trade_values(self, orders: Sequence[Order], shares: Mapping[str, float]) -> FloatArray:
        """Value (N,) of signed shares by name, at the orders' quotes, account currency."""
        values = np.zeros(len(self._symbols))
        for order in orders:
            if order.symbol in shares and order.symbol in self._positions:
                values[self._positions[order.symbol]] = shares[order.symbol] * order.quote
        return values

    def _filled_shares(
        self, orders: Sequence[Order], planned: PlannedTrades, account: Account, t: int
    ) -> dict[str, float]:
        """Signed shares by name that fill, adjusted as the orders' quotes are.

        Placed orders keep their value at their quotes, since prices may have been adjusted again.
        """
        limits = _volume_limits(self._market, self._spec.volume_share, t) * planned.prices
        most = {
            order.symbol: min(order.quantity, limits[self._positions[order.symbol]] / order.quote) for order in orders
        }
        filled = {order.symbol: np.copysign(most[order.symbol], signed_quantity(order)) for order in orders}
        bought = self.trade_values(orders, filled)
        if self._is_complete(bought, planned):
            return filled
        left, cost = planned.transition.executed[0, -1], planned.transition.cost[0]
        share = self._market.affordable_share(account, t, bought / planned.value, left * (1.0 - cost))
        paid = {symbol: shares * share if shares > 0.0 else shares for symbol, shares in filled.items()}
        if not self._spec.whole_shares:
            return paid
        exits = {order.symbol: order.quantity for order in orders if order.target_weight == 0.0}
        return {
            symbol: shares if abs(shares) == exits.get(symbol) else float(np.trunc(shares + np.copysign(1e-6, shares)))
            for symbol, shares in paid.items()
        }

    def _make_fills(
        self, orders: Sequence[Order], filled: dict[str, float], planned: PlannedTrades, t: int
    ) -> tuple[list[Fill], dict[str, str]]:
        """Make the fills with prices and fees, and the reasons of orders without a fill."""
        slippage = self._spec.slippage_bps * 1e-4
        traded = self.trade_values(orders, filled)
        is_complete = self._is_complete(traded, planned)
        cost = float(planned.transition.cost[0]) if is_complete else self._market.cost_of(traded / planned.value, t)
        gross = np.abs(traded).sum()
        fees = cost * planned.value - slippage * gross
        fills, unfilled, tradable = [], {}, self._market.tradable(t)
        for order in orders:
            shares = filled[order.symbol]
            if shares == 0.0:
                reason = NO_LIQUIDITY if tradable[self._positions[order.symbol]] else NO_PRICE
                unfilled[order.order_id] = reason.format(session=order.session)
                continue
            fills.append(
                Fill(
                    order_id=order.order_id,
                    symbol=order.symbol,
                    side=order.side,
                    quantity=abs(shares),
                    price=float(order.quote * (1.0 + np.copysign(slippage, shares))),
                    cost=float(fees * abs(traded[self._positions[order.symbol]]) / gross),
                    session=order.session,
                    complete=abs(shares) >= order.quantity,
                )
            )
        return fills, unfilled

    def _is_complete(self, bought: FloatArray, planned: PlannedTrades) -> bool:
        """Whether the values bought (N,) are those of a back-test; never if the account rounds or drops orders."""
        complete = self.trade_values(planned.orders, {order.symbol: signed_quantity(order) for order in planned.orders})
        return self._is_plain and bool((np.abs(bought - complete) <= FILL_TOLERANCE * np.abs(complete)).all())

    def _require_plan(self, plan: RebalancePlan, t: int) -> None:
        session = self._market.panel.sessions[t].item()
        if plan.session != session:
            raise ExecutionError(
                f"a plan must fill in the session after its decision, but plan {plan.plan_id} is of {plan.session} and "
                f"the account is settled at {session}; wait for the next plan"
            )
        if not self._market.is_levered and min(plan.target) < -MIN_HOLDING:
            raise ExecutionError(
                f"the account of a long-only policy holds no short positions and no debt, but plan {plan.plan_id} has "
                f"{plan.symbols[int(np.argmin(plan.target))]} at {min(plan.target):.6g}; use a policy on the simplex"
            )


def _volume_limits(market: SimulatedMarket, volume_share: float | None, t: int) -> FloatArray:
    """Maximum shares (N,) that may be traded in the fill session of a decision at `t`."""
    tradable = market.tradable(t)
    if volume_share is None:
        return np.where(tradable, np.inf, 0.0)
    return np.where(tradable, volume_share * np.nan_to_num(market.prices.volumes[market.filled_at(t)]), 0.0)


def _with_market_names(plan: RebalancePlan, symbols: Sequence[str]) -> RebalancePlan:
    """Return the plan over the names of the market, which may have changed since the decision.

    Raises:
        ExecutionError: if it targets a name that the market lacks.
    """
    names = (*symbols, CASH)
    if plan.symbols == names:
        return plan
    target = dict(zip(plan.symbols, plan.target, strict=True))
    unknown = [name for name, weight in target.items() if abs(weight) > MIN_HOLDING and name not in names]
    if unknown:
        raise ExecutionError(
            f"plan {plan.plan_id} traded {', '.join(unknown)}, which the market of the active policy does not "
            "have; activate the policy that made it until its session is settled"
        )
    last = Stage(name=plan.stages[-1].name, weights=tuple(to_vector(names, target).tolist()))
    return plan.model_copy(update={"symbols": names, "stages": (last,)})


def signed_quantity(order: Order | Fill) -> float:
    """Shares of an order or fill, negative if sold."""
    return order.quantity if order.side == "buy" else -order.quantity
