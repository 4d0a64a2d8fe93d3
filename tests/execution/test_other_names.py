"""A plan whose policy was replaced by one of other names before its orders were placed."""

from dataclasses import replace

import pytest

from nvtrader_pipelines.execution.brokers.account_spec import AlpacaAccountSpec
from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue
from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import OTHER_NAMES
from nvtrader_pipelines.execution.proposals import target_volatility
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from tests.execution.brokers.test_live_venue import PANEL, PRICES, SOFT, Live
from tests.execution.desks import ACCOUNT, Account, Deployed, Wants, prices_of, ticking
from tests.execution.plans import record_decision
from tests.markets import synthetic_panel

SWAPPED = replace(PANEL, symbols=("DDD", "CCC", "BBB", "AAA"))  # prices of one are those of another by place
WIDER = replace(synthetic_panel(60, 5), symbols=(*PANEL.symbols, "EEE"))


def taken_over(live, panel):
    """The account in the hands of who trades another panel."""
    n_names = len(panel.symbols)
    live.venue = LiveVenue(live.exchange, (panel, prices_of(panel, first=1000.0)), live.book, AlpacaAccountSpec())
    policy = Wants(*[1.0 / (n_names + 1)] * (n_names + 1))
    deployed = Deployed(panel, live.deployed.spec, policy, run_id="1" * 16)
    live.trader = Trader(deployed, live.venue, Journal(live.log, ACCOUNT), live.trader._controls)
    return live


def approve(live):
    journal = Journal(live.log, ACCOUNT)
    (record,) = journal.records()
    journal.append(record_decision(record, "approved", record.plan.session, ("ann", ""), ticking()()))


def ended(live):
    return [(event.order_id, event.reason) for event in live.log.of("cancelled")]


@pytest.mark.parametrize("panel", [SWAPPED, WIDER], ids=["in another order", "of one name more"])
def test_approved_plan_over_other_names_is_cancelled(panel):
    live = Live(0.4, 0.1, 0.1, 0.1, 0.3, findings=(SOFT,)).open()
    approve(live)
    taken_over(live, panel).trader.clear(10)
    assert ended(live) == [(None, OTHER_NAMES)]
    assert not live.exchange.orders
    assert live.trader.is_finished(10)


def test_orders_of_a_killed_step_over_other_names_are_cancelled():
    live = Live()
    live.exchange.silent = {"CCC"}
    with pytest.raises(ExecutionError):
        live.open()
    live.exchange.silent = set()
    taken_over(live, WIDER).trader.clear(10)
    assert not live.exchange.open_orders()
    assert {(event.symbol, event.reason) for event in live.log.of("cancelled")} == {
        (symbol, OTHER_NAMES) for symbol in PANEL.symbols
    }
    assert live.trader.is_finished(10)
    assert live.session(11).shares == {}


def test_live_venue_raises_for_a_plan_over_other_names():
    live = Live(findings=(SOFT,)).open()
    (record,) = Journal(live.log, ACCOUNT).records()
    for panel in (SWAPPED, WIDER):
        venue = LiveVenue(live.exchange, (panel, prices_of(panel)), live.book, AlpacaAccountSpec())
        with pytest.raises(ExecutionError):
            venue.orders(record.plan, 10)
    assert not live.book.placed
    assert PRICES.closes.shape[1] == len(record.plan.symbols) - 1


def held_against(panel):
    """What compliance finds in a plan, as the desk asks for it."""
    data = ComplianceData({symbol: symbol for symbol in panel.symbols})
    return lambda plan, t: compliance_findings(
        plan, RiskLimits(max_position=0.5, max_turnover=1.0), data, target_volatility(plan, panel, t)
    )


def test_unchecked_plan_over_other_names_is_cancelled():
    few, more = synthetic_panel(120, 4), synthetic_panel(120, 5)
    spec = Live().deployed.spec
    account = Account(Deployed(few, spec, Wants(0.2, 0.2, 0.2, 0.2, 0.2)), findings=held_against(few))
    account.trader.open_at(80)
    account.trader.propose(80)
    account.deployed = Deployed(more, spec, Wants(0.2, 0.2, 0.2, 0.2, 0.1, 0.1), run_id="1" * 16)
    account.prices, account.findings = prices_of(more), held_against(more)
    account.trader = account.hired()
    account.trader.clear(80)
    assert [event.reason for event in account.log.of("cancelled")] == [OTHER_NAMES]
    assert account.trader.is_finished(80)
    account.trade(81, 82)
    assert len(account.book.last().shares) == 5
