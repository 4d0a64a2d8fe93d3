"""Simulated account: stored in a book and filled by the bars, at the spec's timing, costs and slippage."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import ClassVar

import numpy as np

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.accounts import opening_account_with_history, settle
from nvtrader_pipelines.envs.dynamics import Transition, holding_period
from nvtrader_pipelines.envs.outcomes import outcomes_of
from nvtrader_pipelines.envs.transition import WHOLE
from nvtrader_pipelines.execution.book import MIN_HOLDING, AccountBook, AccountState, BookedOrder
from nvtrader_pipelines.execution.brokers.broker import Receipt
from nvtrader_pipelines.execution.brokers.fill_simulation import NO_PRICE, FillSettings, FillSimulator, signed_quantity
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
from nvtrader_pipelines.execution.brokers.venue import OrderOutcomes, PolicyInForce, UnplacedOrder, Venue
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.reconciliation import reconcile
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.losses import count_since_loss

CASH_TOLERANCE = 1e-8  # of the account's value


class SimulatedVenue(Venue):
    """Simulated account on one market; all its state is in its book."""

    is_live: ClassVar[bool] = False

    def __init__(self, market: SimulatedMarket, book: AccountBook, spec: FillSettings) -> None:
        super().__init__(book)
        self._market, self._spec = market, spec
        self._simulator = FillSimulator(market, spec)
        self._symbols = market.panel.symbols

    def open_at(self, t: int, in_force: PolicyInForce) -> AccountState:
        """Open the account in cash at the close of session `t`; an open account stays unchanged."""
        state = self._book.last()
        if state is None:
            state = self._make_state(t, opening_account_with_history(len(self._symbols)), in_force)
            self._book.settle(state)
        return state

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[UnplacedOrder]]:
        """Make the orders of a plan decided at the close of session `t`, without storing them; list untradable names.

        Raises:
            ExecutionError: if the account or the plan is of another session, a name that is held or targeted has a bar
                without a price, or the session cannot be settled.
        """
        account = self._account_at(t)
        planned = self._simulator.planned_trades(plan, account, self._require_open().capital, t)
        _require_session(self._market, np.maximum(np.abs(account.weights), np.abs(plan.target)), t + 1)
        halted = ~self._market.tradable(t) & ~self._market.delisted(t)
        changed = np.abs(np.array(plan.target[:-1]) - planned.transition.drifted[0, :-1]) > MIN_HOLDING
        reason = NO_PRICE.format(session=self._market.fill_session(t))
        names = [self._symbols[j] for j in np.flatnonzero(halted & changed)]
        booked = {order.order_id: order for order in self.plan_orders(plan.plan_id)}  # with its quote when placed
        orders = {order.order_id: order for order in planned.orders} | booked
        return tuple(orders.values()), [UnplacedOrder(name, reason) for name in names]

    def submit(self, order: Order) -> Receipt:
        """Place an order, once per id."""
        self._book.place(BookedOrder.accept(order))
        booked = next(booked for booked in self._book.orders(order.plan_id) if booked.order.order_id == order.order_id)
        return Receipt(order.order_id, f"paper-{order.order_id}", booked.status, booked.reason)

    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; return whether it has no fill."""
        self._book.cancel(order.order_id, reason)
        return all(fill.order_id != order.order_id for fill in self._book.fills(order.plan_id))

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order."""
        for open_order in self._book.open_orders():
            self._book.cancel(open_order.order.order_id, reason)

    def fill(self, plan: RebalancePlan, t: int) -> OrderOutcomes:
        """Fill the open orders of a plan decided at the close of session `t`: sells, then buys within cash."""
        opened = self._open_orders(plan.plan_id)
        if opened:
            account = self._account_at(t)
            planned = self._simulator.planned_trades(plan, account, self._require_open().capital, t)
            self._book.fill(*self._simulator.fill(opened, planned, account, t))
        return self._outcomes(plan.plan_id)

    def open_differences(self) -> Sequence[str]:
        """Return the differences of the last close: a simulated account cannot correct itself."""
        return self._require_open().differences

    def settle(
        self,
        t: int,
        plan: RebalancePlan | None,
        in_force: PolicyInForce,
        *,
        decided: bool,
        accepted: bool,  # noqa: ARG002 - one signature
    ) -> AccountState:
        """Mark the account to the close of session `t`, reconcile and store it; a settled session stays unchanged."""
        before = self._require_open()
        session = self._market.panel.sessions[t].item()
        if before.session >= session:
            return before
        account, fills = self._account_at(t - 1), self._book.fills(plan.plan_id) if plan is not None else []
        _require_session(self._market, account.weights, t)
        figures = {}
        if decided:
            orders = self.plan_orders(plan.plan_id) if plan is not None and fills else []
            bought = self._simulator.trade_values(orders, {fill.symbol: signed_quantity(fill) for fill in fills})
            transition, paid = self._simulator.transition(plan, bought, account, before.capital, t - 1)
            figures = {"turnover": float(transition.turnover[0]), "cost": float(transition.cost[0])}
            figures |= {"plan_id": plan.plan_id} if plan is not None and fills else {}
            expected = _expected_shares(self._market, before, bought, paid, t - 1)
            cash = _expected_cash(self._market, before, fills, transition, paid, t - 1)
        else:
            transition = self._market.drift(account, t - 1)
            expected, cash = _adjusted_shares(self._market, before, t - 1), before.weights[-1] * before.value
        growth = float(transition.session_growth[0, 0])
        state = self._make_state(t, settle(account, transition.weights[0], growth), in_force)
        _require_session(self._market, np.array(state.weights), t)
        state = _with_outcomes(self._market, before, state, transition, t - 1, decided=decided)
        cash -= float(transition.exposures.financing[0, 0]) * before.value
        expected, cash = _expected_after_cap(self._market, expected, cash, transition, state)
        differences = [difference.sentence for difference in reconcile(expected, state.shares)]
        if not abs(cash - (held := state.weights[-1] * state.value)) <= CASH_TOLERANCE * state.value:
            differences.append(f"cash: {cash:.2f} expected, {held:.2f} held")
        figures |= {"net_return": float(state.recent_returns[-1]), "differences": tuple(differences)}
        state = state.model_copy(update=figures | _exposure_figures(transition))
        self._book.settle(state)
        return state

    def _make_state(self, t: int, account: Account, in_force: PolicyInForce) -> AccountState:
        """Make the state of the account at the close of session `t`."""
        panel, before = self._market.panel, self._book.last()
        session = panel.sessions[t].item()
        capital = before.capital if before is not None else self._spec.capital
        held = np.flatnonzero(np.abs(account.weights[:-1]) > MIN_HOLDING)
        closes = self._market.prices.last_closes[t]
        value = account.equity * capital
        return AccountState(
            session=session,
            symbols=(*self._symbols, CASH),
            weights=tuple(account.weights.tolist()),
            equity=float(account.equity),
            peak=float(account.peak),
            recent_returns=tuple(account.recent_returns.tolist()),
            capital=capital,
            kept_at=self._spec.kept_at,
            shares={self._symbols[j]: float(account.weights[j] * value / closes[j]) for j in held},
            prices={self._symbols[j]: float(closes[j]) for j in held},
            policy=in_force.policy,
            run_id=in_force.run_id,
            spec_hash=in_force.spec_hash,
            in_replay=in_force.replayed_to is not None and session <= in_force.replayed_to,
            snapshot_ids=panel.snapshot_ids,
        )

    def _account_at(self, t: int) -> Account:
        """Return the account at the close of session `t`, or raise if that is not its last one."""
        state, session = self._require_open(), self._market.panel.sessions[t].item()
        if state.session != session:
            raise ExecutionError(
                f"the account must be settled at {session}, but its last session is {state.session}; trade its "
                "sessions in order"
            )
        account = state.account(self._symbols)
        if not self._market.is_levered:
            _require_long_only(account, (*self._symbols, CASH), session)
        return account


def _with_outcomes(
    market: SimulatedMarket, before: AccountState, state: AccountState, transition: Transition, t: int, *, decided: bool
) -> AccountState:
    """Return the state with the outcomes since the last decision: that at the close of `t`, or an earlier one."""
    symbols = market.panel.symbols
    since_loss, outcomes = before.losses_by(symbols), before.outcomes_by(symbols)
    if decided:
        since_loss = count_since_loss(since_loss, outcomes)
        period = holding_period(market.legs, np.array([t]), 1)
        outcomes = outcomes_of(before.account(symbols).weights[None, :], transition, period)[:, 0]
    else:
        outcomes[0] *= 1.0 + market.legs.returns[WHOLE, t + 1]
    return state.with_outcomes(symbols, since_loss, outcomes)


def _adjusted_shares(market: SimulatedMarket, before: AccountState, t: int) -> dict[str, float]:
    """Shares held at the close of session `t`, adjusted as its prices are now."""
    closes = dict(zip(market.panel.symbols, market.prices.last_closes[t].tolist(), strict=True))
    return {name: shares * before.prices[name] / closes[name] for name, shares in before.shares.items()}


def _expected_shares(
    market: SimulatedMarket, before: AccountState, bought: FloatArray, paid: float, t: int
) -> dict[str, float]:
    """Shares after the fills of a decision at `t`; names without a fill pay the fraction `paid` as cost."""
    changes = {market.panel.symbols[j]: float(bought[j] / market.fill_prices(t)[j]) for j in np.flatnonzero(bought)}
    delisted = {name for name, out in zip(market.panel.symbols, market.delisted(t), strict=True) if out}
    held = {
        name: shares if name in changes else shares * (1.0 - paid)
        for name, shares in _adjusted_shares(market, before, t).items()
        if name not in delisted
    }
    return {name: held.get(name, 0.0) + changes.get(name, 0.0) for name in {*held, *changes}}


def _expected_cash(
    market: SimulatedMarket, before: AccountState, fills: Sequence[Fill], transition: Transition, paid: float, t: int
) -> float:
    """Cash after the fills of a decision at the close of session `t`, account currency.

    Delisted names are paid out in cash; names without a fill pay the fraction `paid`, which cash does not.
    """
    value = market.growth_to_fill(before.account(market.panel.symbols), t) * before.value
    held, delisted = transition.drifted[0, :-1] * value, market.delisted(t)
    filled = {fill.symbol for fill in fills}
    untraded = ~delisted & np.array([symbol not in filled for symbol in market.panel.symbols])
    given = float(held[untraded].sum()) * paid
    spent = sum(signed_quantity(fill) * fill.price + fill.cost for fill in fills)
    return before.weights[-1] * before.value - spent + float(held[delisted].sum()) + given


def _expected_after_cap(
    market: SimulatedMarket, shares: Mapping[str, float], cash: float, transition: Transition, state: AccountState
) -> tuple[dict[str, float], float]:
    """Shares and cash after the trades of the cap on gross at a close; none if the account lost all."""
    if state.equity == 0.0:
        return {}, 0.0
    if transition.cap_trades is None:
        return dict(shares), cash
    left = 1.0 - float(transition.exposures.cap_cost[0, 0])
    closes = market.prices.last_closes[market.panel.index_of(np.datetime64(state.session))]
    held, changes = {name: n * left for name, n in shares.items()}, transition.cap_trades[0, 0] * state.value
    for j in np.flatnonzero(changes):
        held[market.panel.symbols[j]] += float(changes[j] / closes[j])
    return held, cash * left - float(changes.sum())


def _require_long_only(account: Account, symbols: Sequence[str], session: date) -> None:
    if account.weights.min() < -MIN_HOLDING:
        name = symbols[int(np.argmin(account.weights))]
        raise ExecutionError(
            f"a simulated account of a long-only policy must have no short positions and no debt, but {name} is "
            f"{account.weights.min():.6g} of equity at {session}; activate a policy that trades both, empty the "
            "account by `nvtrader portfolio reset`, or use another account"
        )


def _require_session(market: SimulatedMarket, weights: FloatArray, t: int) -> None:
    """Raise unless weights (N+1,) can be marked to the close of session `t` with finite returns."""
    symbols, session = market.panel.symbols, market.panel.sessions[t].item()
    held, tradable = np.abs(weights[:-1]) > MIN_HOLDING, market.panel.tradable[t]
    require_prices(symbols, held & tradable, market.prices.closes[t], session)
    require_prices(symbols, held, market.prices.last_closes[t], session)
    finite = np.isfinite(market.legs.returns[:, t]).all(axis=0)
    if not finite.all():
        raise ExecutionError(
            f"the return of {symbols[int(np.argmin(finite))]} on {session} must be finite, but is not; "
            "check its bars of that session and run the market job"
        )


def _exposure_figures(transition: Transition) -> dict[str, float]:
    """Figures of a levered account's session; none of a long-only one."""
    if transition.tracked is None:
        return {}
    exposures = transition.tracked
    return {
        "gross_before_cap": float(exposures.before_cap[0, 0]),
        "financing": float(exposures.financing[0, 0]),
        "cap_turnover": float(exposures.cap_turnover[0, 0]),
        "cap_cost": float(exposures.cap_cost[0, 0]),
    }
