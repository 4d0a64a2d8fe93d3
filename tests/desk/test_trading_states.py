"""States of trading: of all accounts and of one."""

import pytest

from nvtrader_pipelines.desk.halt import Scope, halt, resume
from nvtrader_pipelines.desk.mirror import mirror_home_events
from nvtrader_pipelines.storage.kill_switch import VARIABLE
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import AUDIT
from tests.desk.desks import AT, add_account, days_of, desk, states, trade

ALL = {"active": (), "reducing": (Scope(None, "reducing"),), "halted": (Scope(),)}
OWN = {"active": (), "reducing": (Scope("coins", "reducing"),), "halted": (Scope("coins"),)}


def clock():
    return AT


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("of_all", ALL)
def test_stricter_of_both_states_holds_after_a_restart(store, of_all, own):
    for scope in (*ALL[of_all], *OWN[own]):
        halt(store, "ann", "news", clock, scope)
    restarted = Store(store.home)
    assert restarted.switch.state().state == restarted.switch_of("stocks").state().state == of_all
    expected = max((of_all, own), key=list(ALL).index)
    state = restarted.switch_of("coins").state()
    assert (state.state, state.by) == (expected, "" if expected == "active" else "ann")
    resume(store, "ann", "over", clock, "coins")
    assert restarted.switch_of("coins").state().state == of_all


def test_variable_halts_every_account(store, monkeypatch):
    halt(store, "ann", "news", clock, Scope("coins", "reducing"))
    monkeypatch.setenv(VARIABLE, "1")
    assert store.switch_of("coins").state().state == "halted"
    assert "nvtrader resume --account coins" in store.switch_of("coins").remedy


def test_state_of_an_account_is_audited_with_it(store):
    halt(store, "ann", "news", clock, Scope("coins", "reducing"))
    halt(store, "ann", "worse", clock, Scope("coins"))
    resume(store, "bob", "over", clock, "coins")
    events = [(event.kind, event.account, event.by, event.session) for event in store.audit.events("coins")]
    expected = [("reducing", "ann"), ("halted", "ann"), ("resumed", "bob")]
    assert events == [(kind, "coins", by, None) for kind, by in expected]
    mirror_home_events(store)
    assert store.tables.read(AUDIT)["account"].to_list() == ["coins"] * 3


def test_reduction_does_not_loosen_a_halt(store):
    halt(store, "ann", "news", clock, Scope("coins"))
    assert "stopped already" in halt(store, "bob", "less", clock, Scope("coins", "reducing"))
    assert store.switch_of("coins").state().state == "halted"


def test_anything_at_the_path_of_an_account_halts_it_alone(store):
    store.home.trading_states.mkdir(parents=True)
    (store.home.trading_states / "coins").write_text("odd")
    assert store.switch_of("coins").state().state == "halted"
    assert store.switch_of("stocks").state().state == "active"


@pytest.mark.slow
def test_halted_account_stays_while_another_trades(trading_home):
    store, run = trading_home
    add_account(store, "other")
    first = run.as_parent.window[0]
    days = [day for day in days_of(store) if day >= first]
    halt(store, "ann", "news", clock, Scope("other"))
    trade(store, first, days[2])
    with pytest.raises(ValueError, match="resume --account other"):
        trade(store, first, days[2], account="other")
    assert (states(store)[-1].session, states(store, "other")) == (days[2], [])
    resume(store, "ann", "over", clock, "other")
    trade(store, first, days[2], account="other")
    assert [state.equity for state in states(store, "other")] == [state.equity for state in states(store)]
    assert desk(store, "other").due() == [day for day in days_of(store) if day > days[2]]
