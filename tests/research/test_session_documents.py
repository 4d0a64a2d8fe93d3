import numpy as np
import pytest

from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.sentences import format_progress
from nvtrader_pipelines.research.session_documents import (
    journal_rows,
    list_sessions,
    session_document,
)
from nvtrader_pipelines.research.session_tables import session_row
from nvtrader_pipelines.research.verdict import Standing
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from tests.research.sessions import JournalBuilder, a_journal, a_session, write_session


@pytest.fixture
def folders(home):
    """Folders of three sessions: finished, stopped, and one whose base is not judged."""
    lines = {"aa1": a_journal().nothing_found().lines, "aa2": a_journal(12).lines, "b": []}
    return {name: write_session(home, a_session(name), journal) for name, journal in lines.items()}


def test_sessions_are_listed_newest_first_with_their_figures(home, folders):
    (last, stopped, finished), problems = list_sessions(Store(home))
    assert not problems
    assert (last.session_id, last.state, last.n_trials, last.base_sharpe, last.standing) == (
        "b",
        "stopped",
        0,
        None,
        None,
    )
    assert (stopped.session_id, stopped.state, stopped.outcome, stopped.n_trials) == ("aa2", "stopped", None, 12)
    assert (finished.state, finished.outcome, finished.n_trials, finished.n_known) == (
        "finished",
        "nothing found",
        30,
        1,
    )
    assert (finished.mode, finished.source, finished.n_symbols, finished.budget) == ("ppo_only", "sample", 20, 30)
    assert finished.base_sharpe == pytest.approx(0.7)
    assert finished.best_sharpe == pytest.approx(0.908, abs=1e-3)
    assert finished.standing == Standing.KEPT
    assert finished.seconds == 6.0 * len(read_session(folders["aa1"]).lines)


def test_best_sharpe_of_a_rerun_trial_is_one_number_in_sql_and_json(home):
    builder = JournalBuilder().trial(0.4, lookback=7).rerun("t1", (0.8, 0.8), 0.2)
    write_session(home, a_session("one"), builder.lines)
    recorded = read_session(SessionFolder.of(home, "one"))
    (summary,), _ = list_sessions(Store(home))
    assert summary.best_sharpe == pytest.approx(0.9)
    assert session_row(recorded.session, recorded.lines)["best_sharpe"] == summary.best_sharpe


def test_list_names_the_problem_of_a_damaged_session(home, folders):
    folders["aa2"].journal.write_bytes(b"{}\n")
    found, (problem,) = list_sessions(Store(home))
    assert [summary.session_id for summary in found] == ["b", "aa1"]
    assert str(folders["aa2"].journal) in problem


def test_document_has_sentence_windows_and_lines(home, folders):
    document = session_document(Store(home), "aa2")
    assert document.sentence == format_progress(a_journal(12).state)
    assert document.n_lines == {"base": 1, "trial": 13}
    assert str(document.windows.sealed_from) == "2010-01-04"
    assert document.seconds_left is None
    assert document.notes == ()
    assert document.folder == folders["aa2"].path


def test_plot_of_a_session_has_its_trials_best_so_far_luck_bar_and_base(home, folders):
    document = session_document(Store(home), "aa2")
    trials, figure = document.frame(), document.plot()
    assert trials["trial"].to_list() == list(range(1, 13))
    assert trials["best_sharpe"].is_sorted()
    assert trials["best_sharpe"][-1] == document.summary.best_sharpe
    for trace in figure.data:
        np.testing.assert_array_equal(trace.y, trials[trace.name].to_numpy())
    assert figure.layout.shapes[0].y0 == document.summary.base_sharpe
    assert not session_document(Store(home), "b").plot().layout.shapes


def test_document_of_a_running_session_estimates_the_time_left(home, folders):
    with folders["aa2"].lock():
        document = session_document(Store(home))
    assert document.summary.state == "running"
    assert document.seconds_left == pytest.approx(18 * 13 * 6.0 / 12 / 2)  # a known proposal takes time, too


def test_session_limited_by_seconds_alone_ends_with_them(home):
    session = a_session(budget=None, max_seconds=100.0, workers=3)
    with write_session(home, session, JournalBuilder().trial(0.1).lines).lock():
        assert session_document(Store(home)).seconds_left == pytest.approx(100.0 - 12.0 / 3)


def test_torn_last_line_is_a_note(home):
    write_session(home, a_session(), a_journal(2).lines, torn=b"{")
    assert len(session_document(Store(home)).notes) == 1


def test_journal_has_a_row_per_line_with_changed_knobs(home):
    builder = JournalBuilder().trial(0.2, lookback=7).rerun("t1", (0.9, 0.9), 0.2).trial(None, status="failed")
    builder.trial(0.4).rerun("t3", None, None)
    write_session(home, a_session("one"), builder.look(0.2, 0.3).lines)
    base, trial, rerun, failed, _, missing, look, verdict = journal_rows(read_session(SessionFolder.of(home, "one")))
    assert (base.event, base.proposal, base.sharpe) == ("base", None, pytest.approx(0.7))
    assert (trial.proposal, trial.trial, trial.status, trial.standing) == (1, 1, "judged", Standing.RERUN)
    assert (trial.changed, trial.lead, trial.t) == ({"lookback": 7}, 0.2, pytest.approx(0.2 / 0.061))
    assert (rerun.trial, rerun.standing, rerun.sharpe) == (1, Standing.KEPT, pytest.approx(0.9))
    assert (failed.status, failed.sharpe, failed.message) == ("failed", None, "failed for a reason")
    assert (missing.trial, missing.sharpe, missing.message) == (3, None, "seed 6 has no result")
    assert (look.event, look.trial) == ("look", 1)
    assert (verdict.event, verdict.lead) == ("verdict", 0.2)


def test_journal_has_a_row_per_answer_of_the_model(home):
    builder = JournalBuilder().answer(changes={"gamma": 0.95}, reason="longer memory", expects=0.9)
    builder.trial(0.1, gamma=0.95, reason="longer memory").answer("late", message="no answer within 6 s").trial(0.1)
    folder = write_session(home, a_session("one"), builder.lines)
    _, taken, _, late, _ = journal_rows(read_session(folder))
    assert (taken.event, taken.proposal, taken.status, taken.trial) == ("model", 1, "proposed", None)
    assert (taken.changed, taken.message, taken.sharpe) == ({"gamma": 0.95}, "longer memory", None)
    assert (late.proposal, late.status, late.changed) == (2, "late", {})
    assert late.message == "no answer within 6 s"


def test_time_until_a_model_answers_is_no_work_of_trials(home):
    write_session(home, a_session(), JournalBuilder().answer("late", seconds=100.0).trial(0.1).lines)
    assert session_document(Store(home)).summary.seconds == 12.0
