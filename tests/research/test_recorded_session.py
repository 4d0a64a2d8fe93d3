import numpy as np
import pytest

from nvtrader_pipelines.evaluation.sharpe.lead import Lead
from nvtrader_pipelines.research.journal import SessionClosed
from nvtrader_pipelines.research.recorded_session import (
    find_damaged_sessions,
    read_session,
    recorded_state,
    trial_views,
)
from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from tests.research.sessions import BASE_SHARPES, JournalBuilder, a_journal, a_session, write_session


def test_session_is_read_as_it_was_written(home):
    session, lines = a_session(), a_journal(10).lines
    recorded = read_session(write_session(home, session, lines))
    assert (recorded.session, list(recorded.lines), recorded.has_torn_line) == (session, lines, False)


def test_torn_last_line_is_left_out(home):
    lines = a_journal(3).lines
    recorded = read_session(write_session(home, a_session(), lines, torn=b'{"event":"tri'))
    assert (len(recorded.lines), recorded.has_torn_line) == (len(lines), True)


def test_unreadable_middle_line_is_an_error_with_its_number(home):
    folder = write_session(home, a_session(), a_journal(3).lines)
    texts = folder.journal.read_bytes().split(b"\n")
    folder.journal.write_bytes(b"\n".join([texts[0], texts[1][:20], *texts[2:]]))
    with pytest.raises(DamagedFileError) as refused:
        read_session(folder)
    assert refused.value.path == folder.journal
    assert "line 2:" in refused.value.problem


def test_unreadable_settings_are_an_error(home):
    folder = write_session(home, a_session(), [])
    folder.settings.write_text("{}")
    with pytest.raises(DamagedFileError):
        read_session(folder)


def test_settings_with_another_id_than_the_folder_are_an_error(home):
    folder = write_session(home, a_session("a"), [])
    copy = SessionFolder(folder.path.rename(folder.path.with_name("b")), home)
    with pytest.raises(DamagedFileError) as refused:
        read_session(copy)
    assert refused.value.path == copy.settings


@pytest.mark.slow
def test_damaged_sessions_are_found_but_torn_lines_are_no_damage(home):
    lines = a_journal(3).lines
    for name in ("a", "b", "c", "d"):
        write_session(home, a_session(name), lines, torn=b'{"event":"tri')
    no_line, no_settings = SessionFolder.of(home, "b").journal, SessionFolder.of(home, "d").settings
    no_line.write_bytes(b"{}\n" + no_line.read_bytes())
    no_settings.write_bytes(b"")
    assert [error.path for error in find_damaged_sessions(Store(home))] == [no_line, no_settings]


def damaged(lines):
    """Journal of trials, a known one and a rerun, after a change of the lines by hand."""
    return {
        "doubled trial": [*lines[:3], *lines[2:]],
        "doubled trial of the next number": [*lines[:3], lines[2].model_copy(update={"proposal": 99, "trial": 3})],
        "doubled rerun": [*lines, lines[-1]],
        "second base": [*lines, lines[0]],
        "no base": lines[1:],
        "missing trial": [lines[0], *lines[2:]],
        "missing end": lines[:1],
        "swapped trials": [lines[0], lines[2], lines[1], *lines[3:]],
        "rerun before its trial": [*lines[:1], lines[-1], *lines[1:-1]],
        "known one moved": [*lines[:-2], lines[-1], lines[-2]],
        "verdict in the middle": [*lines[:2], a_verdict(lines), *lines[2:]],
        "two verdicts": [*lines, a_verdict(lines), a_verdict(lines)],
        "other number": alter(lines, 2, trial=7),
        "other hash": alter(lines, len(lines) - 1, spec_hash="t9"),
        "other lead": alter(lines, 1, lead=Lead(9.0, 0.1, 96)),
        "other Sharpe ratio": alter(lines, 1, sharpe=3.0),
        "other Sharpe ratio and lead": alter(lines, 1, sharpe=1.7, lead=Lead(1.0, 0.1, 96)),
        "other Sharpe ratio of the base": alter(lines, 0, sharpes=(0.1, *BASE_SHARPES[1:])),
        "other Sharpe ratios of a rerun": alter(lines, len(lines) - 1, sharpes=(2.0, 2.0)),
    }  # fmt: skip


