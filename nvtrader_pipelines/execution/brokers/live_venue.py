"""An account at a broker: orders are made from the last closes and wait for the market, holdings are the broker's."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import opening_account_with_history
from nvtrader_pipelines.execution.book import HELD, AccountBook, AccountState, BookedOrder
from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.broker import (
    Broker,
    BrokerTimeout,
    CashActivity,
    CashKind,
    Holdings,
    Receipt,
)
from nvtrader_pipelines.execution.brokers.broker_reconciliation import (
    LATE,
    Fills,
    cash_since,
    fills_since,
    remaining,
    split,
    units,
)
from nvtrader_pipelines.execution.brokers.venue import InForce, Outcome, Settles, Unplaced
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Order, Ticket, orders_of, plan_of, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.prices import Prices
from nvtrader_pipelines.execution.reconciliation import reconcile
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import CASH

GONE = 3  # orders in a row that a broker does not answer for: it is not there, and a person must know it soon
SPENT = 0.98  # of cash is spent: prices at the open are others than at the close before
UNPAID = "cash does not pay for it before the sells are filled; the next plan may buy it"
ENDED = "it ended at the broker without a fill"
REPLACED = "a later plan takes its place"


class AtMarket:
    """A broker's account on a panel; its return is time-weighted, so what is paid in or out is none."""

    settles: ClassVar[Settles] = "at_market"

    def __init__(
        self, broker: Broker, market: tuple[MarketPanel, Prices], book: AccountBook, spec: AlpacaAccountSpec
    ) -> None:
        self._broker, self._book, self._spec = broker, book, spec
        self._panel, self._prices = market

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        return self._book.last()

    def at(self, session: date) -> AccountState | None:
        """The account at the close of an earlier session."""
        return self._book.at(session)

    def open_at(self, t: int, in_force: InForce) -> AccountState:
        """Open the account with what the broker says it holds; one that is open stays as it is."""
        state = self._book.last()
        if state is None:
            state = self._state(t, None, in_force, self._broker.activities(self._session(t) - LATE))
            self._book.settle(state)
        return state

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[Unplaced]]:
        """The orders of a plan from what the broker holds and the closes of session `t`, sells first.

        They are kept, together, before the first is placed: asked for again by who finishes a step, they are the same.
        What earlier plans still have at work is cancelled first; until the broker has done so it counts as filled, so
        that nothing is bought, or sold, by two plans.

        Raises:
            ExecutionError: if the plan is over other names, a name that is held or wanted has a bar without a price, or
                the account is in debt.
        """
        session, symbols = self._session(t), self._panel.symbols
        self._require_own_names(plan)
        earlier = [each.order for each in self._book.open_orders() if each.order.plan_id != plan.plan_id]
        _withdraw(self._broker, self._book, earlier, REPLACED)
        holdings, at_work = self._holdings(session), self._shares(remaining(self._broker, self._book, plan))
        target, held = np.array(plan.target[:-1]), self._shares(holdings.shares) + at_work
        closes, tradable = self._prices.closes[t], self._panel.tradable[t]
        needed = (target > HELD) | (held != 0.0)
        require_prices(symbols, needed & tradable, closes, session)
        require_prices(symbols, needed, self._prices.last_closes[t], session)
        worth = np.nan_to_num(self._prices.last_closes[t])
        equity = holdings.cash + float((held - at_work) @ worth)
        shares = np.divide(target * equity, closes, out=held.copy(), where=tradable & needed) - held
        changes = np.abs(shares) * worth
        shares[(changes < self._spec.min_order) | (changes < self._spec.skip_below * equity)] = 0.0
        cash = holdings.cash - float(np.maximum(at_work, 0.0) @ worth)
        cash = cash if holdings.to_spend is None else min(cash, holdings.to_spend)
        wanted = self._made(Ticket(plan, session, shares, closes))
        paid = self._made(Ticket(plan, session, _paid(shares, worth, cash), closes))
        made = self.booked(plan.plan_id) or paid
        self._book.place(*(BookedOrder.accepted(order) for order in made))
        changed, ordered = np.abs(target - held * worth / equity) > HELD, {order.symbol for order in made}
        halted = [symbols[j] for j in np.flatnonzero(changed & ~tradable)]
        return made, [
            *(Unplaced(name, f"it has no price on {session}; what is held of it is kept") for name in halted),
            *(Unplaced(order.symbol, UNPAID) for order in wanted if order.symbol not in ordered),
        ]

    def _made(self, ticket: Ticket) -> Sequence[Order]:
        return orders_of(ticket, whole_shares=self._spec.whole_shares, min_order=self._spec.min_order)

    def _require_own_names(self, plan: RebalancePlan) -> None:
        """Refuse a plan over other names: its weights and this market's prices are matched by place."""
        if not plan.is_over(self._panel.symbols):
            raise ExecutionError(
                f"a plan is placed over the names it was made for, but plan {plan.plan_id} is for "
                f"{', '.join(plan.symbols[:-1])} and the market of the active policy has "
                f"{', '.join(self._panel.symbols)}; activate the policy that made it, or wait for the next plan"
            )

    def booked(self, plan_id: str) -> Sequence[Order]:
        """The orders made of a plan, placed or not."""
        return [each.order for each in self._book.orders(plan_id)]

    def submit(self, order: Order) -> Receipt:
        """Place an order; one whose id the broker knows is not placed again.

        Raises:
            ExecutionError: if the broker does not answer; the order is submitted again under the same id.
        """
        try:
            receipt = self._broker.submit(order)
        except BrokerTimeout as error:
            raise ExecutionError(
                f"the broker must answer, but did not for order {order.order_id} ({error}); run this again: the order "
                "has an id of its own and is placed once"
            ) from error
        if receipt.status == "rejected":
            self._book.cancel(order.order_id, receipt.reason)
        return receipt

    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; whether the broker says that nothing of it is filled, or will be."""
        self._broker.cancel(order.order_id)
        _hear(self._broker, self._book, [order], reason)
        kept = self._book.orders(order.plan_id)
        return any(each.order.order_id == order.order_id and each.status == "cancelled" for each in kept)

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order of this account's own."""
        withdraw_open(self._broker, self._book, reason)

    def fill(self, plan: RebalancePlan, t: int) -> Outcome:  # noqa: ARG002 - one signature
        """What the broker says of a plan's orders; those that are still open stay so."""
        opened = [each.order for each in self._book.orders(plan.plan_id) if each.status == "accepted"]
        _hear(self._broker, self._book, opened, ENDED)
        after = self._book.orders(plan.plan_id)
        ended = [Unplaced(each.order.symbol, each.reason) for each in after if each.status == "cancelled"]
        return Outcome(self._book.fills(plan.plan_id), ended)

    def unexplained(self) -> Sequence[str]:
        """What differed at the last close and differs still from what is held now, late fills counted."""
        last = self._opened()
        if last.expected is None:
            return last.differences
        should_be = fills_since(last, None, self._broker, self._book).after(last.expected)
        held = self._holdings(last.session).shares
        return [each.sentence for each in reconcile(should_be, held)]

    def settle(
        self,
        t: int,
        plan: RebalancePlan | None,
        in_force: InForce,
        *,
        decided: bool,  # noqa: ARG002 - one signature
        accepted: bool,
    ) -> AccountState:
        """Mark what the broker holds to the close of session `t`, reconcile and keep it."""
        before = self._opened()
        if before.session >= self._session(t):
            return before
        fills = fills_since(before, plan, self._broker, self._book)
        state = self._state(t, before, in_force, self._broker.activities(before.session - LATE))
        kept = before.shares if accepted or before.expected is None else before.expected
        should_be = fills.after(self._after_splits(before, kept, fills, state.shares))
        differences = reconcile(should_be, state.shares)
        state = state.model_copy(
            update={
                "differences": tuple(each.sentence for each in differences),
                "expected": should_be if differences else None,
                "working": fills.working,
                "plan_id": plan_of(fills.new[-1].order_id) if fills.new else None,
                "turnover": max(fills.traded("buy"), fills.traded("sell")) / before.value,
                "cost": state.cost + sum(fill.cost for fill in fills.new) / before.value,
            }
        )
        self._book.settle(state)
        return state

    def _after_splits(
        self, before: AccountState, kept: Mapping[str, float], fills: Fills, held: Mapping[str, float]
    ) -> dict[str, float]:
        """The shares kept at the last close, as splits left them since that the broker and the bars agree on."""
        t, filled = self._panel.index_of(np.datetime64(before.session)), fills.after({})
        now = dict(zip(self._panel.symbols, self._prices.last_closes[t].tolist(), strict=True))
        adjusted = {name: then / now[name] for name, then in before.prices.items() if name in now}
        since = {name: held.get(name, 0.0) - filled.get(name, 0.0) for name in kept}
        return {name: n * split(n, since[name], adjusted.get(name, 1.0)) for name, n in kept.items()}

    def _opened(self) -> AccountState:
        state = self._book.last()
        if state is None:
            raise ExecutionError("the account must be open before it trades, but it is not; open it at a session")
        return state

    def _state(
        self, t: int, before: AccountState | None, in_force: InForce, activities: Sequence[CashActivity]
    ) -> AccountState:
        """What the broker holds at the close of session `t`."""
        session, symbols = self._session(t), self._panel.symbols
        holdings = self._holdings(session)
        shares, closes = self._shares(holdings.shares), self._prices.last_closes[t]
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
            counted={each.activity_id: each.amount for each in activities},
        )
        return state if before is None else _grown(before, state, cash_since(before, activities))

    def _holdings(self, session: date) -> Holdings:
        """What the broker holds, which must be what this account may hold."""
        holdings = self._broker.holdings()
        strangers = sorted(name for name, held in holdings.shares.items() if held and name not in self._panel.symbols)
        if strangers:
            raise ExecutionError(
                f"the account at the broker holds {', '.join(strangers)}, which the market of the active policy does "
                "not have; sell them, or use another account"
            )
        short = sorted(name for name, held in holdings.shares.items() if not held >= 0.0)
        is_empty = holdings.cash == 0.0 and not any(holdings.shares.values())
        if not holdings.cash >= 0.0 or short or is_empty:  # what is no number is in no order
            raise ExecutionError(
                f"an account must hold something, owe nothing and be short of nothing, but at {session} the broker "
                f"says cash of {holdings.cash:.2f} and {', '.join(short) or 'no name'} short; bring it in order there"
            )
        return holdings

    def _shares(self, shares: Mapping[str, float]) -> NDArray[np.float64]:
        return np.array([float(shares.get(symbol, 0.0)) for symbol in self._panel.symbols])

    def _session(self, t: int) -> date:
        return self._panel.sessions[t].item()


