import itertools
from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.brokers.fill_simulation import NO_PRICE
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.desks import Account, Deployed, LeveredWishes, Wants, Wishes, prices_of, spec_of
from tests.markets import synthetic_panel
from tests.panels import GAP, GAPPY, cut, eventful_panel

PIPELINE = WeightPipeline(risk_limits=RiskLimits(max_position=0.5))
FREE = EnvSpec(lookback=5, episode_len=20, rebal_freq=2, turnover_cost_bps=0.0)
DEAR = FREE.model_copy(update={"turnover_cost_bps": 20.0})
EVENTFUL, FIRST, LAST = eventful_panel(), 25, 70
WHOLE = SimulatedAccountSpec(whole_shares=True)
GROSS_TWO = WeightPipeline(risk_limits=RiskLimits(max_position=1.0, max_short=1.0, max_gross=2, max_net=2, min_net=-2))
LEVERED = {"kind": "levered_simplex", "close_cap": 1.5, "intraday_cap": 2.0}
LONG_SHORT = {"kind": "long_short", "gross": 2.0, "close_cap": 1.5}
FINANCING = {"kind": "margin_loan", "margin_rate": 0.5, "borrow_fee": 0.1}
STEADY = synthetic_panel(100, 5)
PLACES = {name: j for j, name in enumerate(EVENTFUL.symbols)}


def traded(environment=FREE, panel=EVENTFUL, account_spec=WHOLE, volume=np.nan, **options):
    """An account after some sessions on an eventful market, or on another."""
    spec = spec_of(environment=environment.model_dump(), pipeline=PIPELINE)
    prices = prices_of(panel, volume=volume)
    account = Account(Deployed(panel, spec, Wishes()), account_spec=account_spec, prices=prices, **options)
    account.states = account.open(FIRST - 1).trade(FIRST, LAST)
    return account


def ledger(account):
    """Cash and shares by session as a clerk keeps them, from the fills alone; a delisted name is paid out."""
    panel, prices = account.deployed.panel, account.prices
    cash, shares, kept = account.account_spec.capital, dict.fromkeys(panel.symbols, 0.0), {}
    by_session = {}
    for fill in account.book.filled.values():
        by_session.setdefault(fill.session, []).append(fill)
    for t in range(FIRST, LAST + 1):
        for fill in by_session.get(panel.sessions[t].item(), []):
            quantity = fill.quantity if fill.side == "buy" else -fill.quantity
            shares[fill.symbol] += quantity
            cash -= quantity * fill.price + fill.cost
        for symbol in {name for name, held in shares.items() if held} - account.states[t - FIRST].shares.keys():
            if panel.delisted[t, panel.symbols.index(symbol)]:
                cash += shares[symbol] * prices.last_closes[t, panel.symbols.index(symbol)]
                shares[symbol] = 0.0
        kept[t] = cash, {name: held for name, held in shares.items() if abs(held) > 1e-6}
    return kept


def assert_a_clerk_agrees(account):
    """Cash, shares and equity at every close are what the fills make them."""
    for t, (cash, shares) in ledger(account).items():
        state = account.states[t - FIRST]
        worth = cash + sum(n * account.prices.last_closes[t, PLACES[name]] for name, n in shares.items())
        assert state.shares == pytest.approx(shares, rel=1e-8, abs=1e-6)
        assert state.weights[-1] * state.value == pytest.approx(cash, abs=1e-8 * state.value)
        assert state.value == pytest.approx(worth, rel=1e-8)
        assert state.weights[-1] >= 0.0
        assert state.differences == ()


@pytest.mark.parametrize("account_spec", [SimulatedAccountSpec(), WHOLE])
@pytest.mark.parametrize("fill", ["next_open", "next_close"])
def test_equity_without_costs_matches_an_independent_ledger(account_spec, fill):
    account = traded(FREE.model_copy(update={"fill": fill}), STEADY, account_spec)
    assert_a_clerk_agrees(account)
    assert len(account.book.filled) > 50


