"""Writes on a full disk: a limit of the file size stands for it."""

import errno
import resource
import signal

import pytest

from nvtrader_pipelines.storage.files import create_aside, write_atomically


@pytest.fixture
def full_disk():
    """Files can grow to 10 bytes."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("full_disk")
def test_write_atomically_on_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "state.json"
    write_atomically(path, b"{}")
    with pytest.raises(OSError, check=lambda error: error.errno in {errno.EFBIG, errno.ENOSPC}):
        write_atomically(path, b"x" * 20)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"{}"


@pytest.mark.usefixtures("full_disk")
def test_create_aside_on_full_disk_leaves_no_file(tmp_path):
    with pytest.raises(OSError), create_aside(tmp_path / "ledger.db") as new:
        new.write_bytes(b"x" * 20)
    assert list(tmp_path.iterdir()) == []


def test_create_aside_removes_what_a_killed_process_left(tmp_path):
    for name in (".ledger.db.new", ".ledger.db.new-wal"):
        (tmp_path / name).write_bytes(b"torn")
    with create_aside(tmp_path / "ledger.db") as new:
        new.write_bytes(b"whole")
    assert list(tmp_path.iterdir()) == [tmp_path / "ledger.db"]
