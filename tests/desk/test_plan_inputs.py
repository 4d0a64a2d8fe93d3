"""Plans whose policy, holdings or prices changed before a person decides."""

import polars as pl
import pytest

from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.plan_decision import Approve, Override, Reject
from nvtrader_pipelines.execution.stale_plans import StalePlan, changed_holdings
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.tables import RETURNS
from tests.desk.desks import days_of, desk, make_active, states, trade
from tests.markets import INGESTED_AT
from tests.promotion.activations import LATER
from tests.runs.small_runs import N_SESSIONS, land

pytestmark = pytest.mark.slow

OVERRIDE = Override(reason="because")


@pytest.fixture
def home(trading_home):
    """Home whose account has a plan that waits."""
    trade(trading_home[0], acknowledge=False)
    return trading_home


def decide(store, decision):
    """Decide on the waiting plan."""
    return desk(store).decide(desk(store).plans()["plan_id"][0], decision, "ann")


def revise(store, symbol, change):
    """Correct the last price of a symbol."""
    is_last = (pl.col("symbol") == symbol) & (pl.col("session") == days_of(store)[-1])
    rows = store.tables.read(RETURNS).with_columns(
        close_return=pl.col("close_return") + pl.when(is_last).then(change).otherwise(0.0)
    )
    store.tables.replace(RETURNS, rows, {})
    pin_panels(store.tables, INGESTED_AT)


def test_plan_of_a_replaced_policy_is_overridden_and_not_approved(home):
    store, run = home
    other = f"{run.experiment}/seed-{run.seeds[0]}"
    make_active(store, run, other, at=LATER)
    with pytest.raises(StalePlan) as raised:
        decide(store, Approve())
    assert raised.value.changes.policy == PolicyRef(run.run_id, other)
    assert decide(store, OVERRIDE).kind == "overridden"


def test_plan_of_other_holdings_is_only_rejected(home):
    store, _ = home
    (state,) = states(store)
    book = SqliteBook(store.home, "paper")
    book.clear()
    book.settle(state.model_copy(update={"weights": (0.25, 0.0, 0.0, 0.75)}))
    plan = desk(store).plans()["plan_id"][0]
    for decision in (Approve(), OVERRIDE):
        with pytest.raises(StalePlan) as raised:
            decide(store, decision)
        assert raised.value.changes.holdings == {state.symbols[0]: (0.0, 0.25), "cash": (1.0, 0.75)}
        assert (raised.value.plan_id, raised.value.changes.policy) == (plan, None)
    assert decide(store, Reject(reason="a deposit")).kind == "rejected"
    assert [event.kind for event in store.audit.events("paper")][-1] == "rejected"


def test_plan_of_corrected_prices_is_overridden_and_not_approved(home):
    store, _ = home
    revise(store, "BBB", 0.02)
    with pytest.raises(StalePlan) as raised:
        decide(store, Approve())
    assert raised.value.changes.revised == ("BBB",)
    assert decide(store, OVERRIDE).kind == "overridden"


def test_plan_is_approved_after_later_sessions_are_delivered(home):
    store, _ = home
    land(store, N_SESSIONS + 2)
    assert decide(store, Approve()).kind == "approved"


def test_plans_of_an_unchanged_account_have_its_holdings_exactly(trading_home):
    store, run = trading_home
    first = days_of(store).index(run.as_parent.window[0])
    trade(store, *days_of(store)[first : first + 30 : 29])
    states_by_session = {state.session: state for state in states(store)}
    plans = [record.plan for record in Journal(store.audit, "paper").records()]
    assert len({plan.held for plan in plans}) > 2
    assert all(changed_holdings(plan, states_by_session[plan.session]) == {} for plan in plans)
