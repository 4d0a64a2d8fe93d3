from dataclasses import replace
from datetime import date

import pytest
import yaml

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.archive import read_archive
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.research.journal import LookOpened, SessionClosed, TrialJudged
from nvtrader_pipelines.research.looks import count_looks
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.session_store import sealed_experiment
from nvtrader_pipelines.research.verdict import Outcome
from nvtrader_pipelines.storage.ledger.look_rows import SealedWindow
from nvtrader_pipelines.storage.store import Store
from tests.research.search_homes import (
    EVEN,
    GRID,
    N_NAMES,
    cufolio,
    fail_jobs,
    new_session,
    run,
    run_to_look,
    trials_of,
)
from tests.research.sessions import JournalBuilder, write_session
from tests.storage.ledger.run_rows import run_row

pytestmark = pytest.mark.slow

ENDS = GRID | {"proposer": {"kind": "grid", "points": 2}}


def sealed_window(home, folder):
    """Sealed window of a session."""
    session = read_session(folder).session
    last = Store(home).panels.read(session.spec.base.market).sessions[-1].item()
    return SealedWindow("landing", frozenset(session.symbols), session.spec.sealed_from, last)


def test_look_is_recorded_before_a_process_holds_the_window(looked, searched_to_look):
    (home, folder), look = looked, searched_to_look.look
    window = sealed_window(home, folder)
    assert read_session(folder).lines[-1] == look
    assert (look.look, look.level, Store(home).ledger.sealed_windows()) == (1, 0.025, [window])
    assert [last < window.first for last in searched_to_look.last_sessions] == [True]


