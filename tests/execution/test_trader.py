import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.execution.audit import TradingState
from nvtrader_pipelines.execution.brokers.account_spec import SimulatedAccountSpec
from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings, purchase_bans
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import OTHER_NAMES
from nvtrader_pipelines.execution.plan import Finding
from nvtrader_pipelines.execution.proposals import reduced_plan
from nvtrader_pipelines.market.panel import PANEL_ARRAYS
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from tests.execution.desks import (
    ACCOUNT,
    Account,
    Deployed,
    MemoryBook,
    MemoryLog,
    Switch,
    Wants,
    prices_of,
    rows_of_orders,
    spec_of,
)
from tests.execution.plans import a_plan, record_decision
from tests.markets import synthetic_panel, with_values

PANEL = synthetic_panel(60, 4)
SPEC = spec_of(pipeline=WeightPipeline(risk_limits=RiskLimits(max_position=0.5)))
AT = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
SOFT = Finding(rule="turnover_pct_warn", level="soft", figure=0.5, bound=0.2, sentence="turnover is high")
HARD = Finding(rule="max_position_pct", level="hard", symbol="AAA", figure=0.5, bound=0.2, sentence="AAA is too much")
ORDERED = ["proposed", "constructed", "cleared", *["placed"] * 4, *["filled"] * 4]


def account(*weights, panel=PANEL, spec=SPEC, **options):
    policy = Wants(*weights) if weights else Wants(0.2, 0.2, 0.2, 0.2, 0.2)
    return Account(Deployed(panel, spec, policy), **options)


def sessions(panel, *at):
    return [panel.sessions[t].item() for t in at]


def test_events_of_a_plan_have_its_ids_in_order():
    traded = account().open(10)
    traded.session(11)
    assert traded.log.kinds() == ORDERED
    events = traded.log.events(ACCOUNT)
    assert {event.plan_id for event in events} == {events[0].plan_id}
    assert {(event.run_id, event.policy, event.spec_hash) for event in events} == {("0" * 16, "wishes", SPEC.spec_hash)}
    assert {event.session for event in traded.log.of("filled")} == set(sessions(PANEL, 11))
    (record,) = Journal(traded.log, ACCOUNT).records()
    assert record.status == "filled"


def test_sells_are_placed_before_buys():
    traded = account(0.4, 0.4, 0.1, 0.1, 0.0).open(10)
    traded.session(11)
    traded.deployed.worker._policy.weights = np.array([0.1, 0.1, 0.4, 0.4, 0.0])
    traded.trade(12, 14)
    sides = [event.detail["order"]["side"] for event in traded.log.of("placed")][-4:]
    assert sides == ["sell", "sell", "buy", "buy"]


def test_decisions_follow_rebal_freq_and_a_change_of_policy():
    traded = account().open(10)
    traded.trade(11, 17)
    assert list(traded.targets()) == sessions(PANEL, 10, 13, 16)
    traded.deployed.run_id = "1" * 16
    traded.trader = traded.hired()
    traded.session(18)
    traded.trade(19, 21)
    assert list(traded.targets()) == sessions(PANEL, 10, 13, 16, 18, 21)


def test_ruined_account_makes_no_more_plans():
    traded = account().open(10)
    for t in range(11, 20):
        traded.trader.execute(t)
        state = traded.trader.settle(t)
        shares = dict.fromkeys(state.shares, 0.0)
        traded.book.states[state.session] = state.model_copy(update={"equity": 0.0, "shares": shares})
        assert traded.trader.propose(t) is None
        assert traded.trader.is_finished(t)
    assert list(traded.targets()) == sessions(PANEL, 10)


