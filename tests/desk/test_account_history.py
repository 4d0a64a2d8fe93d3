"""Past, positions and curves of an account."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.desk.account_curves import account_curves, name_curve
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.account_history import account_history
from nvtrader_pipelines.desk.account_snapshot import account_snapshot
from nvtrader_pipelines.desk.positions import positions
from nvtrader_pipelines.storage.errors import NotFoundError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import FILLS, ORDERS, OUTCOMES, PORTFOLIO_STATE, REBALANCE_PLAN, RETURNS
from tests.desk.desks import DESKS, add_account, days_of, desk, evening, trade
from tests.homes import copy_home
from tests.runs.untrained import KEY

pytestmark = pytest.mark.slow
N_SESSIONS = 45
SLIPPAGE_BPS = 25.0


@pytest.fixture(scope="module")
def traded(active_home, tmp_path_factory):
    """Store of a home whose account has traded some sessions with slippage; read it, never write it."""
    DESKS.clear()
    store = Store(copy_home(active_home, tmp_path_factory.mktemp("traded") / "home"))
    run = store.policies.read_latest(KEY)
    add_account(store, "paper")
    (store.home.accounts / "paper.yaml").write_text(f"kind: simulated\nslippage_bps: {SLIPPAGE_BPS}\n")
    first = run.as_parent.window[0]
    trade(store, first, [day for day in days_of(store) if day >= first][N_SESSIONS - 1])
    desk(store).mirror()
    return store


def test_days_and_months_compound_and_sum_to_the_account(traded):
    history, last = account_history(traded, "paper"), AccountFacts.of(traded, "paper").states[-1]
    rows = traded.tables.read(PORTFOLIO_STATE).sort("session")
    assert [day.session for day in history.days] == rows["session"].to_list()[1:]
    assert [day.value for day in history.days] == rows["value"].to_list()[1:]
    for parts in (history.days, history.months):
        assert sum(part.profit for part in parts) == pytest.approx(last.value - last.capital)
    assert np.prod([1.0 + month.total_return for month in history.months]) == pytest.approx(last.equity)
    assert sum(month.n_sessions for month in history.months) == history.activity.n_sessions == N_SESSIONS


def test_orders_have_the_fills_of_the_tables_and_the_slippage_of_the_account(traded):
    orders, fills = account_history(traded, "paper").orders, traded.tables.read(FILLS)
    assert len(orders) == len(traded.tables.read(ORDERS)) > 10
    assert all(newer.session >= older.session for newer, older in pairwise(orders))
    assert sum(order.fees for order in orders) == pytest.approx(fills["cost"].sum())
    assert sum(order.filled_quantity * order.price for order in orders) == pytest.approx(
        (fills["quantity"] * fills["price"]).sum()
    )
    assert {round(1e4 * order.slippage, 6) for order in orders} == {SLIPPAGE_BPS}


def test_profit_of_a_position_is_its_value_less_what_its_fills_cost(traded):
    for position in account_snapshot(traded, "paper").positions:
        fills = traded.tables.read(FILLS).filter(
            pl.col("symbol") == position.symbol, pl.col("session") >= position.since
        )
        sign = fills["side"].replace_strict({"buy": 1.0, "sell": -1.0})
        paid = (sign * fills["quantity"] * fills["price"] + fills["cost"]).sum()
        assert position.profit == pytest.approx(position.value - paid)
        assert fills["session"].min() == position.since


def test_position_bought_again_is_held_since_then(traded):
    facts = AccountFacts.of(traded, "paper")
    name, gap = next(iter(facts.states[-1].shares)), len(facts.states) - 5
    sold = facts.states[gap].model_copy(update={"shares": {}})
    rows = positions(replace(facts, states=[*facts.states[:gap], sold, *facts.states[gap + 1 :]]))
    assert {row.symbol: row.since for row in rows}[name] == facts.states[gap + 1].session


def test_position_changed_without_an_order_has_no_profit(traded):
    facts = AccountFacts.of(traded, "paper")
    event = facts.events[-1].model_copy(update={"kind": "accepted", "session": facts.states[-1].session})
    assert {row.profit for row in positions(replace(facts, events=[*facts.events, event]))} == {None}


def test_position_that_changed_its_side_in_one_order_has_no_profit(traded):
    facts = AccountFacts.of(traded, "paper")
    name, begin = next(iter(facts.states[-1].shares)), len(facts.states) - 3
    short = facts.states[begin - 1].model_copy(update={"shares": {name: -1.0}})
    rows = positions(replace(facts, states=[*facts.states[: begin - 1], short, *facts.states[begin:]]))
    assert {row.symbol: (row.since, row.profit) for row in rows}[name] == (facts.states[begin].session, None)


def test_fill_at_the_close_of_its_decision_counts_for_the_profit(traded):
    facts = AccountFacts.of(traded, "paper")
    first = min(fill.session for fill in facts.fills)
    earlier = [
        event.model_copy(update={"detail": {"fill": {**event.detail["fill"], "session": str(facts.states[0].session)}}})
        if event.kind == "filled" and event.detail["fill"]["session"] == str(first)
        else event
        for event in facts.events
    ]
    assert positions(replace(facts, events=earlier)) == positions(facts)


def test_opened_account_without_a_session_has_positions_and_curves_of_one_close(trading_home):
    store, _ = trading_home
    trade(store, at=evening(store))
    facts = AccountFacts.of(store, "paper")
    history, curves = account_history(store, "paper"), account_curves(store, "paper")
    assert (history.activity.n_sessions, history.days, history.months) == (0, (), ())
    assert (curves.sessions, curves.equity) == ((facts.states[0].session,), {"account": (1.0,)})
    assert curves.missing


def test_plans_have_decisions_and_what_they_brought(traded, tmp_path):
    traded = Store(copy_home(traded.home, tmp_path / "own"))
    plan = traded.tables.read(REBALANCE_PLAN).sort("session").row(-1, named=True)
    row = dict.fromkeys(OUTCOMES.schema.names()) | {"plan_id": plan["plan_id"], "account": "paper", "excess_pct": 1.5}
    row |= {"practice": True}
    traded.tables.replace(OUTCOMES, pl.DataFrame([row], schema=OUTCOMES.schema), {})
    newest, *older = account_history(traded, "paper").plans
    names = ("plan_id", "session", "status", "turnover", "decided_by", "reason")
    assert {name: getattr(newest, name) for name in names} == {name: plan[name] for name in names}
    assert (newest.excess, {record.excess for record in older}) == (0.015, {None})
    assert (newest.practice, {record.practice for record in older}) == (True, {False})


def test_curves_are_those_of_the_back_test_of_one_n_and_of_spy(traded, tmp_path):
    traded = Store(copy_home(traded.home, tmp_path / "own"))
    last = AccountFacts.of(traded, "paper").states[-1]
    curves = account_curves(traded, "paper")
    assert list(curves.equity) == ["account", "back_test", "equal_weight"]
    tested = account_backtest(
        open_deployment(traded, last.run_id, last.policy), curves.sessions[0], curves.sessions[-1]
    )
    assert curves.equity["back_test"] == (1.0, *tested["equity"])
    assert curves.equity["equal_weight"] == (1.0, *tested["equal_weight"])
    assert curves.missing == ""
    spy = traded.tables.read(RETURNS, {"symbol": ["AAA"]}).with_columns(symbol=pl.lit("SPY"))
    traded.tables.replace(RETURNS, spy, {"symbol": ["SPY"]})
    returns = spy.filter(pl.col("session").is_in(curves.sessions[1:])).sort("session")["close_return"]
    assert account_curves(traded, "paper").equity["SPY"] == pytest.approx((1.0, *(1.0 + returns).cum_prod()))


def test_curve_of_a_name_has_its_closes_weights_and_fills(traded):
    facts = AccountFacts.of(traded, "paper")
    curve = name_curve(traded, "paper", "AAA")
    assert curve.sessions == tuple(state.session for state in facts.states)
    assert curve.weight == tuple(state.weights[state.symbols.index("AAA")] for state in facts.states)
    assert curve.close[-1] == pytest.approx(facts.states[-1].prices["AAA"])
    assert len(curve.fills) == len(traded.tables.read(FILLS).filter(pl.col("symbol") == "AAA"))


def test_account_that_never_traded_has_an_empty_past_and_no_curves(trading_home):
    store, _ = trading_home
    history = account_history(store, "paper")
    assert (history.activity, history.days, history.orders, history.plans) == (None, (), (), ())
    for read in (account_curves, lambda *names: name_curve(*names, "AAA")):
        with pytest.raises(NotFoundError):
            read(store, "paper")


@pytest.mark.parametrize("name", ["none", "<b>", "../paper"])
def test_unknown_account_is_not_found(trading_home, name):
    for read in (account_history, account_curves):
        with pytest.raises(NotFoundError):
            read(trading_home[0], name)