def _paid(shares: NDArray[np.float64], worth: NDArray[np.float64], cash: float) -> NDArray[np.float64]:
    """The changes (N,) with the buys that cash pays for: all queue for one open, where a sell may fail."""
    bought, room = np.maximum(shares, 0.0) @ worth, SPENT * max(0.0, cash)
    return shares if bought <= room else np.where(shares > 0.0, shares * (room / bought), shares)


def withdraw_open(broker: Broker, book: AccountBook, reason: str) -> None:
    """Cancel every open order of a book at the broker; the book then has what was filled, and what was cancelled.

    What the broker has not confirmed yet stays open.

    Raises:
        BrokerTimeout: if the broker does not answer for an order; what it does answer for is cancelled.
        ExecutionError: if it refuses one; the others are cancelled.
    """
    _withdraw(broker, book, [each.order for each in book.open_orders()], reason)


def _withdraw(broker: Broker, book: AccountBook, orders: Sequence[Order], reason: str) -> None:
    failed, silent = list[BrokerTimeout | ExecutionError](), 0
    for order in orders:
        failure = _failure(broker, order)
        silent = silent + 1 if isinstance(failure, BrokerTimeout) else 0
        if failure is not None:
            failed.append(failure)
        if silent == GONE:
            break
    else:
        _hear(broker, book, orders, reason)
    if failed:
        raise failed[0]


