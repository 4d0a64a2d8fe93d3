import numpy as np
import pytest

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.execution.brokers.account_spec import PaperAccountSpec
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.desks import Account, Deployed, Wants, Wishes, prices_of, spec_of
from tests.markets import synthetic_panel
from tests.panels import cut, eventful_panel

PIPELINE = WeightPipeline(risk_limits=RiskLimits(max_position=0.5))
FREE = EnvSpec(lookback=5, episode_len=20, rebal_freq=2, turnover_cost_bps=0.0)
DEAR = FREE.model_copy(update={"turnover_cost_bps": 20.0})
EVENTFUL, FIRST, LAST = eventful_panel(), 25, 70
WHOLE = PaperAccountSpec(whole_shares=True)


def traded(environment=FREE, panel=EVENTFUL, account_spec=WHOLE, volume=np.nan, **options):
    """An account after some sessions on an eventful market, or on another."""
    spec = spec_of(environment=environment.model_dump(), pipeline=PIPELINE)
    prices = prices_of(panel, volume=volume)
    account = Account(Deployed(panel, spec, Wishes()), account_spec=account_spec, prices=prices, **options)
    account.states = account.open(FIRST - 1).trade(FIRST, LAST)
    return account


def ledger(account, environment, panel, cost_bps=0.0):
    """Shares and cash by session as a clerk keeps them, from the fills alone."""
    cash, shares, kept = account.account_spec.capital, dict.fromkeys(panel.symbols, 0.0), {}
    by_session = {}
    for fill in account.book.filled.values():
        by_session.setdefault(fill.session, []).append(fill)
    for t in range(FIRST, LAST + 1):
        for fill in by_session.get(panel.sessions[t].item(), []):
            quantity = fill.quantity if fill.side == "buy" else -fill.quantity
            shares[fill.symbol] += quantity
            cash -= quantity * fill.price + fill.cost
        kept[t] = cash, dict(shares)
    return kept


@pytest.mark.parametrize("account_spec", [PaperAccountSpec(), WHOLE])
@pytest.mark.parametrize("fill", ["next_open", "next_close"])
def test_without_costs_equity_is_what_a_clerk_makes_of_the_fills_and_the_closes(account_spec, fill):
    panel = synthetic_panel(100, 5)
    account = traded(FREE.model_copy(update={"fill": fill}), panel, account_spec)
    for t, (cash, shares) in ledger(account, FREE, panel).items():
        state = account.states[t - FIRST]
        worth = cash + sum(n * account.prices.closes[t, j] for j, n in enumerate(shares.values()))
        assert state.value == pytest.approx(worth, rel=1e-10)
        assert state.weights[-1] * state.value == pytest.approx(cash, abs=1e-4)
        assert state.shares == pytest.approx({name: n for name, n in shares.items() if n > 1e-9}, rel=1e-9)
    assert len(account.book.filled) > 50


def test_whole_shares_stay_whole_whatever_trading_costs_and_cash_pays_for_it():
    panel = synthetic_panel(100, 5)
    account = traded(DEAR, panel)
    for state in account.states:
        for shares in state.shares.values():
            assert shares == pytest.approx(round(shares), abs=1e-6)
        assert 0.0 <= state.weights[-1] < 1.0
        assert not state.differences
    assert sum(state.cost for state in account.states) > 0.01
    for t, (cash, _) in ledger(account, DEAR, panel).items():
        state = account.states[t - FIRST]
        assert state.weights[-1] * state.value == pytest.approx(cash, abs=0.001 * account.account_spec.capital)


def test_an_account_of_whole_shares_is_near_one_of_fractions_and_the_nearer_the_more_it_has():
    apart = []
    for capital in (20_000.0, 20_000_000.0):
        whole = traded(DEAR, account_spec=PaperAccountSpec(whole_shares=True, capital=capital)).states
        parts = traded(DEAR, account_spec=PaperAccountSpec(capital=capital)).states
        apart.append(max(abs(a.equity - b.equity) for a, b in zip(whole, parts, strict=True)))
    assert apart[1] < 1e-5 < apart[0] < 0.01


def test_capital_changes_shares_and_nothing_else():
    small, large = (traded(DEAR, account_spec=PaperAccountSpec(capital=c)).states for c in (1e4, 1e7))
    assert [state.weights for state in small] == [state.weights for state in large]
    assert [state.equity for state in small] == [state.equity for state in large]


def test_slippage_is_a_cost_in_proportion_to_what_is_traded_and_in_the_price_of_every_fill():
    spec = PaperAccountSpec(slippage_bps=30.0)
    slipped, dearer = (
        traded(DEAR, account_spec=spec),
        traded(DEAR.model_copy(update={"turnover_cost_bps": 50.0}), account_spec=PaperAccountSpec()),
    )
    for one, other in zip(slipped.states, dearer.states, strict=True):
        assert one.equity == pytest.approx(other.equity, rel=1e-12)
        assert one.weights == pytest.approx(other.weights, abs=1e-12)
    quotes = {order_id: each.order.quote for order_id, each in slipped.book.placed.items()}
    for order_id, fill in slipped.book.filled.items():
        worse = 1.003 if fill.side == "buy" else 0.997
        assert fill.price == pytest.approx(quotes[order_id] * worse, rel=1e-12)


def test_the_fees_of_the_fills_are_the_cost_of_the_session():
    account = traded(DEAR, account_spec=PaperAccountSpec())
    paid = {}
    for fill in account.book.filled.values():
        paid[fill.session] = paid.get(fill.session, 0.0) + fill.cost
    found = {state.session: state for state in account.states}
    before = dict(zip([state.session for state in account.states][1:], account.states, strict=False))
    for session in list(paid)[1:]:
        assert paid[session] == pytest.approx(found[session].cost * before[session].value, rel=0.05)


def test_an_order_fills_no_more_than_its_share_of_the_sessions_volume():
    spec = PaperAccountSpec(volume_share=0.1)
    account = traded(DEAR, account_spec=spec, volume=10_000.0)
    assert max(fill.quantity for fill in account.book.filled.values()) <= 1000.0 * (1 + 1e-12)
    parts = [fill for fill in account.book.filled.values() if not fill.complete]
    assert parts
    cancelled = {event.order_id for event in account.log.of("cancelled")}
    assert {fill.order_id for fill in parts} <= cancelled
    for state in account.states:
        assert state.weights[-1] >= 0.0
        assert not state.differences


def test_without_volume_known_nothing_fills_where_it_limits_an_order():
    account = traded(DEAR, account_spec=PaperAccountSpec(volume_share=0.1))
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


def test_expected_and_actual_shares_agree_in_every_session_whatever_happens_to_names():
    for spec in (PaperAccountSpec(), WHOLE, PaperAccountSpec(skip_below=0.03, slippage_bps=7.0, volume_share=0.2)):
        account = traded(DEAR, account_spec=spec, volume=20_000.0)
        assert not any(state.differences for state in account.states)


def test_a_corrected_history_restates_the_shares_and_is_no_difference():
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


def test_holdings_are_those_of_the_last_close():
    account = traded(DEAR)
    holdings, state = account.broker.holdings(), account.states[-1]
    assert holdings.shares == state.shares
    assert holdings.equity == state.value
    assert holdings.cash + sum(
        shares * state.prices[name] for name, shares in holdings.shares.items()
    ) == pytest.approx(state.value, rel=1e-12)
