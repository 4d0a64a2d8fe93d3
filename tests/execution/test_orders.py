import datetime as dt

import numpy as np
import pytest

from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.orders import Ticket, make_orders, order_id, require_prices
from nvtrader_pipelines.execution.plan import RebalancePlan, Stage

MONDAY = dt.date(2024, 1, 8)
NAMES = ("AAA", "BBB", "CCC", "DDD")


def ticket(*shares, target=(0.1, 0.2, 0.0, 0.3, 0.4), quotes=(10.0, 20.0, 30.0, 40.0)) -> Ticket:
    plan = RebalancePlan(
        plan_id="f" * 16,
        account="paper",
        session=dt.date(2024, 1, 5),
        policy="small",
        run_id="0" * 16,
        partition_key="small@00000000",
        spec_hash="0" * 64,
        fold=0,
        seeds=(0,),
        symbols=(*NAMES, "cash"),
        held=(0.2,) * 5,
        stages=(Stage(name="policy", weights=target),),
        truncated=False,
    )
    return Ticket(plan, MONDAY, np.array(shares), np.array(quotes))


def placed(made):
    return [(order.symbol, order.side, order.quantity) for order in made]


def test_sells_come_first_and_names_that_do_not_change_have_no_order():
    made = make_orders(ticket(1.5, -2.25, 0.0, 3.0), whole_shares=False)
    assert placed(made) == [("BBB", "sell", 2.25), ("AAA", "buy", 1.5), ("DDD", "buy", 3.0)]
    assert {order.session for order in made} == {MONDAY}


def test_order_holds_plan_quote_and_exact_target():
    third = 1.0 / 3.0
    (order,) = make_orders(ticket(0.0, 7.0, 0.0, 0.0, target=(0.0, third, 0.0, 0.0, 1.0 - third)), whole_shares=False)
    assert order.target_weight == third
    assert (order.order_id, order.quote) == (order_id("f" * 16, "BBB"), 20.0)


def test_whole_shares_round_down_and_complete_sales_keep_fractions():
    made = make_orders(ticket(1.9, -2.9, -2.9, 0.9), whole_shares=True)
    assert placed(made) == [("BBB", "sell", 2.0), ("CCC", "sell", 2.9), ("AAA", "buy", 1.0)]
    assert placed(make_orders(ticket(0.0, 0.0, 2.9, 0.0), whole_shares=True)) == [("CCC", "buy", 2.9)]  # covers a short
    assert placed(make_orders(ticket(2.9999999, 0.0, 0.0, 0.0), whole_shares=True)) == [("AAA", "buy", 3.0)]


@pytest.mark.parametrize("shares", [np.nan, np.inf])
def test_quantity_that_is_not_finite_raises(shares):
    with pytest.raises(ExecutionError):
        make_orders(ticket(1.0, 1.0, shares, 1.0), whole_shares=False)


def test_names_that_are_not_needed_may_lack_a_price():
    prices, needed = np.array([1.0, np.nan, 0.0, 2.0]), np.array([True, False, False, True])
    require_prices(NAMES, needed, prices, MONDAY)
    with pytest.raises(ExecutionError):
        require_prices(NAMES, ~needed, prices, MONDAY)