@pytest.mark.parametrize("has_line", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_session_killed_after_its_look_keeps_the_number(looked, has_line):
    home, folder = looked
    if not has_line:  # killed between the ledger and the journal
        lines = folder.journal.read_bytes().splitlines(keepends=True)
        folder.journal.write_bytes(b"".join(lines[:-1]))
    run(home, folder)
    *_, opened, closed = read_session(folder).lines
    assert (opened.look, closed.look, closed.outcome) == (1, 1, Outcome.WINNER)
    assert sum(isinstance(line, LookOpened) for line in read_session(folder).lines) == 1
    assert len(Store(home).ledger.sealed_windows()) == 1
    again = new_session(home, cufolio(EVEN), **GRID | {"goal": "the same again"})
    second = run_to_look(home, again)
    assert (second.look, second.level) == (2, pytest.approx(0.05 / 6))


def test_opened_look_is_finished_although_others_raised_the_bar(reversing_home):
    folder = new_session(reversing_home, cufolio(0.25), **ENDS)
    run_to_look(reversing_home, folder)
    recorded = read_session(folder)
    trial = next(line for line in recorded.lines if isinstance(line, TrialJudged))
    others = [
        recorded.lines[0],
        *(trial.model_copy(update={"spec_hash": f"other {i}", "trial": i, "proposal": i}) for i in range(1, 2001)),
    ]
    write_session(reversing_home, recorded.session.model_copy(update={"session_id": "20200101-000000-aaaa"}), others)
    (closed,) = run(reversing_home, folder)
    assert (closed.outcome, closed.look) == (Outcome.IMPROVEMENT, 1)


def test_winner_hands_on_the_judged_policies(looked):
    home, folder = looked
    closed = run(home, folder)[-1]
    assert isinstance(closed, SessionClosed)
    assert (closed.outcome, closed.over_base.difference > 1.0) == (Outcome.WINNER, True)
    kept = next(line for line in trials_of(folder) if line.trial == closed.trial)
    policies = home.research_policies / folder.session_id
    winner = ExperimentSpec.model_validate(yaml.safe_load((policies / "experiment.yaml").read_text()))
    session = read_session(folder).session
    spec, name = session.spec.space().propose(kept.knobs).spec, f"{folder.session_id}-winner"
    expected = sealed_experiment(spec, session.symbols, session.spec.sealed_from, name)
    assert winner == expected
    assert winner.agent.max_position_pct == kept.knobs["agent.max_position_pct"] == 0.25
    (file,) = policies.glob("*.zip")
    card, tensors = read_archive(file.read_bytes())
    assert (card.spec_hash, card.fold, card.seed) == (winner.spec_hash, 0, 0)
    panel = Store(home).panels.read(winner.market)
    assert open_policy(card, tensors, panel).decide(panel, 900, opening_account(N_NAMES)).target.max() == pytest.approx(
        0.25
    )
    assert (folder.path / "best.yaml").read_bytes() == (policies / "experiment.yaml").read_bytes()


def test_improvement_is_a_new_base_and_not_handed_on(reversing_home):
    folder = new_session(reversing_home, cufolio(0.25), **ENDS)
    closed = run(reversing_home, folder)[-1]
    assert closed.outcome == Outcome.IMPROVEMENT
    best = ExperimentSpec.model_validate(yaml.safe_load((folder.path / "best.yaml").read_text()))
    assert best.agent.max_position_pct == EVEN
    assert not reversing_home.research_policies.exists()


def test_kept_trial_without_a_sealed_result_is_not_confirmed(looked, monkeypatch):
    home, folder = looked
    fail_jobs(monkeypatch, lambda job: job.spec.name.endswith("-winner"))
    closed = run(home, folder)[-1]
    assert (closed.outcome, closed.look, closed.over_base) == (Outcome.NOT_CONFIRMED, 1, None)
    assert Store(home).ledger.find_look(folder.session_id) == 1
    assert not (folder.path / "best.yaml").exists()


def test_look_without_a_result_of_the_base_is_finished_by_a_resume(looked, monkeypatch):
    home, folder = looked
    with monkeypatch.context() as failing:
        fail_jobs(failing, lambda job: job.spec.name == "base")
        with pytest.raises(ValueError):
            run(home, folder)
    (closed,) = run(home, folder)
    assert (closed.outcome, closed.look) == (Outcome.WINNER, 1)


@pytest.mark.parametrize("used_by", [None, "session", pytest.param("run", marks=pytest.mark.nightly)])
def test_winner_is_fresh_only_if_nothing_else_was_judged_on_its_window(looked, used_by):
    home, folder = looked
    session, store = read_session(folder).session, Store(home)
    first, last = session.spec.sealed_from, sealed_window(home, folder).last
    if used_by == "session":
        spec = session.spec.model_copy(update={"validation_from": first, "sealed_from": last})
        other = session.model_copy(update={"session_id": "20200101-000000-aaaa", "spec": spec})
        write_session(home, other, JournalBuilder().trial(0.1).lines)
    if used_by == "run":
        begun = run_row(store.ledger, cufolio(), source="landing", window_first=first, window_last=last)
        store.ledger.begin(begun)
        store.ledger.finish(begun.run_id, "done")
    closed = run(home, folder)[-1]
    assert (closed.outcome, closed.look) == (Outcome.WINNER, 1)
    assert ("never used before" in closed.sentence) == (used_by is None)


def test_search_without_an_edge_spends_no_look(noise_home):
    folder = new_session(noise_home, **GRID)
    closed = run(noise_home, folder)[-1]
    assert (closed.outcome, closed.look, closed.trial) == ("nothing found", None, None)
    assert len(Store(noise_home).ledger.sealed_windows()) == 0
    assert not (folder.path / "best.yaml").exists()
    assert not noise_home.research_policies.exists()


@pytest.mark.parametrize(
    ("changes", "n_sessions", "n_looks"),
    [
        ({}, 251, 1),
        ({"symbols": frozenset({"B", "C"})}, 251, 1),
        ({"symbols": frozenset({"C"})}, 251, 0),
        ({"source": "landing"}, 251, 0),
        ({"first": date(2012, 12, 28)}, 600, 1),
        ({"first": date(2012, 12, 31)}, 503, 1),
        ({"first": date(2012, 12, 31)}, 504, 0),
        ({"first": date(2012, 12, 31), "symbols": frozenset({"C"})}, 503, 0),
        ({"first": date(2005, 1, 3), "last": date(2009, 12, 31)}, 503, 0),
    ],
    ids=["equal", "shared name", "other names", "other source", "shared session", "short after it", "long after it",
         "other names after it", "before it"],
)  # fmt: skip
def test_looks_count_where_windows_meet_or_a_short_one_follows(changes, n_sessions, n_looks):
    earlier = SealedWindow("sample", frozenset({"A", "B"}), date(2010, 1, 4), date(2012, 12, 28))
    window = replace(earlier, **{"last": date(2014, 12, 31), **changes})
    assert count_looks(window, n_sessions / 252, [earlier]) == n_looks