def test_halt_between_two_simulated_orders_keeps_the_first():
    switch = Switch()
    traded = account(switch=switch).open(10)
    switch.after = switch.read + 2  # once as the session begins, once before the first order
    traded.trader.execute(11)
    state = traded.trader.settle(11)
    assert [event.symbol for event in traded.log.of("placed")] == ["AAA"]
    assert [event.symbol for event in traded.log.of("filled")] == ["AAA"]
    assert {(e.symbol, e.reason) for e in traded.log.of("cancelled")} == {
        (symbol, "stopped by a test") for symbol in ("BBB", "CCC", "DDD")
    }
    assert [event.session for event in traded.log.of("halted")] == sessions(PANEL, 11)
    assert np.flatnonzero(state.weights).tolist() == [0, 4]
    assert state.differences == ()
    assert list(traded.book.placed) == [event.order_id for event in traded.log.of("placed")]
    found = {row["symbol"]: (row["status"], row["reason"], row["side"]) for row in rows_of_orders(traded.log)}
    assert found.pop("AAA") == ("filled", "", "buy")
    assert found == dict.fromkeys(("BBB", "CCC", "DDD"), ("cancelled", "stopped by a test", "buy"))


def test_engaged_switch_is_recorded_once_per_session_without_proposal():
    switch = Switch()
    traded = account(switch=switch).open(10)
    traded.trade(11, 12)
    before, switch.after = traded.book.last(), 0
    for t in (13, 14, 15):
        traded.session(t)
        traded.session(t)
    assert [event.session for event in traded.log.of("halted")] == sessions(PANEL, 13, 14, 15)
    assert list(traded.targets()) == sessions(PANEL, 10)
    assert traded.book.last().weights != before.weights  # it drifts
    assert {name: round(n, 6) for name, n in traded.book.last().shares.items()} == {
        name: round(n, 6) for name, n in before.shares.items()
    }
    switch.after = None
    traded.session(16)
    assert list(traded.targets()) == sessions(PANEL, 10, 16)


def test_engaged_switch_cancels_open_orders():
    switch = Switch()
    traded = account(switch=switch).open(10)
    orders, _ = traded.broker.orders(Journal(traded.log, ACCOUNT).records()[0].plan, 10)
    traded.broker.submit(orders[0])  # by an attempt that was killed right after
    switch.after = 0
    traded.session(11)
    assert traded.book.open_orders() == []
    assert not traded.log.of("filled")
    assert [event.reason for event in traded.log.of("cancelled")] == ["stopped by a test"]
    assert traded.book.last().weights[-1] == 1.0


def test_plan_with_soft_findings_waits_and_expires_unless_approved():
    traded = account(findings=lambda plan, t: (SOFT,)).open(10)
    traded.session(11)
    assert not traded.log.of("placed")
    (expired,) = traded.log.of("cancelled")
    assert "waiting" in expired.reason
    traded.trade(12, 13)
    journal = Journal(traded.log, ACCOUNT)
    record = journal.records()[-1]
    journal.append(record_decision(record, "approved", record.plan.session, ("ann", ""), AT))
    traded.trader = traded.hired()
    traded.session(14)
    assert len(traded.log.of("placed")) == 4


@pytest.mark.parametrize(
    ("allowed", "levels"), [(0.5, ["warn", "soft"]), (0.49, ["soft", "soft"]), (0.0, ["soft", "soft"])]
)
def test_first_plan_of_a_policy_waits_for_nobody_up_to_the_turnover_of_the_account(allowed, levels):
    spec = SimulatedAccountSpec(first_plan_turnover=allowed)
    traded = account(findings=lambda plan, t: (SOFT,), account_spec=spec).open(10)
    traded.trade(11, 13)
    first, second, *_ = Journal(traded.log, ACCOUNT).records()
    assert [first.findings[0].level, second.findings[0].level] == levels
    assert bool(first.filled) == (levels[0] == "warn")


def test_replay_approves_soft_findings_with_an_event_each():
    traded = account(findings=lambda plan, t: (SOFT,))
    traded.trader.open_at(10)
    traded.trader.propose(10)
    traded.trader.clear(10, acknowledge=True)
    traded.session(11)
    (approved,) = traded.log.of("approved")
    assert approved.by == "replay"
    assert len(traded.log.of("filled")) == 4


def test_blocked_plan_makes_no_order_and_cannot_be_approved():
    traded = account(findings=lambda plan, t: (HARD, SOFT)).open(10)
    traded.session(11)
    (blocked,) = traded.log.of("blocked")
    assert blocked.reason == "AAA is too much"
    assert not traded.log.of("placed")
    (record,) = Journal(traded.log, ACCOUNT).records()
    with pytest.raises(ExecutionError):
        record_decision(record, "approved", record.plan.session, ("ann", ""), AT)


