"""Decisions of people, from the audit to their file and table."""

import polars as pl
import pytest

from nvtrader_pipelines.execution.decisions import EDITED
from nvtrader_pipelines.execution.plan_decision import Approve, Override, Reject, Skip
from nvtrader_pipelines.feedback.decisions import (
    act_on_account,
    audited_decisions,
    decision_row,
    extract_decisions,
    write_decisions,
)
from nvtrader_pipelines.service.doctor import check_decisions
from nvtrader_pipelines.storage.tables import DECISIONS, REFUSED_DECISIONS
from tests.desk.desks import DESKS, desk, trade
from tests.execution.plans import HELD, a_plan, decided

WANTED = (0.1, 0.2, 0.3, 0.2, 0.2, 0.0)
PLAN = a_plan(WANTED, observation_hash=-7)
OVERRIDE = Override(reason="too much", weights={"AAA": 0.1})


def test_row_of_a_decision_has_what_was_proposed_and_what_was_chosen():
    for kind, chosen in (
        ("approved", WANTED),
        ("rejected", HELD),
        ("overridden", HELD),
        ("skipped", None),
        ("equal", None),
    ):
        event = decided(PLAN, kind)
        row = decision_row(event.model_copy(update={"detail": {"account_value": 1000.0}}), PLAN)
        assert (row.decision_id, row.decision, row.chosen_weights) == (event.event_id, kind, chosen)
        assert (row.plan_id, row.parent_id, row.proposed_weights) == (PLAN.plan_id, None, WANTED)
        assert [(order.symbol, order.side) for order in row.orders] == [("A", "sell"), ("C", "buy")]
        assert [order.amount for order in row.orders] == pytest.approx([-100.0, 100.0])
        assert (row.observation_hash, row.outcome_known, row.by, row.reason) == (-7, False, "pat", "because")


def test_row_of_an_edit_is_of_the_plan_with_its_parent():
    edited = a_plan(HELD, plan_id="c" * 16, parent_id=PLAN.plan_id)
    event = decided(PLAN, "overridden").model_copy(update={"detail": {"fill_session_began": "x"}})
    row = decision_row(event, PLAN, edited)
    assert (row.decision, row.plan_id, row.parent_id) == ("edited", edited.plan_id, PLAN.plan_id)
    assert (row.proposed_weights, row.chosen_weights, row.outcome_known) == (WANTED, HELD, True)
    assert [order.amount for order in row.orders] == [0.0, 0.0]  # the value is unknown in older audits


@pytest.fixture
def home(trading_home):
    store, _ = trading_home
    trade(store, acknowledge=False)
    yield store
    store.tables.replace(DECISIONS, store.tables.read(DECISIONS).clear(), {})


def waiting(store):
    return desk(store).plans().filter(status="waiting")["plan_id"][0]


@pytest.mark.slow
def test_decisions_reach_file_and_table_once_and_in_order(home):
    first = waiting(home)
    act_on_account(home, "paper", "ann", lambda one: one.decide(first, Skip(), "ann"))
    override = act_on_account(home, "paper", "ann", lambda one: one.decide(first, OVERRIDE, "ann"))
    DESKS.clear()
    act_on_account(home, "paper", "bob", lambda one: one.decide(waiting(home), Approve(), "bob"))
    rows, refused = extract_decisions(home)
    assert [row.decision for row in rows] == ["skipped", "edited", "approved"]
    assert [row.plan_id for row in rows] == [first, *[override.detail[EDITED]] * 2]
    assert {row.parent_id for row in rows[1:]} == {first}
    assert write_decisions(home) == 0
    assert extract_decisions(home) == (rows, refused)
    table = home.tables.read(DECISIONS)
    assert table["decision_id"].to_list() == [row.decision_id for row in rows]
    assert table["chosen_weights"].to_list()[1:] == [list(row.chosen_weights) for row in rows[1:]]
    extract_decisions(home)
    assert home.tables.read(DECISIONS).equals(table)


@pytest.mark.slow
def test_decision_that_a_killed_process_left_out_is_written_by_the_next(home):
    desk(home).decide(waiting(home), Reject(reason="no"), "ann")  # the file would be written after the audit
    assert not home.decisions.path.exists()
    assert write_decisions(home) == 1
    home.decisions.path.write_bytes(home.decisions.path.read_bytes()[:-20])
    ((row,), (torn,)) = extract_decisions(home)
    assert (row.decision, torn.line) == ("rejected", 1)
    assert home.tables.read(REFUSED_DECISIONS)["line"].to_list() == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "altered"),
    [
        (b'"decision":"rejected"', b'"decision":"refected"'),
        (b'"decision":"rejected"', b'"decision":' + b"[" * 100_000),
        (b'"reason":"no"', b'"reason":"yes"'),
        pytest.param(b'"outcome_known":true', b'"outcome_known":false', marks=pytest.mark.nightly),
        pytest.param(b'"proposed_weights":[0.', b'"proposed_weights":[0.9', marks=pytest.mark.nightly),
        pytest.param(b'"decision_id":"', b'"decision_id":"f', marks=pytest.mark.nightly),
    ],
    ids=["word", "nested", "reason", "outcome", "weights", "id"],
)
def test_altered_line_does_not_beat_the_audit_and_doctor_names_it(home, text, altered):
    desk(home).decide(waiting(home), Reject(reason="no"), "ann")
    write_decisions(home)
    path = home.decisions.path
    path.write_bytes(path.read_bytes().replace(text, altered))
    assert check_decisions(home)[0].result.startswith("line 1 of ")
    written = path.read_bytes()
    ((row,), (refused,)) = extract_decisions(home)
    assert (row, refused.line, row.outcome_known) == (audited_decisions(home)[0], 1, True)
    assert home.tables.read(DECISIONS)["reason"].to_list() == ["no"]
    assert extract_decisions(home) == ([row], [refused])
    path.write_bytes(path.read_bytes().removeprefix(written))
    assert check_decisions(home)[0].problem == ""


@pytest.mark.slow
def test_decisions_before_a_reset_stay(home):
    before = waiting(home)
    desk(home).decide(before, Reject(reason="no"), "ann")
    desk(home).reset("ann", "anew")
    trade(home, acknowledge=False)
    assert waiting(home) == before  # the same plan, of an account opened anew
    desk(home).decide(before, OVERRIDE, "ann")
    write_decisions(home)
    rows, refused = extract_decisions(home)
    assert ([row.decision for row in rows], refused) == (["rejected", "edited"], [])
    assert rows[1].parent_id == rows[0].plan_id == before


@pytest.mark.slow
def test_findings_that_a_replay_acknowledges_are_no_decision(trading_home):
    store, run = trading_home
    first = run.as_parent.window[0]
    trade(store, first, first)
    assert pl.DataFrame(desk(store).plans())["decided_by"].to_list().count("replay") >= 1
    assert write_decisions(store) == 0
