import fcntl
import time

import pytest

from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder


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