@pytest.mark.parametrize(
    ("panel", "account_spec"),
    [
        (STEADY, SimulatedAccountSpec(slippage_bps=50.0)),
        (EVENTFUL, WHOLE),
        (EVENTFUL, SimulatedAccountSpec(skip_below=0.05, min_order=20_000.0)),
        (EVENTFUL, SimulatedAccountSpec(whole_shares=True, capital=2e5, slippage_bps=10.0, volume_share=0.2)),
    ],
)
def test_equity_with_costs_matches_the_back_test(panel, account_spec):
    account = traded(DEAR, panel, account_spec, 3000.0)
    assert_a_clerk_agrees(account)
    assert sum(state.cost for state in account.states) > 0.01


def test_whole_share_holdings_stay_whole():
    for state in traded(DEAR).states:
        for shares in state.shares.values():
            assert shares == pytest.approx(round(shares), abs=1e-6)


def test_untraded_names_pay_costs_in_shares_as_in_a_back_test():
    account = traded(DEAR, account_spec=SimulatedAccountSpec())
    name, (first, last) = EVENTFUL.symbols[GAPPY], GAP
    held = [account.states[t - FIRST].shares[name] for t in range(first - 1, last)]
    assert held[-1] < held[0]
    assert not any(state.differences for state in account.states)


def test_unexpected_cash_is_a_difference():
    account = traded(DEAR, STEADY)
    order_id, fill = list(account.book.filled.items())[-1]
    again = Account(account.deployed, account.log, account.book, account_spec=WHOLE, prices=account.prices)
    session = account.book.states.popitem()[0]
    if fill.session != session:
        session = account.book.states.popitem()[0]
    account.book.filled[order_id] = fill.model_copy(update={"cost": fill.cost + 5.0})
    state = again.trader.settle(STEADY.index_of(np.datetime64(session)))
    assert [each.partition(":")[0] for each in state.differences] == ["cash"]


@pytest.mark.parametrize("killed_after", ["submit", "fill"])
@pytest.mark.parametrize(
    "account_spec", [SimulatedAccountSpec(), WHOLE, SimulatedAccountSpec(volume_share=0.2, slippage_bps=20.0)]
)
def test_price_adjustment_between_steps_changes_shares_only(killed_after, account_spec):
    def upto(t):
        spec = spec_of(environment=DEAR.model_dump(), pipeline=PIPELINE)
        prices = prices_of(STEADY, volume=10_000.0)
        account = Account(Deployed(STEADY, spec, Wishes()), account_spec=account_spec, prices=prices)
        account.open(10).trade(11, t - 1)
        return account

    once, then = upto(15), upto(15)
    expected = once.session(15)
    if killed_after == "fill":
        then.trader.execute(15)
    else:
        for order in then.broker.orders(then.trader._pending_record(15).plan, 14)[0]:
            then.broker.submit(order)
    then.prices = prices_of(STEADY, first=70.0, volume=10_000.0 / 0.7)
    then.trader = then.hired()
    state = then.session(15)
    assert expected.turnover > 0.1
    assert state.weights == pytest.approx(expected.weights, abs=1e-12)
    assert (state.equity, state.cost) == pytest.approx((expected.equity, expected.cost), rel=1e-12)
    assert state.shares == pytest.approx({name: n / 0.7 for name, n in expected.shares.items()}, rel=1e-9)
    assert state.differences == ()


@pytest.mark.parametrize("account_spec", [SimulatedAccountSpec(), SimulatedAccountSpec(volume_share=0.5)])
def test_placed_order_of_a_withdrawn_bar_is_cancelled(account_spec):
    spec, volume = spec_of(environment=DEAR.model_dump(), pipeline=PIPELINE), 1e9
    prices = prices_of(STEADY, volume=volume)
    account = Account(Deployed(STEADY, spec, Wishes()), account_spec=account_spec, prices=prices)
    account.open(10).trade(11, 14)
    placed = account.broker.orders(account.trader._pending_record(15).plan, 14)[0]
    for order in placed:
        account.broker.submit(order)
    there = STEADY.tradable.copy()
    there[15, STEADY.symbols.index(placed[-1].symbol)] = False
    account.deployed.panel = replace(
        STEADY,
        tradable=there,
        close_returns=STEADY.close_returns * there,
        overnight_returns=STEADY.overnight_returns * there,
    )
    account.prices = prices_of(account.deployed.panel, volume=volume)
    account.trader = account.hired()
    state = account.session(15)
    ended = {each.order: (each.status, each.reason) for each in account.book.orders(placed[0].plan_id)}
    reason = NO_PRICE.format(session=state.session)
    assert ended == {**dict.fromkeys(placed[:-1], ("filled", "")), placed[-1]: ("cancelled", reason)}
    assert state.differences == ()


