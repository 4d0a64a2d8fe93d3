"""The paper broker: an account that is kept here, filled by the bars at the spec's timing, costs and slippage."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.accounts import opened_account, settled
from nvtrader_pipelines.envs.dynamics import Account, Transition
from nvtrader_pipelines.execution.book import HELD, AccountBook, AccountState, BookedOrder
from nvtrader_pipelines.execution.brokers.account_spec import PaperAccountSpec
from nvtrader_pipelines.execution.brokers.broker import Holdings, Receipt
from nvtrader_pipelines.execution.brokers.paper_market import PaperMarket, signed
from nvtrader_pipelines.execution.brokers.venue import InForce, Outcome, Settles, Unplaced
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Ticket, orders_of, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.reconciliation import reconcile

FloatArray = NDArray[np.float64]
PARTLY = "no more was filled: {why}; the rest is not carried on"
OUTSIDE = "it was cancelled at the broker"


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What a plan asks of the account at its fill."""

    transition: Transition  # if every order fills whole
    orders: tuple[Order, ...]
    prices: FloatArray  # (N,) of the fill
    value: float  # account currency, of all just before the fill

    @property
    def in_whole(self) -> dict[str, float]:
        """Shares by name, bought or (negative) sold, if every order fills whole."""
        return {order.symbol: _signed(order) for order in self.orders}


