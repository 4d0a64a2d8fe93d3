"""The paper broker: an account that is kept here, filled by the bars at the spec's timing, costs and slippage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.accounts import opening_account_with_history, settle
from nvtrader_pipelines.envs.dynamics import Transition
from nvtrader_pipelines.execution.book import HELD, AccountBook, AccountState, BookedOrder
from nvtrader_pipelines.execution.brokers.account_spec import PaperAccountSpec
from nvtrader_pipelines.execution.brokers.broker import Receipt
from nvtrader_pipelines.execution.brokers.paper_market import PaperMarket, signed
from nvtrader_pipelines.execution.brokers.venue import InForce, Outcome, Settles, Unplaced
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Fill, Order, Ticket, orders_of, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage
from nvtrader_pipelines.execution.reconciliation import reconcile
from nvtrader_pipelines.portfolio.cash import CASH

FloatArray = NDArray[np.float64]
NO_PRICE = "it has no price on {session}; what is held of it is kept"
NOTHING_LEFT = "no more was filled: the session's volume or the cash left nothing for it; the rest is not carried on"
AS_WANTED = 1e-9  # of a trade's value: what fills so near to it is all of it
SAME_CASH = 1e-8  # of the account's value


@dataclass(frozen=True, eq=False)
class _Wanted:
    """What a plan asks of the account at its fill."""

    transition: Transition  # if every order fills whole
    orders: tuple[Order, ...]
    prices: FloatArray  # (N,) of the fill
    value: float  # account currency, of all just before the fill


class PaperBroker:
    """One account on one market; its book is the only thing it remembers."""

    settles: ClassVar[Settles] = "with_bars"

    def __init__(self, market: PaperMarket, book: AccountBook, spec: PaperAccountSpec) -> None:
        self._market, self._book, self._spec = market, book, spec
        self._symbols = market.panel.symbols
        self._places = {symbol: j for j, symbol in enumerate(self._symbols)}
        self._is_plain = spec == PaperAccountSpec(capital=spec.capital, slippage_bps=spec.slippage_bps)

    def last(self) -> AccountState | None:
        """The account at the last close it was settled at; None where it is not open."""
        return self._book.last()

    def open_at(self, t: int, in_force: InForce) -> AccountState:
        """Open the account in cash at the close of session `t`; one that is open stays as it is."""
        state = self._book.last()
        if state is None:
            state = self._state(t, opening_account_with_history(len(self._symbols)), in_force)
            self._book.settle(state)
        return state

    def at(self, session: date) -> AccountState | None:
        """The account at the close of an earlier session."""
        return self._book.at(session)

    def orders(self, plan: RebalancePlan, t: int) -> tuple[Sequence[Order], Sequence[Unplaced]]:
        """The orders of a plan decided at the close of session `t`, sells first, and what makes none; nothing is kept.

        Raises:
            ExecutionError: if the account or the plan is not at that session, a name held or wanted that has a bar has
                no price in it, or the session could not be settled.
        """
        account = self._at(t)
        wanted = self._wanted(plan, account, t)
        self._require_session(np.maximum(account.weights, plan.target), t + 1)
        halted = ~self._market.tradable(t) & ~self._market.delisted(t)
        changed = np.abs(np.array(plan.target[:-1]) - wanted.transition.drifted[0, :-1]) > HELD
        reason = NO_PRICE.format(session=self._market.fill_session(t))
        names = [self._symbols[j] for j in np.flatnonzero(halted & changed)]
        booked = {order.order_id: order for order in self.booked(plan.plan_id)}  # as it was quoted when it was placed
        made = {order.order_id: order for order in wanted.orders} | booked
        return tuple(made.values()), [Unplaced(name, reason) for name in names]

    def booked(self, plan_id: str) -> Sequence[Order]:
        """The orders placed for a plan."""
        return [each.order for each in self._book.orders(plan_id)]

    def submit(self, order: Order) -> Receipt:
        """Place an order; one whose id is known is not placed again."""
        self._book.place(BookedOrder.accepted(order))
        known = next(each for each in self._book.orders(order.plan_id) if each.order.order_id == order.order_id)
        return _receipt(known)

    def cancel(self, order: Order, reason: str) -> bool:
        """Cancel an order if it is open; whether nothing of it is filled."""
        self._book.cancel(order.order_id, reason)
        return all(fill.order_id != order.order_id for fill in self._book.fills(order.plan_id))

    def cancel_open(self, reason: str) -> None:
        """Cancel every open order."""
        for each in self._book.open_orders():
            self._book.cancel(each.order.order_id, reason)

    def fill(self, plan: RebalancePlan, t: int) -> Outcome:
        """Fill what was placed of a plan decided at the close of session `t`: sells, then buys within cash."""
        opened = [each.order for each in self._book.orders(plan.plan_id) if each.status == "accepted"]
        if opened:
            account = self._at(t)
            wanted = self._wanted(plan, account, t)
            filled = self._filled(opened, wanted, account, t)
            self._book.fill(*self._tickets(opened, filled, wanted, t))
        booked = self._book.orders(plan.plan_id)
        ended = [Unplaced(each.order.symbol, each.reason) for each in booked if each.status == "cancelled"]
        return Outcome(self._book.fills(plan.plan_id), ended)

    def unexplained(self) -> Sequence[str]:
        """What differed at the last close: nobody but a person mends what is kept here."""
        return self._opened().differences

    def settle(
        self,
        t: int,
        plan: RebalancePlan | None,
        in_force: InForce,
        *,
        decided: bool,
        accepted: bool,  # noqa: ARG002 - one signature
    ) -> AccountState:
        """Mark the account to the close of session `t`, reconcile and keep it; one that is kept is left as it is."""
        before = self._opened()
        session = self._market.panel.sessions[t].item()
        if before.session >= session:
            return before
        account, fills = self._at(t - 1), self._book.fills(plan.plan_id) if plan is not None else []
        self._require_session(account.weights, t)
        if decided:
            bought = self._bought(plan, fills)
            done, paid = self._done(plan, bought, account, t - 1)
            state = self._state(t, settle(account, done.weights[0], float(done.session_growth[0, 0])), in_force)
            figures = {"turnover": float(done.turnover[0]), "cost": float(done.cost[0])}
            state = state.model_copy(update=figures | ({"plan_id": plan.plan_id} if plan is not None and fills else {}))
            expected = self._expected(before, bought, paid, t - 1)
            cash = self._cash(before, fills, done, paid, t - 1)
        else:
            state = self._state(t, settle(account, *self._market.drift(account, t - 1)), in_force)
            expected, cash = self._restated(before, t - 1), before.weights[-1] * before.value
        self._require_session(np.array(state.weights), t)
        differences = [each.sentence for each in reconcile(expected, state.shares)]
        if not abs(cash - (held := state.weights[-1] * state.value)) <= SAME_CASH * state.value:
            differences.append(f"cash: {cash:.2f} expected, {held:.2f} held")
        update = {"net_return": float(state.recent_returns[-1]), "differences": tuple(differences)}
        state = state.model_copy(update=update)
        self._book.settle(state)
        return state

    def _wanted(self, plan: RebalancePlan, account: Account, t: int) -> _Wanted:
        market, spec = self._market, self._spec
        self._require_plan(plan, t)
        plan = self._over_own_names(plan)
        target = np.array(plan.target)
        prices, tradable = market.fill_prices(t), market.tradable(t)
        held = np.maximum(account.weights[:-1], target[:-1]) > HELD
        require_prices(self._symbols, held, prices, market.fill_session(t))
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
        orders = orders_of(ticket, whole_shares=spec.whole_shares, min_order=spec.min_order)
        return _Wanted(done, orders, prices, value)

    def _filled(self, opened: Sequence[Order], wanted: _Wanted, account: Account, t: int) -> dict[str, float]:
        """Shares by name that fill of the orders placed, at the adjustment of their quotes; bought or (negative) sold.

        Orders that are placed already are worth what they were: prices may have been adjusted anew since.
        """
        limits = self._volume_limits(t) * wanted.prices
        most = {each.symbol: min(each.quantity, limits[self._places[each.symbol]] / each.quote) for each in opened}
        filled = {each.symbol: np.copysign(most[each.symbol], _signed(each)) for each in opened}
        bought = self._values(opened, filled)
        if self._is_as_wanted(bought, wanted):
            return filled
        share = self._market.affordable(account, t, bought / wanted.value)
        paid = {symbol: shares * share if shares > 0.0 else shares for symbol, shares in filled.items()}
        if not self._spec.whole_shares:
            return paid
        sold_out = {each.symbol: each.quantity for each in opened if each.side == "sell" and each.target_weight == 0.0}
        return {
            symbol: shares if -shares == sold_out.get(symbol) else float(np.trunc(shares + np.copysign(1e-6, shares)))
            for symbol, shares in paid.items()
        }

    def _volume_limits(self, t: int) -> FloatArray:
        """Shares (N,) that may be traded in the session that fills the orders of a decision."""
        share, tradable = self._spec.volume_share, self._market.tradable(t)
        if share is None:
            return np.where(tradable, np.inf, 0.0)
        return np.where(tradable, share * np.nan_to_num(self._market.prices.volumes[self._market.filled_at(t)]), 0.0)

    def _tickets(
        self, opened: Sequence[Order], filled: dict[str, float], wanted: _Wanted, t: int
    ) -> tuple[list[Fill], dict[str, str]]:
        """The fills, and the orders of which nothing filled with the reason; fees and slippage are the cost."""
        slip = self._spec.slippage_bps * 1e-4
        traded = self._values(opened, filled)
        whole = self._is_as_wanted(traded, wanted)
        cost = float(wanted.transition.cost[0]) if whole else self._market.cost_of(traded / wanted.value, t)
        gross = np.abs(traded).sum()
        fees = cost * wanted.value - slip * gross
        fills, rest, tradable = [], {}, self._market.tradable(t)
        for order in opened:
            shares = filled[order.symbol]
            if shares == 0.0:
                reason = NOTHING_LEFT if tradable[self._places[order.symbol]] else NO_PRICE
                rest[order.order_id] = reason.format(session=order.session)
                continue
            fills.append(
                Fill(
                    order_id=order.order_id,
                    symbol=order.symbol,
                    side=order.side,
                    quantity=abs(shares),
                    price=float(order.quote * (1.0 + np.copysign(slip, shares))),
                    cost=float(fees * abs(traded[self._places[order.symbol]]) / gross),
                    session=order.session,
                    complete=abs(shares) >= order.quantity,
                )
            )
        return fills, rest

    def _done(
        self, plan: RebalancePlan | None, bought: FloatArray, account: Account, t: int
    ) -> tuple[Transition, float]:
        """The session after a decision, given what was bought (N,); and the part of a name without a fill that is paid.

        A back-test takes costs from every position alike; where not all of a plan is filled as it is there, cash pays.
        """
        if plan is None or not bought.any():
            return self._market.hold(account, t, None), 0.0
        wanted = self._wanted(plan, account, t)
        if self._is_as_wanted(bought, wanted):
            return wanted.transition, float(wanted.transition.cost[0])
        return self._market.filled(account, t, bought / wanted.value), 0.0

    def _bought(self, plan: RebalancePlan | None, fills: Sequence[Fill]) -> FloatArray:
        """What the fills of a plan bought or (negative) sold, (N,), account currency."""
        orders = self.booked(plan.plan_id) if plan is not None and fills else []
        return self._values(orders, {fill.symbol: _signed(fill) for fill in fills})

    def _values(self, orders: Sequence[Order], shares: Mapping[str, float]) -> FloatArray:
        """What is bought or (negative) sold of orders, (N,), account currency: shares at the orders' own quotes."""
        values = np.zeros(len(self._symbols))
        for each in orders:
            if each.symbol in shares and each.symbol in self._places:
                values[self._places[each.symbol]] = shares[each.symbol] * each.quote
        return values

    def _is_as_wanted(self, bought: FloatArray, wanted: _Wanted) -> bool:
        """Whether what is bought (N,) is what a back-test buys; no account is one that rounds or leaves out orders."""
        whole = self._values(wanted.orders, {order.symbol: _signed(order) for order in wanted.orders})
        return self._is_plain and bool((np.abs(bought - whole) <= AS_WANTED * np.abs(whole)).all())

    def _restated(self, before: AccountState, t: int) -> dict[str, float]:
        """Shares held at the close of session `t`, at the adjustment that its prices have now."""
        closes = dict(zip(self._symbols, self._market.prices.last_closes[t].tolist(), strict=True))
        return {name: shares * before.prices[name] / closes[name] for name, shares in before.shares.items()}

    def _expected(self, before: AccountState, bought: FloatArray, paid: float, t: int) -> dict[str, float]:
        """Shares after what was bought (N,) of a decision at the close of session `t`; other names give `paid`."""
        changes = {self._symbols[j]: float(bought[j] / self._market.fill_prices(t)[j]) for j in np.flatnonzero(bought)}
        gone = {name for name, out in zip(self._symbols, self._market.delisted(t), strict=True) if out}
        kept = {
            name: shares if name in changes else shares * (1.0 - paid)
            for name, shares in self._restated(before, t).items()
            if name not in gone
        }
        return {name: kept.get(name, 0.0) + changes.get(name, 0.0) for name in {*kept, *changes}}

    def _cash(self, before: AccountState, fills: Sequence[Fill], done: Transition, paid: float, t: int) -> float:
        """Cash after the fills of a decision at the close of session `t`, account currency.

        Delisted names are paid out; what names without a fill give for the costs is not paid by it.
        """
        value = self._market.growth_to_fill(before.account(self._symbols), t) * before.value
        held, delisted = done.drifted[0, :-1] * value, self._market.delisted(t)
        kept = ~delisted
        kept[[self._places[fill.symbol] for fill in fills]] = False
        given = float(held[kept].sum()) * paid
        spent = sum(_signed(fill) * fill.price + fill.cost for fill in fills)
        return before.weights[-1] * before.value - spent + float(held[delisted].sum()) + given

    def _state(self, t: int, account: Account, in_force: InForce) -> AccountState:
        panel, before = self._market.panel, self._book.last()
        capital = before.capital if before is not None else self._spec.capital
        held = np.flatnonzero(account.weights[:-1] > HELD)
        closes = self._market.prices.last_closes[t]
        value = account.equity * capital
        return AccountState(
            session=panel.sessions[t].item(),
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
                "trade another account"
            )
        return account

    def _over_own_names(self, plan: RebalancePlan) -> RebalancePlan:
        """A plan over the names of this market, of which it may be made for a part, or for more that it does not want.

        Raises:
            ExecutionError: if it wants a name that the market lacks.
        """
        names = (*self._symbols, CASH)
        if plan.symbols == names:
            return plan
        wanted = dict(zip(plan.symbols, plan.target, strict=True))
        strangers = [name for name, weight in wanted.items() if weight > HELD and name not in names]
        if strangers:
            raise ExecutionError(
                f"plan {plan.plan_id} bought {', '.join(strangers)}, which the market of the active policy does not "
                "have; activate the policy that made it until its session is settled"
            )
        last = Stage(name=plan.stages[-1].name, weights=tuple(signed(names, wanted).tolist()))
        return plan.model_copy(update={"symbols": names, "stages": (last,)})

    def _require_plan(self, plan: RebalancePlan, t: int) -> None:
        session = self._market.panel.sessions[t].item()
        if plan.session != session:
            raise ExecutionError(
                f"a plan is filled in the session after its decision, but plan {plan.plan_id} is of {plan.session} and "
                f"the account stands at {session}; it is too late for it, wait for the next plan"
            )
        if min(plan.target) < -HELD:
            raise ExecutionError(
                f"a paper account holds no short position and owes nothing, but plan {plan.plan_id} wants "
                f"{plan.symbols[int(np.argmin(plan.target))]} at {min(plan.target):.6g}; use a policy of the simplex"
            )

    def _require_session(self, weights: FloatArray, t: int) -> None:
        """Check that weights (N+1,) can be marked to the close of session `t`, and that the market's returns are."""
        market, session = self._market, self._market.panel.sessions[t].item()
        held, tradable = weights[:-1] > HELD, market.panel.tradable[t]
        require_prices(self._symbols, held & tradable, market.prices.closes[t], session)
        require_prices(self._symbols, held, market.prices.last_closes[t], session)
        known = np.isfinite(market.legs.returns[:, t]).all(axis=0)
        if not known.all():
            raise ExecutionError(
                f"the return of {self._symbols[int(np.argmin(known))]} on {session} must be a finite number, but is "
                "none; check its bars of that session and run the market job"
            )


def _signed(order: Order | Fill) -> float:
    return order.quantity if order.side == "buy" else -order.quantity


def _receipt(booked: BookedOrder) -> Receipt:
    order_id = booked.order.order_id
    return Receipt(order_id, f"paper-{order_id}", booked.status, booked.reason)
