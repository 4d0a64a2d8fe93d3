"""Strategies see closed bars alone, give orders, and ask an injected agent."""

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.engines import (
    EventDriven,
    LimitReversion,
    RebalanceStrategy,
    RLAgentBridge,
    Strategy,
)
from nvtrader_pipelines.policies.baselines import EqualWeight
from tests.evaluation.engines.markets import FREE, hand_made, rows, run
from tests.markets import synthetic_panel
from tests.panels import with_other_future

MARKET = synthetic_panel(40, 3)


def test_strategy_reaches_no_later_bar():
    def look(context, number):
        bars, bar = context.history(10**6), context.bar
        assert {len(array) for array in bars} == {number + 1}
        assert bar.session == MARKET.sessions[number].item() == bars.sessions[-1].item()
        assert all(array.base is None for array in (*bars, bar.account.weights))
        with pytest.raises(IndexError):
            bars.closes[number + 1]
        assert bar.close.tolist() == bars.closes[-1].tolist()
        assert len(bar.close.base) == 1  # the copy of one bar
        bars.closes[:] = 0.0  # a write reaches no price
        assert context.bar.close.tolist() == bar.close.tolist()
        assert len(context.history(2).closes) == min(2, number + 1)

    assert len(run(MARKET, look).curve) == 39


@pytest.mark.parametrize("timing", ["next", "next_open"])
def test_orders_do_not_change_with_the_future(timing):
    engine, later = EventDriven(timing=timing), with_other_future(MARKET, 25)
    one, other = (engine.run(panel, FREE, LimitReversion()) for panel in (MARKET, later))
    assert one.curve.head(25).equals(other.curve.head(25))
    assert not one.curve.equals(other.curve)
    day = MARKET.sessions[25].item()
    decided = [each.orders.filter(decided_on=day).select("symbol", "side", "limit") for each in (one, other)]
    assert len(decided[0]) == 3
    assert decided[0].equals(decided[1])


def test_context_shows_the_account_in_shares_and_money():
    seen = []

    def orders(context, number):
        seen.append((context.cash, context.positions, context.equity, context.bar.account.weights))
        if number == 0:
            context.order("AAA", 30)

    run(hand_made([(100, 110, 100, 110)], [(110, 110, 110, 110)]), orders)
    assert [row[1] for row in seen] == [{"AAA": 0.0}, {"AAA": 30.0}]
    assert [(row[0], row[2], *row[3]) for row in seen] == [
        (10_000.0, 10_000.0, 0.0, 1.0),
        pytest.approx((7_000.0, 10_300.0, 3_300 / 10_300, 7_000 / 10_300)),
    ]


def test_rebalance_asks_the_injected_agent_at_its_frequency():
    class Recorder(RLAgentBridge):
        def decide(self, bar):
            days.append(bar.session)
            return super().decide(bar)

    days, agent = [], Recorder(EqualWeight().start(), MARKET)
    strategy = RebalanceStrategy(rebal_freq=10)
    result = EventDriven(timing="next_open").run(MARKET, FREE, strategy, injected={"rl_agent": agent})
    assert days == MARKET.sessions[:39:10].tolist()
    assert np.flatnonzero(result.curve["turnover"]).tolist() == [0, 10, 20, 30]
    assert len(result.orders) == 12
    with pytest.raises(ValueError, match="rl_agent"):
        EventDriven().run(MARKET, FREE, strategy)


def test_agent_decides_at_no_bar_that_is_not_closed():
    class Peek(Strategy):
        kind: str = "peek"

        def start(self, symbols):
            tomorrow = MARKET.sessions[1].item()
            return lambda context: context["rl_agent"].decide(context.bar._replace(session=tomorrow))

    with pytest.raises(ValueError, match="closed bar"):
        EventDriven().run(MARKET, FREE, Peek(), injected={"rl_agent": RLAgentBridge(EqualWeight().start(), MARKET)})


def test_limit_reversion_buys_below_and_sells_above_the_last_close():
    panel = hand_made([(100, 101, 98, 100)], [(100, 100.5, 99.5, 100)], [(100, 102, 99, 100)])
    result = EventDriven(capital=1_000.0).run(panel, FREE, LimitReversion())
    fills = [(side, price and round(price, 9)) for side, price in rows(result, "side", "price")]
    assert fills == [("buy", 99.0), ("sell", None), ("sell", 101.0)]
    assert result.curve["equity"][-1] == pytest.approx(1.0 + 2.0 / 99.0 * 0.99)