def alter(lines, i, **fields):
    return [*lines[:i], lines[i].model_copy(update=fields), *lines[i + 1 :]]


def a_verdict(lines):
    return SessionClosed(outcome="nothing found", sentence="", seconds=0.0, finished_at=lines[-1].finished_at)


def a_small_journal():
    return JournalBuilder().trial(0.3).trial(0.1).known().rerun("t1", (0.9, 0.9), 0.2 / 3 + 0.2 - 1 / 30).lines


def write_with_returns(home, lines):
    """Write a session with returns of two sessions that give the Sharpe ratios of the first journal."""
    folder = write_session(home, a_session(), lines)
    ratios = {"base": BASE_SHARPES, "trial-1": (1.0,), "trial-2": (0.8,), "trial-1-fresh": (0.9, 0.9)}
    for name, sharpes in ratios.items():
        mean = np.array(sharpes)[:, None] / np.sqrt(365)  # of returns with deviation 1
        folder.write_returns(name, mean + np.array([-1.0, 1.0]) / np.sqrt(2.0))
    return folder


@pytest.mark.parametrize("damage", damaged(a_small_journal()))
def test_journal_that_no_session_wrote_is_refused_and_found(home, damage):
    write_with_returns(home, damaged(a_small_journal())[damage])
    (error,) = find_damaged_sessions(Store(home))
    assert (type(error), error.path.name) == (DamagedFileError, "journal.jsonl")


@pytest.mark.parametrize("n_lines", range(6))
@pytest.mark.parametrize("torn", [b"", b'{"event":"tri'])
def test_journal_cut_by_a_kill_is_read(home, n_lines, torn):
    lines = a_small_journal()
    folder = write_with_returns(home, [*lines, a_verdict(lines)][:n_lines])
    for name in ("trial-1", "trial-2")[max(n_lines, 1) :]:
        (folder.path / "returns" / f"{name}.npy").unlink()
    with folder.journal.open("ab") as file:
        file.write(torn)
    assert len(read_session(folder).lines) == n_lines


def test_session_that_does_not_exist_is_an_error(home):
    with pytest.raises(StorageError):
        read_session(SessionFolder.of(home, "none"))


def test_recorded_state_equals_that_of_the_rule():
    builder = a_journal(30)
    assert recorded_state(builder.lines) == builder.state


def test_recorded_state_ignores_answers_of_the_model():
    builder = JournalBuilder().answer("late").trial(0.3).answer().rerun("t1", (0.9, 0.9), 0.3).answer("not asked")
    assert recorded_state(builder.lines) == builder.state


def test_recorded_state_holds_trials_without_results_of_reruns():
    builder = JournalBuilder().trial(0.3).rerun("t1", None, None).trial(0.2).rerun("t2", (0.9, 0.9), 0.2)
    assert recorded_state(builder.lines) == builder.state
    assert (builder.state.kept.key, builder.state.finalists) == ("t2", [])


def test_recorded_state_counts_configurations_of_other_sessions():
    builder = JournalBuilder(earlier=[f"other {i}" for i in range(480)]).trial(0.1).trial(0.2)
    state = recorded_state(builder.lines)
    assert (state.n_configurations, state.bar) == (482, builder.state.bar)


def test_no_line_has_no_state():
    assert recorded_state([]) is None


def test_view_of_a_rerun_trial_is_over_all_its_seeds():
    builder = JournalBuilder().trial(0.4, lookback=7).rerun("t1", (0.8, 0.8), 0.2).trial(0.1).known()
    rerun, other = trial_views(builder.lines)
    assert (rerun.number, rerun.is_best, rerun.changed) == (1, True, {"lookback": 7})
    assert rerun.sharpe == pytest.approx(0.9)
    assert rerun.sharpe_interval == pytest.approx([0.7 + bound for bound in Lead(0.2, 0.061, 96).interval(0.025)])
    assert (other.number, other.is_best, other.sharpe) == (2, False, pytest.approx(0.8))
    assert rerun.after.luck_sharpe == pytest.approx(0.7 + rerun.after.bar * 0.061)
    assert rerun.after.sharpe_of(rerun.after.best) == pytest.approx(1.1)  # before its fresh seeds