class Sheds:
    """Begins equally weighted, then wants less of every name than it holds."""

    def decide(self, panel, t, account):
        names = np.full(4, 0.2) if account.weights[-1] == 1.0 else account.weights[:-1] * [0.999, 0.5, 0.5, 0.5]
        return Decision(target=np.append(names, 1.0 - names.sum()))


def restricted(*names):
    """Limits that restrict names, as the desk's would after the account bought them, and the rules they are held by."""
    limits = RiskLimits(max_position=0.5, max_turnover=1.0, restricted=names)
    data = ComplianceData({symbol: symbol for symbol in PANEL.symbols})
    return {
        "findings": lambda plan, t: compliance_findings(plan, limits, data, 0.1) if t > 10 else (),
        "purchase_bans": lambda day: purchase_bans(limits, data, day) if day > PANEL.sessions[11].item() else {},
    }


@pytest.mark.parametrize(("names", "bought"), [((), ["AAA"]), (("AAA",), [])])
def test_banned_name_is_not_bought_after_drift(names, bought):
    panel = with_values(
        synthetic_panel(60, 4), "overnight_returns", (14, 0), -0.1
    )  # after the decision, AAA falls below what it shall weigh
    traded = Account(Deployed(panel, SPEC, Sheds()), **restricted(*names)).open(10)
    traded.trade(11, 14)
    record = Journal(traded.log, ACCOUNT).records()[1]
    assert [each.rule for each in record.findings if each.level == "hard"] == []
    orders = [event.detail["order"] for event in traded.log.of("placed") if event.plan_id == record.plan.plan_id]
    assert [order["symbol"] for order in orders if order["side"] == "buy"] == bought
    assert {order["symbol"] for order in orders if order["side"] == "sell"} == {"BBB", "CCC", "DDD"}
    gone = [event for event in traded.log.of("cancelled") if event.symbol == "AAA"]
    assert [event.reason for event in gone] == ["it is restricted: it may be held or sold, but not bought"] * len(names)
    assert all(event.detail["order"]["symbol"] == "AAA" for event in gone)
    assert not any(state.differences for state in traded.book.states.values())


def test_plan_that_new_limits_block_is_cancelled_before_placing():
    traded = account().open(10)
    traded.findings = lambda plan, t: (HARD, SOFT)
    traded.trader = traded.hired()
    traded.session(11)
    (event,) = traded.log.of("cancelled")
    assert (event.order_id, event.reason) == (None, "AAA is too much")
    assert not traded.log.of("placed")
    assert traded.book.last().weights[-1] == 1.0


def test_new_limits_between_two_orders_do_not_stop_the_plan():
    switch = Switch()
    traded = account(switch=switch).open(10)
    plan = Journal(traded.log, ACCOUNT).records()[0].plan
    traded.trader._placement._submit(
        plan, traded.broker.orders(plan, 10)[0][0]
    )  # by an attempt that was killed right after
    traded.findings = lambda plan, t: (HARD,)
    traded.trader = traded.hired()
    traded.session(11)
    assert len(traded.log.of("filled")) == 4


def test_plan_is_decided_on_once_in_time_and_with_a_reason():
    traded = account(findings=lambda plan, t: (SOFT,)).open(10)
    journal = Journal(traded.log, ACCOUNT)
    (record,) = journal.records()
    session = record.plan.session
    for answer in ("overridden", "rejected"):
        with pytest.raises(ExecutionError):
            record_decision(record, answer, session, ("ann", "  "), AT)
    with pytest.raises(ExecutionError):
        record_decision(record, "approved", session + dt.timedelta(days=1), ("ann", ""), AT)
    journal.append(record_decision(record, "overridden", session, ("ann", "earnings tomorrow"), AT))
    (record,) = journal.records()
    with pytest.raises(ExecutionError):
        record_decision(record, "approved", session, ("bob", ""), AT)
    traded.trader = traded.hired()
    traded.session(11)
    assert not traded.log.of("placed")
    assert traded.book.last().weights[-1] == 1.0