@pytest.mark.slow
def test_whole_share_account_converges_to_a_fractional_one():
    apart = []
    for capital in (20_000.0, 20_000_000.0):
        whole = traded(DEAR, account_spec=SimulatedAccountSpec(whole_shares=True, capital=capital)).states
        parts = traded(DEAR, account_spec=SimulatedAccountSpec(capital=capital)).states
        apart.append(max(abs(a.equity - b.equity) for a, b in zip(whole, parts, strict=True)))
    assert apart[1] < 1e-5 < apart[0] < 0.01


@pytest.mark.slow
def test_capital_scales_shares_only():
    small, large = (traded(DEAR, account_spec=SimulatedAccountSpec(capital=c)).states for c in (1e4, 1e7))
    assert [state.weights for state in small] == [state.weights for state in large]
    assert [state.equity for state in small] == [state.equity for state in large]


@pytest.mark.slow
def test_slippage_is_in_costs_and_fill_prices():
    spec = SimulatedAccountSpec(slippage_bps=30.0)
    slipped, dearer = (
        traded(DEAR, account_spec=spec),
        traded(DEAR.model_copy(update={"turnover_cost_bps": 50.0}), account_spec=SimulatedAccountSpec()),
    )
    for one, other in zip(slipped.states, dearer.states, strict=True):
        assert one.equity == pytest.approx(other.equity, rel=1e-12)
        assert one.weights == pytest.approx(other.weights, abs=1e-12)
    quotes = {order_id: each.order.quote for order_id, each in slipped.book.placed.items()}
    for order_id, fill in slipped.book.filled.items():
        worse = 1.003 if fill.side == "buy" else 0.997
        assert fill.price == pytest.approx(quotes[order_id] * worse, rel=1e-12)


@pytest.mark.parametrize("account_spec", [SimulatedAccountSpec(slippage_bps=50.0), WHOLE])
def test_session_cost_is_the_sum_of_fees_and_slippage(account_spec):
    account = traded(DEAR.model_copy(update={"fill": "same_close"}), STEADY, account_spec)
    quotes = {order_id: each.order.quote for order_id, each in account.book.placed.items()}
    paid = {}
    for order_id, fill in account.book.filled.items():
        slipped = abs(fill.price - quotes[order_id]) * fill.quantity
        paid[order_id[:16]] = paid.get(order_id[:16], 0.0) + fill.cost + slipped
    settled = list(account.book.states.values())
    for before, state in itertools.pairwise(settled):  # filled at the close before
        if state.plan_id is not None:
            assert paid[state.plan_id] == pytest.approx(state.cost * before.value, rel=1e-9)
    assert len(paid) > 10


def test_fills_are_limited_by_volume_share():
    spec = SimulatedAccountSpec(volume_share=0.1)
    account = traded(DEAR, account_spec=spec, volume=10_000.0)
    assert max(fill.quantity for fill in account.book.filled.values()) <= 1000.0 * (1 + 1e-12)
    parts = [fill for fill in account.book.filled.values() if not fill.complete]
    assert parts
    cancelled = {event.order_id for event in account.log.of("cancelled")}
    assert {fill.order_id for fill in parts} <= cancelled
    for state in account.states:
        assert state.weights[-1] >= 0.0
        assert not state.differences


def test_unknown_volume_fills_nothing_under_a_volume_limit():
    account = traded(DEAR, account_spec=SimulatedAccountSpec(volume_share=0.1))
    assert not account.book.filled
    assert account.states[-1].weights[-1] == 1.0
    placed = {event.order_id for event in account.log.of("placed")}
    assert all("volume" in event.reason for event in account.log.of("cancelled") if event.order_id in placed)


