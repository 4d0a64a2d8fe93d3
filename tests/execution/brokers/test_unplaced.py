"""What a plan asks for and no order is made of: which name, and why."""

from dataclasses import replace

import pytest

from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.brokers.fill_simulation import NO_PRICE
from nvtrader_pipelines.execution.brokers.live_venue import UNPAID
from nvtrader_pipelines.execution.brokers.venue import ON_TARGET, TOO_SMALL
from tests.execution.brokers.test_live_venue import PANEL, PRICES, Live
from tests.execution.desks import Account, Deployed, Wants
from tests.markets import with_values


def with_cash(live, cash, to_spend=None):
    """The account with another cash at the exchange, of which a part may be spent."""
    live.exchange.cash, holdings = cash, live.exchange.holdings
    live.exchange.holdings = lambda: replace(holdings(), to_spend=to_spend)
    return live


def ended(account):
    return [(event.symbol, event.reason) for event in account.log.of("cancelled")]


MIXED = (0.4, 0.18, 0.18, 0.18, 0.06)  # of 1000: some of the first name, one share of the others


def test_live_order_rounded_below_min_order_is_not_placed():
    live = with_cash(Live(*MIXED, whole_shares=True, min_order=150.0), 1000.0).open()
    assert [order.symbol for order in live.exchange.orders.values()] == ["AAA"]
    assert not ended(live)


def test_simulated_order_rounded_below_min_order_is_not_placed():
    spec = SimulatedAccountSpec(capital=1000.0, whole_shares=True, min_order=150.0)
    account = Account(Deployed(PANEL, Live().deployed.spec, Wants(*MIXED)), account_spec=spec).open(10)
    state = account.session(11)
    assert [event.symbol for event in account.log.of("placed")] == ["AAA"]
    assert list(state.shares) == ["AAA"]
    assert not state.differences


def test_buy_scaled_below_one_share_is_recorded_as_unpaid():
    live = with_cash(Live(0.2, 0.2, 0.2, 0.2, 0.2, whole_shares=True), 1000.0, to_spend=100.0).open()
    wanted = [name for name, close in zip(PANEL.symbols, PRICES.closes[10], strict=True) if close <= 200.0]
    assert wanted
    assert ended(live)[:-1] == [(name, UNPAID) for name in wanted]
    symbol, reason = ended(live)[-1]
    assert symbol is None
    assert UNPAID in reason
    assert not live.exchange.orders


def test_buy_scaled_below_min_order_is_recorded_as_unpaid():
    live = with_cash(Live(0.3, 0.1, 0.3, 0.3, 0.0, min_order=60.0), 1000.0, to_spend=500.0).open()
    assert {order.symbol for order in live.exchange.orders.values()} == {"AAA", "CCC", "DDD"}
    assert ended(live) == [("BBB", UNPAID)]


@pytest.mark.parametrize("spec", [{"min_order": 30_000.0}, {"skip_below": 0.5}], ids=["amount", "weight"])
def test_plan_of_small_changes_is_cancelled_as_too_small(spec):
    live = Live(**spec).open()
    paper = Account(
        Deployed(PANEL, live.deployed.spec, live.policy), account_spec=SimulatedAccountSpec(capital=100_000.0, **spec)
    )
    paper.open(10).session(11)
    for account in (live, paper):
        assert ended(account) == [(None, f"it makes no order: {TOO_SMALL}")]


def test_capital_below_one_share_is_recorded_as_too_small():
    live = with_cash(Live(0.2, 0.2, 0.2, 0.2, 0.2, whole_shares=True), 200.0).open()
    assert ended(live) == [(None, f"it makes no order: {TOO_SMALL}")]


def test_plan_equal_to_holdings_is_cancelled_as_on_target():
    live = Live(0.0, 0.0, 0.0, 0.0, 1.0).open()
    assert ended(live) == [(None, f"it makes no order: {ON_TARGET}")]


def test_plan_of_halted_changes_is_cancelled_with_their_names():
    live = Live(0.25, 0.25, 0.25, 0.25, 0.0)
    live.venue._panel = with_values(PANEL, "tradable", 10, values=False)
    live.open()
    reason = NO_PRICE.format(session=PANEL.sessions[10])
    assert ended(live) == [*((name, reason) for name in PANEL.symbols), (None, f"it makes no order: {reason}")]
