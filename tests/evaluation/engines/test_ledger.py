"""Orders, fills and money of an account of shares, by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import EventDriven
from tests.evaluation.engines.markets import FREE, WHOLE, hand_made, rows, run
from tests.panels import DELISTED, LAST_PRICE, MAX_GAP, eventful_panel

TWO_DAYS = hand_made([(100, 104, 97, 103), (101, 103, 99, 100)], [(103, 106, 102, 104), (100, 101, 98, 99)])
FLAT = (100, 100, 100, 100)
FILL = ("symbol", "side", "quantity", "price", "status")


def test_two_days_of_limit_orders_to_the_cent():
    def orders(context, number):
        if number == 0:
            context.order("AAA", 40)
            context.order("AAA", 10, limit=98.0)
            context.order("BBB", 20, limit=102.0)
            context.order("BBB", 5, limit=98.5)
        else:
            context.order("AAA", -30, limit=105.0)
            context.order("BBB", -20, limit=99.0)
            context.order("AAA", 60, limit=102.5)

    result = run(TWO_DAYS, orders, environment=EnvSpec(turnover_cost_bps=10.0))
    first, second, third = TWO_DAYS.sessions.tolist()
    assert [(*row[:3], row[3] and round(row[3], 9), *row[4:]) for row in rows(result, *FILL, "limit", "session")] == [
        ("AAA", "buy", 40.0, 100.0, "filled", None, second),
        ("BBB", "buy", 20.0, 101.0, "filled", 102.0, second),  # the open is better than the limit
        ("BBB", "buy", 0.0, None, "ended", 98.5, second),
        ("AAA", "buy", 10.0, 98.0, "filled", 98.0, second),
        ("BBB", "sell", 20.0, 100.0, "filled", 99.0, third),
        ("AAA", "sell", 30.0, 105.0, "filled", 105.0, third),
        ("AAA", "buy", 48.0, 102.5, "filled", 102.5, third),  # 4991.00 of cash at the open, none of the bar's sale
    ]
    assert result.orders["decided_on"].to_list() == [first] * 4 + [second] * 3
    assert "[99, 103]" in result.orders.row(2, named=True)["reason"]
    value = [2993.00 + 50 * 103 + 20 * 100, 3212.93 + 68 * 104]
    np.testing.assert_allclose(result.curve["equity"] * 10_000.0, value, atol=1e-6)
    cash = result.curve["cash"] * result.curve["equity"] * 10_000.0
    np.testing.assert_allclose(cash, [2993.00, 3212.93], atol=1e-6)
    np.testing.assert_allclose(result.curve["cost"][0], 7.00 / 10_000.0, rtol=1e-3)


@pytest.mark.parametrize(("timing", "invested"), [("next", 55.0), ("next_open", 50.0)])
def test_timing_decides_which_price_sizes_a_target(timing, invested):
    engine = EventDriven(timing=timing, capital=100.0)
    panel = hand_made([(110, 110, 110, 110)])
    result = run(panel, lambda context, _: context.order_target_percent("AAA", 0.5), engine)
    assert result.orders["quantity"][0] == pytest.approx(invested / 110.0)  # 0.5 shares, or 50 of money at the open
    assert result.weights[0] == pytest.approx([invested / 100.0, 1.0 - invested / 100.0])


def test_sales_are_cut_to_holdings_and_purchases_to_the_cash():
    def orders(context, number):
        if number == 0:
            context.order("AAA", 80)
            context.order("BBB", 40)
        elif number == 1:
            context.order("AAA", -100)
        else:
            context.order_target_percent("BBB", -0.5)

    result = run(hand_made(*[[FLAT] * 2] * 3), orders)
    assert rows(result, "symbol", "side", "quantity", "reason") == [
        ("AAA", "buy", 66.0, "cut to what the cash pays for"),
        ("BBB", "buy", 33.0, "cut to what the cash pays for"),
        ("AAA", "sell", 66.0, "cut to the shares held"),
        ("BBB", "sell", 33.0, "cut to the shares held"),
    ]
    assert result.curve["cash"].to_list() == pytest.approx([0.01, 0.67, 1.0])


@pytest.mark.parametrize("timing", ["next", "next_open"])
def test_later_target_of_a_bar_replaces_the_earlier(timing):
    def orders(context, number):
        for weight in (0.9, 0.3):
            context.order_target_percent("AAA", weight)

    result = run(TWO_DAYS, orders, EventDriven(timing=timing))
    assert rows(result, "status", "reason")[:2] == [("ended", "replaced by a later target"), ("filled", "")]
    assert result.curve["turnover"][0] == pytest.approx(0.3)


def test_name_without_a_price_does_not_trade_and_a_delisted_is_paid_out():
    panel = eventful_panel()
    symbol = panel.symbols[DELISTED]
    result = run(panel, lambda context, _: context.order_target_percent(symbol, 0.5), EventDriven(timing="next_open"))
    ended = result.orders.filter(status="ended")
    assert ended["session"].to_list() == panel.sessions[LAST_PRICE + 1 :].tolist()
    assert set(ended["reason"]) == {"no price in this session"}
    held = result.weights[LAST_PRICE + MAX_GAP - 1 : LAST_PRICE + MAX_GAP + 1, DELISTED]
    assert held[0] > 0.4
    assert held[1] == 0.0
    assert result.curve["equity"][LAST_PRICE + MAX_GAP] == result.curve["equity"][LAST_PRICE]


def test_first_closes_set_the_level_of_prices():
    account = EventDriven(first_closes={"BBB": 20.0}).open(TWO_DAYS, FREE)
    assert account.bars.closes[1] == pytest.approx([103.0, 20.0])


@pytest.mark.parametrize(("symbol", "amount", "limit"), [("ZZZ", 1, None), ("AAA", np.nan, None), ("AAA", 1, np.inf)])
def test_order_without_a_name_or_number_is_refused(symbol, amount, limit):
    account = WHOLE.open(TWO_DAYS, FREE)
    for give in (account.order, account.order_target_percent):
        with pytest.raises(ValueError, match="order"):
            give(symbol, amount, limit)


def test_sales_of_all_shares_in_one_bar_leave_none():
    account = EventDriven().open(TWO_DAYS, FREE)
    account.order("AAA", 61.9)
    account.advance()
    account.order("AAA", -23.7)
    account.order("AAA", -61.9)  # cut to the 38.2 left; the sum of both rounds to more than 61.9
    account.advance()
    assert account.shares.tolist() == [0.0] * len(TWO_DAYS.symbols)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    timing=st.sampled_from(["next", "next_open"]),
    whole=st.booleans(),
    fill=st.sampled_from(["next_open", "next_close"]),
)
def test_money_is_conserved_and_never_borrowed(seed, timing, whole, fill):
    panel, generator = eventful_panel(90, seed % 5), np.random.default_rng(seed)
    spec = EventDriven(timing=timing, whole_shares=whole, capital=50_000.0)
    account = spec.open(panel, EnvSpec(turnover_cost_bps=50.0, fill=fill))
    for _ in range(89):
        for _ in range(generator.integers(0, 6)):
            give = (account.order, account.order_target_percent)[generator.integers(2)]
            amount = generator.normal(0.0, 300.0) if give == account.order else generator.normal(0.3, 0.5)
            limit = None if generator.random() < 0.5 else float(generator.normal(100.0, 5.0))
            give(panel.symbols[generator.integers(6)], amount, limit)
        held, cash, n_orders = account.shares.copy(), account.cash, len(account.orders)
        closes, delisted = account.bars.closes[account.t + 1], panel.delisted[account.t + 1]
        account.advance()
        assert account.cash >= 0.0
        assert (account.shares >= 0.0).all()
        assert not whole or (account.shares == np.round(account.shares)).all()
        signed = {"buy": 1.0, "sell": -1.0}
        fills = [(row, signed[row.side] * row.quantity) for row in account.orders[n_orders:] if row.status == "filled"]
        paid = cash + held[delisted] @ closes[delisted] - sum(shares * row.price for row, shares in fills)
        assert account.cash <= paid + 1e-6
        assert account.cash >= paid - 0.006 * sum(abs(shares) * row.price for row, shares in fills) - 1e-6
        for row, _ in fills:
            j = panel.symbols.index(row.symbol)
            low, high = account.bars.lows[account.t, j], account.bars.highs[account.t, j]
            assert low * (1 - 1e-12) <= row.price <= high * (1 + 1e-12)
            assert row.limit is None or (row.limit - row.price) * signed[row.side] >= 0.0
