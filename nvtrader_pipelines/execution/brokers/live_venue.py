"""Account at a broker: orders are sized from the last closes and wait for the open; holdings are the broker's."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import opening_account_with_history
from nvtrader_pipelines.envs.outcomes import MIN_POSITION
from nvtrader_pipelines.execution.book import MIN_HOLDING, AccountBook, AccountState, BookedOrder
from nvtrader_pipelines.execution.brokers.broker import (
    Broker,
    BrokerHoldings,
    BrokerTimeout,
    CashActivity,
    CashKind,
    Receipt,
)
from nvtrader_pipelines.execution.brokers.broker_reconciliation import (
    MAX_BOOKING_DELAY,
    FillsSinceClose,
    cash_by_kind,
    fills_since,
    open_quantities,
    split_ratio,
    unitize,
)
from nvtrader_pipelines.execution.brokers.venue import (
    OrderOutcomes,
    OrderSettings,
    PolicyInForce,
    UnplacedOrder,
    Venue,
)
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Order, PanelPrices, Ticket, make_orders, plan_id_of, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.reconciliation import reconcile
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.losses import count_since_loss

MAX_TIMEOUTS = 3  # in a row, before the broker counts as unreachable
SPENT = 0.98  # share of cash to spend: opens may be above the closes that size the orders
UNPAID = "cash does not pay for it before the sells are filled; the next plan may buy it"
ENDED = "it ended at the broker without a fill"
REPLACED = "a later plan replaces it"


class LiveVenue(Venue):
    """Account at a broker on a panel, with time-weighted returns: cash flows are not returns."""

    is_live: ClassVar[bool] = True

    def __init__(
        self, broker: Broker, market: tuple[MarketPanel, PanelPrices], book: AccountBook, spec: OrderSettings
    ) -> None:
        super().__init__(book)
        self._broker, self._spec = broker, spec
        self._panel, self._prices = market

    def open_at(self, t: int, in_force: PolicyInForce) -> AccountState:
        """Open the account with the broker's holdings; an open account stays unchanged."""
        state = self._book.last()
        if state is None:
            activities = self._broker.activities(self._session(t) - MAX_BOOKING_DELAY)
            state = self._make_state(t, None, in_force, activities)
            self._book.settle(state)
        return state

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[UnplacedOrder]]:
        """Make and store the orders of a plan, sells first, and list names that are not traded.

        Orders are sized from the broker's holdings and the closes of session `t`. They are stored together before the
        first is placed, so a retry gives the same orders. Open orders of earlier plans are cancelled first; until the
        broker confirms it they count as filled, so no two plans trade the same shares.

        Raises:
            ExecutionError: if the plan is over other names, short or in debt, a name that is held or targeted has a bar
                without a price, or the account is short or in debt.
        """
        session, symbols = self._session(t), self._panel.symbols
        _require_names(plan, symbols)
        _require_long_only(plan)
        earlier = [
            open_order.order for open_order in self._book.open_orders() if open_order.order.plan_id != plan.plan_id
        ]
        _cancel_orders(self._broker, self._book, earlier, REPLACED)
        holdings = _read_holdings(self._broker, symbols, session)
        pending = _to_array(symbols, open_quantities(self._broker, self._book, plan))
        target, held = np.array(plan.target[:-1]), _to_array(symbols, holdings.shares) + pending
        closes, tradable = self._prices.closes[t], self._panel.tradable[t]
        needed = (target > MIN_HOLDING) | (held != 0.0)
        require_prices(symbols, needed & tradable, closes, session)
        require_prices(symbols, needed, self._prices.last_closes[t], session)
        prices = np.nan_to_num(self._prices.last_closes[t])
        equity = holdings.cash + float((held - pending) @ prices)
        shares = np.divide(target * equity, closes, out=held.copy(), where=tradable & needed) - held
        changes = np.abs(shares) * prices
        shares[(changes < self._spec.min_order) | (changes < self._spec.skip_below * equity)] = 0.0
        cash = holdings.cash - float(np.maximum(pending, 0.0) @ prices)
        cash = cash if holdings.to_spend is None else min(cash, holdings.to_spend)
        wanted = self._make_orders(Ticket(plan, session, shares, closes))
        paid = self._make_orders(Ticket(plan, session, _scale_buys(shares, prices, cash), closes))
        orders = self.plan_orders(plan.plan_id) or paid
        self._book.place(*(BookedOrder.accept(order) for order in orders))
        changed, ordered = np.abs(target - held * prices / equity) > MIN_HOLDING, {order.symbol for order in orders}
        halted = [symbols[j] for j in np.flatnonzero(changed & ~tradable)]
        return orders, [
            *(UnplacedOrder(name, f"it has no price on {session}; its holding is unchanged") for name in halted),
            *(UnplacedOrder(order.symbol, UNPAID) for order in wanted if order.symbol not in ordered),
        ]

    def _make_orders(self, ticket: Ticket) -> Sequence[Order]:
        return make_orders(ticket, whole_shares=self._spec.whole_shares, min_order=self._spec.min_order)

    def submit(self, order: Order) -> Receipt:
        """Place an order, once per id.

        Raises:
            ExecutionError: if the broker does not answer; a retry submits the order with the same id.
        """
        try:
            receipt = self._broker.submit(order)
        except BrokerTimeout as error:
            raise ExecutionError(
                f"the broker must answer, but did not for order {order.order_id} ({error}); run this again: the order "
                "is placed once, by its id"
            ) from error
        if receipt.status == "rejected":
            self._book.cancel(order.order_id, receipt.reason)
        return receipt

    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; return whether the broker confirms that it has no fill."""
        self._broker.cancel(order.order_id)
        _update_book(self._broker, self._book, [order], reason)
        booked = self._book.orders(order.plan_id)
        return any(other.order.order_id == order.order_id and other.status == "cancelled" for other in booked)

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order in the account's book."""
        cancel_open_orders(self._broker, self._book, reason)

    def fill(self, plan: RebalancePlan, t: int) -> OrderOutcomes:  # noqa: ARG002 - one signature
        """Update the book with the broker's outcomes of a plan's orders, and return those; open orders stay open."""
        _update_book(self._broker, self._book, self._open_orders(plan.plan_id), ENDED)
        return self._outcomes(plan.plan_id)

    def open_differences(self) -> Sequence[str]:
        """Return the differences of the last close that still exist, after late fills."""
        last = self._require_open()
        if last.expected is None:
            return last.differences
        expected = fills_since(last, None, self._broker, self._book).apply(last.expected)
        actual = _read_holdings(self._broker, self._panel.symbols, last.session).shares
        return [difference.sentence for difference in reconcile(expected, actual)]

    def settle(
        self,
        t: int,
        plan: RebalancePlan | None,
        in_force: PolicyInForce,
        *,
        decided: bool,
        accepted: bool,
    ) -> AccountState:
        """Mark the broker's holdings to the close of session `t`, reconcile and store the state."""
        before = self._require_open()
        if before.session >= self._session(t):
            return before
        fills = fills_since(before, plan, self._broker, self._book)
        state = self._make_state(t, before, in_force, self._broker.activities(before.session - MAX_BOOKING_DELAY))
        base = before.shares if accepted or before.expected is None else before.expected
        expected = fills.apply(self._apply_splits(before, base, fills, state.shares))
        differences = reconcile(expected, state.shares)
        state = state.model_copy(
            update={
                "differences": tuple(difference.sentence for difference in differences),
                "expected": expected if differences else None,
                "working": fills.working,
                "plan_id": plan_id_of(fills.new[-1].order_id) if fills.new else None,
                "turnover": max(fills.traded_value("buy"), fills.traded_value("sell")) / before.value,
                "cost": state.cost + sum(fill.cost for fill in fills.new) / before.value,
            }
        )
        state = _with_outcomes(self._panel.symbols, state, before, fills, decided=decided)
        self._book.settle(state)
        return state

    def _apply_splits(
        self, before: AccountState, shares: Mapping[str, float], fills: FillsSinceClose, actual: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the shares of the last close after splits that the broker and the bars agree on."""
        t, filled = self._panel.index_of(np.datetime64(before.session)), fills.apply({})
        closes = dict(zip(self._panel.symbols, self._prices.last_closes[t].tolist(), strict=True))
        adjusted = {name: close / closes[name] for name, close in before.prices.items() if name in closes}
        since = {name: actual.get(name, 0.0) - filled.get(name, 0.0) for name in shares}
        return {name: n * split_ratio(n, since[name], adjusted.get(name, 1.0)) for name, n in shares.items()}

    def _make_state(
        self, t: int, before: AccountState | None, in_force: PolicyInForce, activities: Sequence[CashActivity]
    ) -> AccountState:
        """Make the state of the broker's holdings at the close of session `t`."""
        session, symbols = self._session(t), self._panel.symbols
        holdings = _read_holdings(self._broker, symbols, session)
        shares, closes = _to_array(symbols, holdings.shares), self._prices.last_closes[t]
        require_prices(symbols, shares != 0.0, closes, session)
        values = shares * np.nan_to_num(closes)
        value = float(values.sum()) + holdings.cash
        state = AccountState(
            session=session,
            symbols=(*symbols, CASH),
            weights=(*(values / value).tolist(), holdings.cash / value),
            equity=1.0,
            peak=1.0,
            recent_returns=tuple(opening_account_with_history(len(symbols)).recent_returns.tolist()),
            capital=value,
            kept_at=self._spec.kept_at,
            shares={symbols[j]: float(shares[j]) for j in np.flatnonzero(shares)},
            prices={symbols[j]: float(closes[j]) for j in np.flatnonzero(shares)},
            policy=in_force.policy,
            run_id=in_force.run_id,
            spec_hash=in_force.spec_hash,
            snapshot_ids=self._panel.snapshot_ids,
            counted={activity.activity_id: activity.amount for activity in activities},
        )
        return state if before is None else _with_return(before, state, cash_by_kind(before, activities))

    def _session(self, t: int) -> date:
        return self._panel.sessions[t].item()


def _with_outcomes(
    symbols: Sequence[str], state: AccountState, before: AccountState, fills: FillsSinceClose, *, decided: bool
) -> AccountState:
    """Return the state with the outcomes since the last decision, of which the session after `before` adds its own.

    A name earns its value less that at the close before and what was bought since; its fills' fees are its cost.
    """
    since_loss, outcomes = before.losses_by(symbols), before.outcomes_by(symbols)
    if decided:
        since_loss, outcomes = count_since_loss(since_loss, outcomes), np.zeros_like(outcomes)
    then, now = (
        _to_array(symbols, {name: shares * side.prices[name] for name, shares in side.shares.items()})
        for side in (before, state)
    )
    bought, paid = dict[str, float](), dict[str, float]()
    for fill in fills.new:
        value = fill.quantity * fill.price
        bought[fill.symbol] = bought.get(fill.symbol, 0.0) + (value if fill.side == "buy" else -value)
        paid[fill.symbol] = paid.get(fill.symbol, 0.0) + fill.cost
    earned = np.where(np.maximum(then, now) > MIN_POSITION * before.value, now - then - _to_array(symbols, bought), 0.0)
    outcomes += np.stack([earned, np.zeros_like(earned), _to_array(symbols, paid)]) / before.value
    return state.with_outcomes(symbols, since_loss, outcomes)


def _read_holdings(broker: Broker, symbols: Sequence[str], session: date) -> BrokerHoldings:
    """Return the broker's holdings, or raise if they are invalid for this account."""
    holdings = broker.holdings()
    unknown = sorted(name for name, held in holdings.shares.items() if held and name not in symbols)
    if unknown:
        raise ExecutionError(
            f"the account at the broker must hold names of the active policy's market only, but holds "
            f"{', '.join(unknown)}; sell them, or use another account"
        )
    short = sorted(name for name, held in holdings.shares.items() if not held >= 0.0)
    is_empty = holdings.cash == 0.0 and not any(holdings.shares.values())
    if not holdings.cash >= 0.0 or short or is_empty:  # `not >=` also catches NaN
        raise ExecutionError(
            f"an account must have assets, no debt and no short positions, but at {session} the broker reports "
            f"cash of {holdings.cash:.2f} and {', '.join(short) or 'no name'} short; correct it at the broker"
        )
    return holdings


def _to_array(symbols: Sequence[str], shares: Mapping[str, float]) -> NDArray[np.float64]:
    """Shares by name as an array (N,)."""
    return np.array([float(shares.get(symbol, 0.0)) for symbol in symbols])


def _require_names(plan: RebalancePlan, symbols: Sequence[str]) -> None:
    """Raise unless the plan is over the market's names, since weights and prices are positional."""
    if not plan.has_symbols(symbols):
        raise ExecutionError(
            f"a plan must be over the names of the active policy's market, {', '.join(symbols)}, but "
            f"plan {plan.plan_id} is over {', '.join(plan.symbols[:-1])}; activate the policy that made it, or "
            "wait for the next plan"
        )


def _require_long_only(plan: RebalancePlan) -> None:
    """Raise if a plan has a short position or debt, which accounts at a broker do not trade."""
    if min(plan.target) < -MIN_HOLDING:
        raise ExecutionError(
            f"an account at a broker holds no short positions and no debt, but plan {plan.plan_id} targets "
            f"{plan.symbols[int(np.argmin(plan.target))]} at {min(plan.target):.6g}; reject it, and activate a policy "
            "on the simplex or trade a simulated account"
        )


def _scale_buys(shares: NDArray[np.float64], prices: NDArray[np.float64], cash: float) -> NDArray[np.float64]:
    """Scale the buys among changes (N,) to the cash: all orders fill at one open, and sells may fail."""
    bought, budget = np.maximum(shares, 0.0) @ prices, SPENT * max(0.0, cash)
    return shares if bought <= budget else np.where(shares > 0.0, shares * (budget / bought), shares)


def cancel_open_orders(broker: Broker, book: AccountBook, reason: str) -> None:
    """Cancel every open order of a book at the broker, and update the book with fills and cancellations.

    Orders whose end the broker has not confirmed stay open.

    Raises:
        BrokerTimeout: if the broker does not answer for an order; the others are cancelled as far as it answers.
        ExecutionError: if the broker rejects a cancellation; the others are cancelled.
    """
    _cancel_orders(broker, book, [open_order.order for open_order in book.open_orders()], reason)


def _cancel_orders(broker: Broker, book: AccountBook, orders: Sequence[Order], reason: str) -> None:
    errors, n_timeouts = list[BrokerTimeout | ExecutionError](), 0
    for order in orders:
        error = _cancel_order(broker, order)
        n_timeouts = n_timeouts + 1 if isinstance(error, BrokerTimeout) else 0
        if error is not None:
            errors.append(error)
        if n_timeouts == MAX_TIMEOUTS:
            break
    else:
        _update_book(broker, book, orders, reason)
    if errors:
        raise errors[0]


def _cancel_order(broker: Broker, order: Order) -> BrokerTimeout | ExecutionError | None:
    """Cancel an order and return the error, if any, so that the other orders are still cancelled."""
    try:
        broker.cancel(order.order_id)
    except (BrokerTimeout, ExecutionError) as error:
        return error
    return None


def _update_book(broker: Broker, book: AccountBook, orders: Sequence[Order], reason: str) -> None:
    """Store the broker's fills of orders, and the end of those that ended without one.

    Open orders are read first: an order that fills in between is then in both answers, and never in neither.
    """
    if not orders:
        return
    opened = {receipt.order_id for receipt in broker.open_orders()}
    ended = {order.order_id: order.plan_id for order in orders if order.order_id not in opened}
    for plan_id in dict.fromkeys(ended.values()):
        fills = [fill for fill in broker.fills(plan_id) if fill.order_id in ended]
        filled = {fill.order_id for fill in fills}
        own = [order_id for order_id, of in ended.items() if of == plan_id]
        book.fill(fills, {order_id: reason for order_id in own if order_id not in filled})


def _with_return(before: AccountState, now: AccountState, booked: Mapping[CashKind, float]) -> AccountState:
    """Return the state with its return since the last close; cash flows are not returns."""
    equity, capital = unitize(before, now.value, booked["flow"])
    net = equity / before.equity - 1.0
    update = {
        "equity": equity,
        "peak": max(before.peak, equity),
        "recent_returns": (*before.recent_returns[1:], net),
        "capital": capital,
        "net_return": net,
        "cost": -booked["fee"] / before.value,
        "flow": booked["flow"],
        "income": booked["income"],
    }
    return now.model_copy(update=update)