class PaperBroker:
    """One account on one market; its book is the only thing it remembers."""

    settles: ClassVar[Settles] = "with_bars"

    def __init__(self, market: PaperMarket, book: AccountBook, spec: PaperAccountSpec) -> None:
        self._market, self._book, self._spec = market, book, spec
        self._symbols = market.panel.symbols

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        return self._book.last()

    def open_at(self, t: int, in_force: InForce) -> AccountState:
        """Open the account in cash at the close of session `t`; one that is open stays as it is."""
        state = self._book.last()
        if state is None:
            state = self._state(t, opened_account(len(self._symbols)), in_force)
            self._book.settle(state)
        return state

    def at(self, session: date) -> AccountState | None:
        """The account at the close of an earlier session."""
        return self._book.at(session)

    def holdings(self) -> Holdings:
        """What is held at the last close."""
        state = self._opened()
        return Holdings(shares=state.shares, cash=state.weights[-1] * state.value, equity=state.value)

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[Unplaced]]:
        """The orders of a plan decided at the close of session `t`, sells first, and what makes none; nothing is kept.

        Raises:
            ExecutionError: if the account or the plan is not at that session, or a name held or wanted that has a bar
                has no price in it.
        """
        wanted = self._wanted(plan, self._at(t), t)
        halted = ~self._market.tradable(t) & ~self._market.delisted(t)
        changed = np.abs(np.array(plan.target[:-1]) - wanted.transition.drifted[0, :-1]) > HELD
        reason = f"it has no price on {self._market.fill_session(t)}; what is held of it is kept"
        names = [self._symbols[j] for j in np.flatnonzero(halted & changed)]
        return wanted.orders, [Unplaced(name, reason) for name in names]

    def booked(self, plan_id: str) -> Sequence[Order]:
        """The orders placed for a plan."""
        return [each.order for each in self._book.orders(plan_id)]

    def submit(self, order: Order) -> Receipt:
        """Place an order; one whose id is known is not placed again."""
        self._book.place(BookedOrder.accepted(order))
        known = next(each for each in self._book.orders(order.plan_id) if each.order.order_id == order.order_id)
        return _receipt(known)

    def open_orders(self) -> Sequence[Receipt]:
        """Orders that are accepted and neither filled nor cancelled."""
        return [_receipt(each) for each in self._book.open_orders()]

    def cancel(self, order_id: str, reason: str = OUTSIDE) -> None:
        """Cancel an open order; one that is not open any more is left."""
        self._book.cancel(order_id, reason)

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order."""
        for each in self._book.open_orders():
            self._book.cancel(each.order.order_id, reason)

    def fills(self, plan_id: str) -> Sequence[Fill]:
        """What was filled of a plan's orders."""
        return self._book.fills(plan_id)

    def fill(self, plan: RebalancePlan, t: int) -> Outcome:
        """Fill what was placed of a plan decided at the close of session `t`: sells, then buys within cash."""
        opened = [each.order for each in self._book.orders(plan.plan_id) if each.status == "accepted"]
        if opened:
            account = self._at(t)
            wanted = self._wanted(plan, account, t)
            filled = self._filled(opened, wanted, account, t)
            fills, rest = self._tickets(opened, filled, wanted, t)
            self._book.fill(fills, rest)
        booked = self._book.orders(plan.plan_id)
        ended = [Unplaced(each.order.symbol, each.reason) for each in booked if each.status == "cancelled"]
        return Outcome(self._book.fills(plan.plan_id), ended)

    def settle(self, t: int, plan: RebalancePlan | None, in_force: InForce, *, decided: bool) -> AccountState:
        """Mark the account to the close of session `t`, reconcile and keep it; one that is kept is left as it is."""
        before = self._opened()
        session = self._market.panel.sessions[t].item()
        if before.session >= session:
            return before
        account, fills = self._at(t - 1), self._book.fills(plan.plan_id) if plan is not None else []
        self._require_closes(account, t)
        if not decided:
            weights, growth = self._market.drift(account, t - 1)
            state = self._state(t, settled(account, weights, growth), in_force)
            expected = self._restated(before, t - 1)
        else:
            done, in_part = self._done(plan, fills, account, t - 1)
            moved = settled(account, done.weights[0], float(done.session_growth[0, 0]))
            state = self._state(t, moved, in_force).model_copy(
                update={
                    "turnover": float(done.turnover[0]),
                    "cost": float(done.cost[0]),
                    "plan_id": plan.plan_id if plan is not None and fills else None,
                }
            )
            kept = self._market.tradable(t - 1) if in_part else np.zeros(len(self._symbols), np.bool_)
            expected = self._expected(before, fills, np.where(kept, 0.0, state.cost), t - 1)
        differences = tuple(each.sentence for each in reconcile(expected, state.shares))
        state = state.model_copy(update={"net_return": float(state.recent_returns[-1]), "differences": differences})
        self._book.settle(state)
        return state

    def _wanted(self, plan: RebalancePlan, account: Account, t: int) -> _Wanted:
        market, spec = self._market, self._spec
        target = np.array(plan.target)
        self._require_plan(plan, target, t)
        prices, tradable = market.fill_prices(t), market.tradable(t)
        held = np.maximum(account.weights[:-1], target[:-1]) > HELD
        require_prices(self._symbols, held & tradable, prices, market.fill_session(t))
        known = market.prices.last_closes[market.filled_at(t)]
        require_prices(self._symbols, held & ~tradable, known, market.fill_session(t))
        value = market.growth_to_fill(account, t) * account.equity * self._opened().capital
        done = market.hold(account, t, target)
        trades = np.abs(done.trades[0, :-1])
        small = (trades > 0.0) & ((trades < spec.skip_below) | (trades * value < spec.min_order))
        if small.any():
            done = market.hold(account, t, target, frozen=small)
        executed, drifted = done.executed[0, :-1], done.drifted[0, :-1]
        changes = (executed * (1.0 - done.cost[0]) - drifted) * value
        made = (done.trades[0, :-1] != 0.0) & tradable & ~small
        shares = np.divide(changes, prices, out=np.zeros_like(changes), where=made)
        ticket = Ticket(plan, market.fill_session(t), shares, prices)
        return _Wanted(done, orders_of(ticket, whole_shares=spec.whole_shares), prices, value)

    def _filled(self, opened: Sequence[Order], wanted: _Wanted, account: Account, t: int) -> dict[str, float]:
        """Shares by name that fill of the orders placed, bought or (negative) sold."""
        limits = self._volume_limits(t)
        most = {each.symbol: min(each.quantity, limits[each.symbol]) for each in opened}
        filled = {each.symbol: np.copysign(most[each.symbol], _signed(each)) for each in opened}
        if not self._spec.whole_shares and filled == wanted.in_whole:
            return filled
        bought = signed(self._symbols, filled) * np.nan_to_num(wanted.prices) / wanted.value
        share = self._market.affordable(account, t, bought)
        paid = {symbol: shares * share if shares > 0.0 else shares for symbol, shares in filled.items()}
        if not self._spec.whole_shares:
            return paid
        sold_out = {each.symbol: each.quantity for each in opened if each.side == "sell" and each.target_weight == 0.0}
        return {
            symbol: shares if -shares == sold_out.get(symbol) else float(np.trunc(shares + np.copysign(1e-6, shares)))
            for symbol, shares in paid.items()
        }

    def _volume_limits(self, t: int) -> dict[str, float]:
        share, at = self._spec.volume_share, self._market.filled_at(t)
        if share is None:
            return dict.fromkeys(self._symbols, np.inf)
        volumes = np.nan_to_num(self._market.prices.volumes[at])
        return dict(zip(self._symbols, (share * volumes).tolist(), strict=True))

    def _tickets(
        self, opened: Sequence[Order], filled: dict[str, float], wanted: _Wanted, t: int
    ) -> tuple[list[Fill], dict[str, str]]:
        """The fills, and the orders of which nothing filled with the reason."""
        slip = self._spec.slippage_bps * 1e-4
        traded = signed(self._symbols, filled) * np.nan_to_num(wanted.prices)
        fees = self._fees(traded / wanted.value, t) * wanted.value
        gross = np.abs(traded).sum()
        fills, rest = [], {}
        for order in opened:
            shares, place = filled[order.symbol], self._symbols.index(order.symbol)
            if shares == 0.0:
                rest[order.order_id] = PARTLY.format(why="the session's volume or the cash left nothing for it")
                continue
            fills.append(
                Fill(
                    order_id=order.order_id,
                    symbol=order.symbol,
                    side=order.side,
                    quantity=abs(shares),
                    price=float(wanted.prices[place] * (1.0 + np.copysign(slip, shares))),
                    cost=float(fees * abs(traded[place]) / gross),
                    session=order.session,
                    complete=abs(shares) >= order.quantity,
                )
            )
        return fills, rest

    def _fees(self, trades: FloatArray, t: int) -> float:
        return float(self._market.fees(trades[None, :], np.array([self._market.filled_at(t)]))[0])

    def _done(
        self, plan: RebalancePlan | None, fills: Sequence[Fill], account: Account, t: int
    ) -> tuple[Transition, bool]:
        """The session after a decision, given what was filled; and whether that is but a part of what was wanted."""
        if plan is None or not fills:
            return self._market.hold(account, t, None), False
        wanted = self._wanted(plan, account, t)
        filled = {fill.symbol: _signed(fill) for fill in fills}
        if not self._spec.whole_shares and filled == wanted.in_whole:
            return wanted.transition, False
        bought = signed(self._symbols, filled) * np.nan_to_num(wanted.prices) / wanted.value
        return self._market.filled(account, t, bought), True

    def _restated(self, before: AccountState, t: int) -> dict[str, float]:
        """Shares held at the close of session `t`, at the adjustment that its prices have now."""
        closes = dict(zip(self._symbols, self._market.prices.last_closes[t].tolist(), strict=True))
        return {name: shares * before.prices[name] / closes[name] for name, shares in before.shares.items()}

    def _expected(self, before: AccountState, fills: Sequence[Fill], paid: FloatArray, t: int) -> dict[str, float]:
        """Shares after the fills of a decision at the close of session `t`.

        A name without a fill pays its part (N,) of the costs with its shares, as every position does in the transition.
        """
        changes = {fill.symbol: _signed(fill) for fill in fills}
        gone = {name for name, out in zip(self._symbols, self._market.delisted(t), strict=True) if out}
        paying = dict(zip(self._symbols, paid.tolist(), strict=True)) | dict.fromkeys(changes, 0.0)
        kept = {
            name: shares * (1.0 - paying[name])
            for name, shares in self._restated(before, t).items()
            if name not in gone
        }
        return {name: kept.get(name, 0.0) + changes.get(name, 0.0) for name in {*kept, *changes}}

    def _state(self, t: int, account: Account, in_force: InForce) -> AccountState:
        panel, before = self._market.panel, self._book.last()
        capital = before.capital if before is not None else self._spec.capital
        held = np.flatnonzero(account.weights[:-1] > HELD)
        closes = self._market.prices.last_closes[t]
        value = account.equity * capital
        return AccountState(
            session=panel.sessions[t].item(),
            symbols=(*self._symbols, "cash"),
            weights=tuple(account.weights.tolist()),
            equity=float(account.equity),
            peak=float(account.peak),
            recent_returns=tuple(account.recent_returns.tolist()),
            capital=capital,
            shares={self._symbols[j]: float(account.weights[j] * value / closes[j]) for j in held},
            prices={self._symbols[j]: float(closes[j]) for j in held},
            policy=in_force.policy,
            run_id=in_force.run_id,
            spec_hash=in_force.spec_hash,
            snapshot_ids=panel.snapshot_ids,
        )

    def _opened(self) -> AccountState:
        state = self._book.last()
        if state is None:
            raise ExecutionError("the account must be open before it trades, but it is not; open it at a session")
        return state

    def _at(self, t: int) -> Account:
        """The account at the close of session `t`, which must be its last."""
        state, session = self._opened(), self._market.panel.sessions[t].item()
        if state.session != session:
            raise ExecutionError(
                f"the account must stand at the close of {session}, but it stands at {state.session}; "
                "its sessions are traded one after the other"
            )
        account = state.account(self._symbols)
        if account.weights[-1] < -HELD:
            raise ExecutionError(
                f"a paper account owes nothing, but its cash is {account.weights[-1]:.6g} of equity at {session}; "
                "restore its book from a copy, or open another account"
            )
        return account

    def _require_plan(self, plan: RebalancePlan, target: FloatArray, t: int) -> None:
        session = self._market.panel.sessions[t].item()
        if plan.session != session or plan.symbols[:-1] != self._symbols:
            raise ExecutionError(
                f"a plan is filled in the session after its decision, by the names it was made for, but plan "
                f"{plan.plan_id} is of {plan.session} with {len(plan.symbols) - 1} names and the account stands at "
                f"{session} with {len(self._symbols)}; it is too late for it, wait for the next plan"
            )
        if target.min() < -HELD:
            raise ExecutionError(
                f"a paper account holds no short position and owes nothing, but plan {plan.plan_id} wants "
                f"{plan.symbols[int(target.argmin())]} at {target.min():.6g}; use a policy of the simplex"
            )

    def _require_closes(self, account: Account, t: int) -> None:
        tradable = self._market.panel.tradable[t]
        held = account.weights[:-1] > HELD
        session = self._market.panel.sessions[t].item()
        require_prices(self._symbols, held & tradable, self._market.prices.closes[t], session)
        require_prices(self._symbols, held, self._market.prices.last_closes[t], session)


def _signed(order: Order | Fill) -> float:
    return order.quantity if order.side == "buy" else -order.quantity


def _receipt(booked: BookedOrder) -> Receipt:
    order_id = booked.order.order_id
    return Receipt(order_id, f"paper-{order_id}", booked.status, booked.reason)