def test_buys_are_within_cash_when_the_sells_were_not_placed():
    panel = synthetic_panel(60, 4)
    policy = Wants(0.45, 0.4, 0.1, 0.0, 0.05)
    account = Account(Deployed(panel, spec_of(environment=DEAR.model_dump(), pipeline=PIPELINE), policy))
    account.open(10).session(11)
    policy.weights = np.array([0.0, 0.1, 0.4, 0.5, 0.0])
    account.session(12)
    plan = account.trader.propose(12)
    orders, _ = account.broker.orders(plan, 12)
    sells, buys = [[o for o in orders if o.side == side] for side in ("sell", "buy")]
    assert sells
    assert buys
    for order in buys:
        account.broker.submit(order)
    outcome = account.broker.fill(plan, 12)
    state = account.trader.settle(13)
    assert {fill.side for fill in outcome.fills} == {"buy"}
    assert not all(fill.complete for fill in outcome.fills)
    assert 0.0 <= state.weights[-1] < 0.002  # what buying all of it would have cost is kept
    assert state.differences == ()


@pytest.mark.slow
def test_expected_and_actual_shares_agree_in_every_session():
    for spec in (
        SimulatedAccountSpec(),
        WHOLE,
        SimulatedAccountSpec(skip_below=0.03, slippage_bps=7.0, volume_share=0.2),
    ):
        account = traded(DEAR, account_spec=spec, volume=20_000.0)
        assert not any(state.differences for state in account.states)


def test_corrected_history_adjusts_shares_without_differences():
    panel, half = EVENTFUL, 51
    spec = spec_of(environment=DEAR.model_dump(), pipeline=PIPELINE)
    first = Account(Deployed(cut(panel, half), spec))
    first.open(FIRST - 1).trade(FIRST, half)
    prices = prices_of(panel, first=50.0)  # a split in two since
    then = Account(Deployed(panel, spec), first.log, first.book, prices=prices)
    states = then.trade(half + 1, half + 10)
    assert not any(state.differences for state in states)
    before = first.book.at(panel.sessions[half].item()).shares
    assert states[0].shares == pytest.approx({name: 2.0 * shares for name, shares in before.items()}, rel=1e-9)


def account_at_gross_two(action=LONG_SHORT, policy=None, panel=EVENTFUL, account_spec=WHOLE, **environment):
    """An unopened account with a levered policy."""
    environment = DEAR.model_dump() | {"action": action, "financing": FINANCING} | environment
    policy = policy or LeveredWishes(is_short=action is LONG_SHORT)
    deployed = Deployed(panel, spec_of(environment=environment, pipeline=GROSS_TWO), policy)
    return Account(deployed, account_spec=account_spec, prices=prices_of(panel, volume=30_000.0))


def clerk_at_gross_two(account):
    """Cash by session as a clerk keeps it: fills, interest on debt and shorts, and the shares sold at the close."""
    panel, prices = account.deployed.panel, account.prices.last_closes
    sessions, states = [each.astype("O") for each in panel.sessions], account.book.states
    cash, kept = account.account_spec.capital, {}
    for t in range(FIRST, LAST + 1):
        before, state = states[sessions[t - 1]], states[sessions[t]]
        worth = {name: n * prices[t - 1, PLACES[name]] for name, n in before.shares.items()}
        short, days = sum(max(0.0, -each) for each in worth.values()), (sessions[t] - sessions[t - 1]).days
        fee = days / 360.0 * (0.5 * max(0.0, -cash) + 0.1 * short)
        fills = [fill for fill in account.book.filled.values() if fill.session == sessions[t]]
        signed = {fill.symbol: fill.quantity if fill.side == "buy" else -fill.quantity for fill in fills}
        cash -= fee + sum(signed[fill.symbol] * fill.price + fill.cost for fill in fills)
        for name in {*before.shares, *signed}:
            held = before.shares.get(name, 0.0) + signed.get(name, 0.0)
            left, close = state.shares.get(name, 0.0), prices[t, PLACES[name]]
            cash += (held - left) * close  # sold by the cap, or paid out; the shares that pay for a cost are not
        if before.shares:
            assert state.financing * before.value == pytest.approx(fee, rel=1e-9)
        cash -= state.cap_cost / (1.0 - state.cap_cost) * state.value
        kept[t] = cash
    return kept


