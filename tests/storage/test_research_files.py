import fcntl
import time

import pytest

from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.research_files import SearchSessions, SessionFolder


def test_session_is_running_while_its_lock_is_held(home):
    folder = SessionFolder.of(home, "a")
    assert not folder.is_running
    with folder.lock():
        assert folder.is_running
        with pytest.raises(StorageError), folder.lock():
            pass
    assert not folder.is_running


def test_lock_waits_for_a_look_at_whether_the_session_is_running(home, monkeypatch):
    folder = SessionFolder.of(home, "a")
    with folder.lock():
        pass
    with (folder.path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda pause: pause and fcntl.flock(file, fcntl.LOCK_UN))
        with folder.lock():
            assert folder.is_running


@pytest.fixture
def folders(home):
    found = {name: SessionFolder.of(home, name) for name in ("aa1", "aa2", "b")}
    for folder in found.values():
        folder.path.mkdir(parents=True)
        folder.settings.touch()
    return found


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(("text", "session_id"), [("aa1", "aa1"), ("b", "b"), (None, "b")])
def test_session_is_found_by_prefix_or_is_the_last(home, text, session_id):
    assert SearchSessions(home).find(text).session_id == session_id


def test_running_session_is_found_before_the_last_one(home, folders):
    with folders["aa1"].lock():
        assert SearchSessions(home).find().session_id == "aa1"


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize("text", ["aa", "c", ""])
def test_session_of_no_single_match_is_an_error(home, text):
    with pytest.raises(NotFoundError):
        SearchSessions(home).find(text)


def test_home_without_sessions_has_none(home):
    with pytest.raises(NotFoundError):
        SearchSessions(home).find()