def test_plan_without_findings_cannot_be_approved():
    traded = account().open(10)
    (record,) = Journal(traded.log, ACCOUNT).records()
    with pytest.raises(ExecutionError):
        record_decision(record, "approved", record.plan.session, ("ann", ""), AT)


def test_no_trade_decision_is_an_event_without_a_plan():
    class Rests:
        def decide(self, panel, t, account):
            return Decision(target=None, reason="holds: no portfolio" if t == 10 else "")

    traded = Account(Deployed(PANEL, SPEC, Rests())).open(10)
    traded.trade(11, 13)
    assert traded.log.kinds() == ["proposed", "proposed"]
    reasons = [event.reason for event in traded.log.of("proposed")]
    assert reasons == ["holds: no portfolio", "the policy does not trade"]
    assert [event.plan_id for event in traded.log.of("proposed")] == [None, None]


def test_repeated_steps_change_nothing():
    traded = account().open(10)
    for t in (11, 12, 13, 14):
        for _ in range(2):
            traded.trader.execute(t)
            traded.trader.execute(t)
            first = traded.trader.settle(t)
            assert traded.trader.settle(t) == first
            assert traded.trader.propose(t) == traded.trader.propose(t)
            traded.trader.clear(t)
            assert traded.trader.clear(t) == []
    assert traded.log.kinds() == ORDERED + ORDERED
    assert list(traded.book.states) == sessions(PANEL, *range(10, 15))


def test_stateful_policy_repeats_its_decisions_after_a_restart():
    class Counts:
        def __init__(self):
            self.asked = []

        def decide(self, panel, t, account):
            self.asked.append((t, account.weights.tolist()))
            return Decision(target=np.eye(5)[len(self.asked) % 4] * 0.5 + np.eye(5)[4] * 0.5)

    once = Account(Deployed(PANEL, SPEC, Counts(), is_stateful=True)).open(10)
    once.trade(11, 20)
    log, book, halves = MemoryLog(), MemoryBook(), []
    for first, last in ((10, 14), (15, 20)):
        policy = Counts()
        half = Account(Deployed(PANEL, SPEC, policy, is_stateful=True), log, book)
        half.open(first) if first == 10 else half.session(first)
        half.trade(first + 1, last)
        halves.append(policy.asked)
    assert book.states == once.book.states
    assert [t for t, _ in halves[1]] == [10, 13, 16, 19]
    assert halves[1][:2] == halves[0]


def test_plan_over_other_names_is_cancelled_after_a_change_of_policy():
    traded = account().open(10)
    renamed = replace(PANEL, symbols=("BBB", "CCC", "DDD", "EEE"))
    traded.deployed = Deployed(renamed, SPEC, Wants(0.2, 0.2, 0.2, 0.2, 0.2), run_id="1" * 16)
    traded.trader = traded.hired()
    traded.trade(11, 12)
    assert [event.reason for event in traded.log.of("cancelled")] == [OTHER_NAMES]
    assert {event.symbol for event in traded.log.of("filled")} == {"BBB", "CCC", "DDD", "EEE"}


def test_propose_raises_before_the_policys_first_session():
    traded = Account(Deployed(PANEL, SPEC, Wants(0.2, 0.2, 0.2, 0.2, 0.2), first=20))
    traded.trader.open_at(10)
    with pytest.raises(ExecutionError):
        traded.trader.propose(10)


def test_changes_below_skip_below_make_no_order():
    spec = SimulatedAccountSpec(skip_below=0.05)
    traded = account(0.3, 0.3, 0.04, 0.2, 0.16, account_spec=spec).open(10)
    state = traded.session(11)
    assert [event.symbol for event in traded.log.of("placed")] == ["AAA", "BBB", "DDD"]
    assert state.weights[2] == 0.0
    small = SimulatedAccountSpec(min_order=100_000.0)
    traded = account(0.3, 0.3, 0.04, 0.2, 0.16, account_spec=small).open(10)
    assert traded.session(11).weights[2] == 0.0
    assert not traded.book.last().differences