@pytest.mark.parametrize("action", [LEVERED, LONG_SHORT], ids=["levered", "long-short"])
@pytest.mark.parametrize(
    "account_spec", [WHOLE, SimulatedAccountSpec(whole_shares=True, slippage_bps=10.0, volume_share=0.2)]
)
def test_cash_at_gross_two_matches_an_independent_ledger(action, account_spec):
    account = account_at_gross_two(action, account_spec=account_spec)
    account.open(FIRST - 1).trade(FIRST, LAST)
    for t, cash in clerk_at_gross_two(account).items():
        state = account.book.states[EVENTFUL.sessions[t].astype("O")]
        assert state.weights[-1] * state.value == pytest.approx(cash, abs=1e-8 * account.account_spec.capital)
        assert state.differences == ()
    states = list(account.book.states.values())
    assert max(state.gross for state in states) == pytest.approx(1.5)
    assert max(state.cap_turnover for state in states) > 0.0
    whole = [fill for key, fill in account.book.filled.items() if account.book.placed[key].order.target_weight != 0.0]
    assert all(fill.quantity == pytest.approx(round(fill.quantity), abs=1e-6) for fill in whole)


@pytest.mark.parametrize("account_spec", [SimulatedAccountSpec(), WHOLE])
def test_cap_at_the_close_keeps_the_shares_of_a_name_without_a_price(account_spec):
    account = account_at_gross_two(LEVERED, account_spec=account_spec, rebal_freq=1)
    account.open(FIRST - 1).trade(FIRST, GAP[1])
    states = [account.book.states[EVENTFUL.sessions[t].astype("O")] for t in range(GAP[0] - 1, GAP[1])]
    for before, state in itertools.pairwise(states):
        paid = state.cap_cost if account_spec is WHOLE else 1.0 - (1.0 - state.cap_cost) * (1.0 - state.cost)
        held = before.shares[EVENTFUL.symbols[GAPPY]] * (1.0 - paid)
        assert state.shares[EVENTFUL.symbols[GAPPY]] == pytest.approx(held, rel=1e-9)
    assert max(state.cap_turnover for state in states[1:]) > 0.0


def test_tampered_share_of_a_short_position_is_a_difference():
    account = account_at_gross_two(account_spec=SimulatedAccountSpec())
    *_, state = account.open(FIRST - 1).trade(FIRST, FIRST + 3)
    name, held = min(state.shares.items(), key=lambda pair: pair[1])
    account.book.states[state.session] = state.model_copy(update={"shares": {**state.shares, name: held - 1.0}})
    account.trader.execute(FIRST + 4)
    again = account.trader.settle(FIRST + 4)
    assert held < 0.0
    assert [each.partition(":")[0] for each in again.differences] == [name]


def test_short_position_is_covered_completely_with_a_fraction():
    panel, policy = synthetic_panel(60, 2), Wants(1.0, -1.0, 1.0)
    account = account_at_gross_two(LONG_SHORT, policy, panel).open(10)
    account.trade(11, 13)
    held = account.book.last().shares[panel.symbols[1]]
    assert held < 0.0
    assert abs(held - round(held)) > 1e-3
    policy.weights = np.array([0.5, 0.0, 0.5])
    account.trade(14, 15)
    assert account.book.last().shares.keys() == {panel.symbols[0]}


@pytest.mark.parametrize("fill", ["next_open", "same_close"])
def test_ruined_account_is_cash_of_equity_zero_and_settles_on(fill):
    panel = synthetic_panel(60, 2)
    returns, overnight = panel.close_returns.copy(), panel.overnight_returns.copy()
    returns[13], overnight[13] = -0.75, -0.72
    panel = replace(panel, close_returns=returns, overnight_returns=overnight)
    account = account_at_gross_two(LEVERED, Wants(0.9, 0.9, -0.8), panel, SimulatedAccountSpec(), fill=fill)
    states = account.open(10).trade(11, 16)
    assert [state.equity for state in states][2:] == [0.0] * 4
    assert [state.net_return for state in states][2:] == [-1.0, 0.0, 0.0, 0.0]
    for state in states[2:]:
        assert state.weights == (0.0, 0.0, 1.0)
        assert state.shares == {}
    assert not any(state.differences for state in states)
    assert max(fill.session for fill in account.book.filled.values()) <= states[1].session


def test_long_only_environment_refuses_an_account_with_a_short_position():
    account = account_at_gross_two(account_spec=SimulatedAccountSpec())
    state = account.open(FIRST - 1).session(FIRST)
    account.deployed = Deployed(EVENTFUL, spec_of(environment=DEAR.model_dump(), pipeline=PIPELINE), Wishes())
    account.trader = account.hired()
    with pytest.raises(ExecutionError):
        account.session(FIRST + 1)
    assert account.book.last() == state
