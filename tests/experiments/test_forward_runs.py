import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import equity_gaps
from nvtrader_pipelines.experiments.replay import forward_plan
from tests.experiments.memory import MemoryStore, walk_and_judge
from tests.experiments.small import EXPERIMENT, TABLES
from tests.experiments.test_replay import longer
from tests.panels import cut

pytestmark = pytest.mark.slow

PAPER_STAGES = ["signal.emitted", "order.placed", "bar.received", "order.filled", "equity.update"]


def carried(run, parent, last):
    """The store of a paper account up to a session."""
    plan = forward_plan(EXPERIMENT, cut(longer(), last), parent)
    store = MemoryStore(parent=run)
    store.reported = list(walk_and_judge(plan, store))
    store.plan = plan
    return store


def test_paper_run_continues_last_policy_from_cash_since_the_tests(run, parent):
    store = carried(run, parent, 730)
    own = store.record.equity_curves.filter(pl.col("policy") == "tiny")
    assert own["session"].to_list() == store.plan.panel.sessions[700:].tolist()
    assert set(own["fold"]) == {1}
    assert equity_gaps(store.record.equity_curves).is_empty()
    assert set(store.record.trajectories["phase"]) == {"forward"}
    assert not store.record.trajectories["truncated"].any()


def test_paper_run_yields_bars_signals_orders_fills_and_equity_in_order(run, parent):
    stages = [step.stage for step in carried(run, parent, 730).reported[4:-1]]
    assert stages[:7] == [*PAPER_STAGES, "bar.received", "equity.update"]
    assert stages.count("equity.update") == stages.count("bar.received") == 31
    assert stages.count("signal.emitted") == stages.count("order.placed") == 7
    assert stages.count("order.filled") == 7


def test_an_order_whose_session_has_not_come_is_placed_and_not_filled(run, parent):
    store = carried(run, parent, 729)  # 30 sessions: the seventh decision is due at the last close
    stages = [step.stage for step in store.reported[4:-1]]
    assert stages[-2:] == ["signal.emitted", "order.placed"]
    assert stages.count("order.placed") == stages.count("order.filled") + 1
    placed = store.record.action_logs.filter(pl.col("policy") == "tiny").row(-1, named=True)
    assert placed["session"] == store.plan.panel.sessions[-1].item()
    assert (placed["executed_weights"], placed["trades"]) == (None, None)
    assert sum(placed["target_weights"]) == pytest.approx(1.0)
    row = store.record.trajectories.filter(pl.col("policy") == "tiny").row(-1, named=True)
    assert (row["fill_session"], row["reward"], row["turnover"]) == (None, None, None)


def test_newer_bars_extend_the_account_and_leave_its_past_as_it_was(run, parent):
    before, after = carried(run, parent, 727), carried(run, parent, 745)
    assert before.plan.run_id == after.plan.run_id
    last = before.plan.panel.sessions[-1].item()
    extended = after.record.equity_curves
    assert before.record.equity_curves.equals(extended.filter(pl.col("session") <= last))
    assert extended["session"].max() == after.plan.panel.sessions[-1].item()
    open_step = before.record.trajectories["step"].max()  # its holding period went on
    for name in TABLES:
        if name == "equity_curves":
            continue
        was, is_now = getattr(before.record, name), getattr(after.record, name)
        assert was.filter(pl.col("step") < open_step).equals(is_now.filter(pl.col("step") < open_step))


def test_the_same_bars_give_the_same_account(run, parent):
    first, second = carried(run, parent, 730), carried(run, parent, 730)
    for name in TABLES:
        assert getattr(first.record, name).equals(getattr(second.record, name))


def test_before_the_first_new_session_there_is_an_order_and_no_verdict(run, parent):
    store = carried(run, parent, 699)
    assert [step.stage for step in store.reported[4:]] == ["signal.emitted", "order.placed", "done"]
    assert store.record.equity_curves.is_empty()
    assert store.verdict.is_empty()
    assert "too short for a Sharpe ratio" in store.reported[-1].message


def test_a_market_that_ends_before_the_tests_did_is_refused(parent):
    with pytest.raises(ValueError):
        forward_plan(EXPERIMENT, cut(longer(), 650), parent)


def test_the_signal_names_every_weight(run, parent):
    signal = next(step for step in carried(run, parent, 730).reported if step.stage == "signal.emitted")
    assert set(signal.metrics) == {"AAA", "BBB", "CCC", "cash"}
    assert sum(signal.metrics.values()) == pytest.approx(1.0)
    assert signal.message.startswith("2017-")
