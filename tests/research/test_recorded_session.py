import pytest

from nvtrader_pipelines.research.recorded_session import find_damaged_sessions, read_session, recorded_state
from nvtrader_pipelines.storage.errors import DamagedFileError, StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder
from tests.research.sessions import JournalBuilder, a_journal, a_session, write_session


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
    copy = SessionFolder(folder.path.rename(folder.path.with_name("b")))
    with pytest.raises(DamagedFileError) as refused:
        read_session(copy)
    assert refused.value.path == copy.settings


def test_damaged_sessions_are_found_but_torn_lines_are_no_damage(home):
    lines = a_journal(3).lines
    for name in ("a", "b", "c", "d"):
        write_session(home, a_session(name), lines, torn=b'{"event":"tri')
    no_line, no_settings = SessionFolder.of(home, "b").journal, SessionFolder.of(home, "d").settings
    no_line.write_bytes(b"{}\n" + no_line.read_bytes())
    no_settings.write_bytes(b"")
    assert [error.path for error in find_damaged_sessions(home)] == [no_line, no_settings]


def test_session_that_does_not_exist_is_an_error(home):
    with pytest.raises(StorageError, match="nvtrader research sessions"):
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
