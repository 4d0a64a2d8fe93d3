"""Which process writes, and whether one that wrote is still alive."""

import socket
from datetime import UTC, datetime, timedelta

import psutil

DRIFT = timedelta(seconds=2)  # the start of a process is known by the boot time, which the clock's corrections move


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


def this_process() -> tuple[int, datetime]:
    """The number of this process, and when it began."""
    process = psutil.Process()
    return process.pid, _began(process)


def is_alive(pid: int, started_at: datetime) -> bool:
    """Whether a process of this machine is alive; another one that got its number since is not it."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(_began(process) - started_at) <= DRIFT
    except psutil.NoSuchProcess:
        return False


def _began(process: psutil.Process) -> datetime:
    return datetime.fromtimestamp(process.create_time(), UTC)
