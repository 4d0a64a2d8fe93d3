"""Outcomes of decisions on the market of a home."""

import datetime as dt

import pytest

from nvtrader_pipelines.execution.plan_decision import Approve, Override, Reject
from nvtrader_pipelines.feedback.decisions import extract_decisions
from nvtrader_pipelines.feedback.outcomes import write_outcomes
from nvtrader_pipelines.storage.tables import OUTCOMES
from tests.desk.desks import days_of, desk, evening, states
from tests.preferences.sample_decisions import a_decision

pytestmark = pytest.mark.slow
EDITS = {"AAA": 0.1, "BBB": 0.05}
KINDS = ("edited", "rejected", "approved")


def waiting(store):
    return desk(store).plans().filter(status="waiting")["plan_id"][0]


def answer(store, kind):
    """Answer the plan that waits; an edited one is approved, too."""
    if kind == "edited":
        desk(store).decide(waiting(store), Override(reason="too much", weights=EDITS), "ann")
        return desk(store).decide(waiting(store), Approve(), "ann")
    decision = Reject(reason="no") if kind == "rejected" else Approve(reason="no")
    return desk(store).decide(waiting(store), decision, "ann")


def test_month_of_answers_has_the_outcomes_that_the_account_had(trading_home):
    store, run = trading_home
    days = [day for day in days_of(store) if day >= run.as_parent.window[0]]
    for n in range(9):
        for _ in desk(store).trade(days[0], days[-8], until_waiting=True):
            pass
        answer(store, KINDS[n % 3])
    for _ in desk(store).trade(days[0], days[-8], until_waiting=True):
        pass
    rows, refused = extract_decisions(store)
    outcomes = write_outcomes(store, rows, evening(store))
    counts = dict(outcomes.rows["decision"].value_counts().iter_rows())
    assert counts == {"edited": 3, "rejected": 3, "approved": 6}  # with the approvals of edited plans
    assert (refused, outcomes.problems, outcomes.n_pending) == ([], {}, 0)
    assert set(outcomes.rows["weight"]) == {0.0}  # a replay knows the outcomes
    practice = outcomes.rows.filter("practice")["decision"].value_counts()
    assert dict(practice.iter_rows()) == {"edited": 3, "rejected": 3, "approved": 3}  # none of a plan of one's own
    closes = {state.session: state for state in states(store)}
    compared = 0
    for row in outcomes.rows.iter_rows(named=True):
        is_alone = not any(row["session"] < other.session < row["outcome_session"] for other in rows)
        if is_alone and row["outcome_session"] in closes:
            booked = closes[row["outcome_session"]].equity / closes[row["session"]].equity - 1.0
            assert row["chosen_return_pct"] == pytest.approx(100.0 * booked, abs=1e-9)
            compared += 1
    assert compared > 8


def test_outcomes_made_anew_are_equal_and_wait_for_their_session(trading_home):
    store, _ = trading_home
    for _ in desk(store).trade(until_waiting=True):
        pass
    answer(store, "rejected")
    rows, _ = extract_decisions(store)
    assert write_outcomes(store, rows, evening(store)).n_pending == 1
    past = days_of(store)[-10]
    known = [a_decision(1, partition_key=rows[0].partition_key, symbols=rows[0].symbols, session=past, **weights())]
    first = write_outcomes(store, known, evening(store)).rows
    assert store.tables.read(OUTCOMES).equals(first)
    assert write_outcomes(store, known, evening(store)).rows.equals(first)
    early = dt.datetime.combine(days_of(store)[-6], dt.time(22), dt.UTC)
    assert write_outcomes(store, known, early).n_pending == 1
    gone = write_outcomes(store, [a_decision(2)], evening(store))
    assert (len(gone.rows), set(gone.problems)) == (0, {a_decision(2).decision_id})


def weights():
    return {"held_weights": (0, 0, 0, 1), "proposed_weights": (0.2, 0.2, 0.2, 0.4), "chosen_weights": (0, 0, 0, 1)}