def _failure(broker: Broker, order: Order) -> BrokerTimeout | ExecutionError | None:
    """Why an order could not be cancelled, which keeps no other order from it; None where it could."""
    try:
        broker.cancel(order.order_id)
    except (BrokerTimeout, ExecutionError) as error:
        return error
    return None


def _hear(broker: Broker, book: AccountBook, orders: Sequence[Order], reason: str) -> None:
    """Keep what the broker says of orders of a book: their fills, and the end of those that ended without one.

    What is open is asked for first: an order that is filled in between is then in both answers, and never in neither.
    """
    if not orders:
        return
    waiting = {receipt.order_id for receipt in broker.open_orders()}
    ended = {order.order_id: order.plan_id for order in orders if order.order_id not in waiting}
    for plan_id in dict.fromkeys(ended.values()):
        fills = [fill for fill in broker.fills(plan_id) if fill.order_id in ended]
        filled = {fill.order_id for fill in fills}
        own = [order_id for order_id, of in ended.items() if of == plan_id]
        book.fill(fills, {order_id: reason for order_id in own if order_id not in filled})


def _grown(before: AccountState, now: AccountState, booked: Mapping[CashKind, float]) -> AccountState:
    """The account at a close, with what it has earned since the one before; what was paid in or out is no return."""
    equity, capital = units(before, now.value, booked["flow"])
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