def test_fills_settle_after_a_change_to_more_names():
    once, then = account().open(10), account().open(10)
    expected = once.session(11)
    then.trader.execute(11)
    names = PANEL.symbols
    more = synthetic_panel(60, 5)
    wider = {name: np.insert(getattr(PANEL, name), 0, getattr(more, name)[:, 4], axis=1) for name in PANEL_ARRAYS}
    then.deployed = Deployed(replace(PANEL, symbols=("ZZZ", *names), **wider), SPEC, Wants(*np.full(6, 1 / 6)))
    then.deployed.run_id, then.prices = "1" * 16, prices_of(then.deployed.panel)
    then.trader = then.hired()
    state = then.session(11)
    assert dict(zip(state.symbols, state.weights, strict=True)) == pytest.approx(
        {"ZZZ": 0.0, **dict(zip(expected.symbols, expected.weights, strict=True))}, abs=1e-12
    )
    assert state.equity == pytest.approx(expected.equity, rel=1e-12)
    assert (state.plan_id, state.differences) == (expected.plan_id, ())
    assert Journal(then.log, ACCOUNT).records()[0].status == "filled"
    assert not then.log.of("cancelled")
    assert {event.symbol for event in then.log.of("proposed")} == {None}
    then.trade(12, 14)
    assert then.book.last().weights[0] > 0.1


def test_settle_raises_if_the_new_policy_lacks_a_bought_name():
    traded = account().open(10)
    traded.trader.execute(11)
    traded.deployed = Deployed(replace(PANEL, symbols=("AAA", "BBB", "CCC", "EEE")), SPEC, Wants(0, 0, 0, 0, 1))
    traded.trader = traded.hired()
    with pytest.raises(ExecutionError):
        traded.session(11)
    assert traded.book.last().session == PANEL.sessions[10].item()


def test_switch_released_between_reads_keeps_its_reason():
    class Flickers:
        def state(self):
            self.engaged = lambda: None
            return TradingState(state="halted", reason="stopped by a test")

    traded = account()
    traded.trader.open_at(10)
    traded.switch = Flickers()
    traded.trader = traded.hired()
    assert traded.trader.propose(10) is None
    assert [event.reason for event in traded.log.of("halted")] == ["stopped by a test"]


def test_stopped_session_stays_stopped_after_release():
    traded = account().open(10)
    traded.trade(11, 12)
    traded.switch.after = traded.switch.read
    traded.trader.execute(13)
    traded.switch.after = None
    traded.trader.settle(13)
    assert traded.trader.propose(13) is None
    assert list(traded.targets()) == sessions(PANEL, 10)
    assert traded.trader.is_finished(13)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_reducing_account_grows_no_position_and_keeps_its_side(seed):
    rng = np.random.default_rng(seed)
    traded = account(0.3, 0.3, 0.1, 0.1, 0.2, switch=Switch()).open(10)
    traded.trade(11, 16)
    before = traded.book.last().shares
    traded.switch.state = lambda: TradingState(state="reducing", reason="by a test")
    for first in range(17, 35, 3):
        traded.deployed.worker._policy.weights = rng.dirichlet(np.ones(5))
        after = traded.trade(first, first + 2)[-1].shares
        for name in PANEL.symbols:
            assert after.get(name, 0.0) * (1.0 - 1e-12) <= before.get(name, 0.0)
        before = after
    assert sum(before.values()) >= 0.0


def test_reduced_plan_cuts_targets_to_holdings_by_side():
    plan = a_plan((0.4, -0.1, -0.1, 0.2, 0.4), (0.3, 0.2, -0.2, 0.0, 0.7), ("A", "B", "C", "D", "cash"))
    reduced = reduced_plan(plan, "by a test")
    assert reduced.target == pytest.approx((0.3, 0.0, -0.1, 0.0, 0.8))
    assert (reduced.stages[-1].name, reduced.stages[-1].reason) == ("reducing", "by a test")


def test_order_that_grows_a_position_is_withdrawn_while_reducing():
    traded = account().open(10)
    traded.switch.state = lambda: TradingState(state="reducing", reason="by a test")
    traded.session(11)  # opens in cash: the plan was made before the reduction
    assert (len(traded.log.of("placed")), traded.book.last().shares) == (0, {})
    assert {event.reason for event in traded.log.of("cancelled")} == {"by a test", "none of its orders could be placed"}
