from datetime import UTC, date, datetime, timedelta

import pytest

from nvtrader_pipelines.desk.halt import halt, resume
from nvtrader_pipelines.notifications.home_states import home_states
from nvtrader_pipelines.storage.account_book import SqliteBook
from tests.desk.desks import days_of, evening, judged_home, make_active
from tests.service.cli.sample_plans import ABOVE_CAP, FEW_NAMES, TURNOVER, append_plan, plan, write_book

AT = datetime(2026, 3, 2, 22, tzinfo=UTC)


def test_empty_home_has_no_state(store):
    kinds = ("waiting_plan", "stale_data", "kill_switch", "unreachable_ui")
    assert home_states(store, AT) == {kind: [] for kind in kinds}


def test_plan_with_soft_findings_waits_with_the_command_that_helps(home, store):
    append_plan(home, plan(account="other"), ABOVE_CAP)  # blocked
    append_plan(home, plan(date(2024, 1, 3)), FEW_NAMES)  # cleared
    waiting = append_plan(home, plan(), TURNOVER)
    (found,) = home_states(store, AT)["waiting_plan"]
    assert found.identity == waiting.plan_id
    assert f"nvtrader plans approve {waiting.plan_id}" in found.body
    assert TURNOVER.sentence in found.body


def test_each_halt_is_a_state_of_its_own(store):
    keys = []
    for minute in range(2):
        halt(store, "ann", "prices look wrong", lambda minute=minute: AT + timedelta(minutes=minute))
        (found,) = home_states(store, AT)["kill_switch"]
        assert "prices look wrong" in found.body
        assert "nvtrader resume" in found.body
        keys.append(found.key)
        resume(store, "ann", "", lambda: AT)
    assert len(set(keys)) == 2
    assert home_states(store, AT)["kill_switch"] == []


def test_damaged_audit_leaves_out_only_what_it_holds(home, store):
    (home.audit).mkdir(parents=True)
    (home.audit / "events.jsonl").write_text("damaged\n")
    home.kill_switch.parent.mkdir(parents=True)
    home.kill_switch.touch()
    found = home_states(store, AT)
    assert "waiting_plan" not in found
    assert len(found["kill_switch"]) == 1


@pytest.mark.slow
def test_market_is_stale_from_the_second_session_without_bars(tmp_path):
    store, run = judged_home(tmp_path / "home")
    last = evening(store)
    assert home_states(store, last + timedelta(days=30))["stale_data"] == []  # no policy is active
    make_active(store, run)
    assert home_states(store, last)["stale_data"] == []
    (found,) = home_states(store, last + timedelta(days=30))["stale_data"]
    assert f"ends on {days_of(store)[-1]}" in found.body
    opened = write_book(store.home, 1.0)[-1]
    replayed = opened.model_copy(update={"session": opened.session + timedelta(days=1), "in_replay": True})
    SqliteBook(store.home, "paper").settle(replayed)  # only a person continues the account
    assert home_states(store, last + timedelta(days=30))["stale_data"] == []
