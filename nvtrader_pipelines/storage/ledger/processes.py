"""Identity of processes: number and start time, and whether a process is still alive."""

import socket
from datetime import UTC, datetime, timedelta

import psutil

MAX_DRIFT = timedelta(seconds=2)  # start times depend on the boot time, which shifts with clock corrections


def host_name() -> str:
    """Name of this machine."""
    return socket.gethostname()


def this_process() -> tuple[int, datetime]:
    """Number and start time of this process."""
    process = psutil.Process()
    return process.pid, _start_time(process)


def is_alive(pid: int, started_at: datetime) -> bool:
    """Return whether a process of this machine is alive; its number may have been reused."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(_start_time(process) - started_at) <= MAX_DRIFT
    except psutil.NoSuchProcess:
        return False


def _start_time(process: psutil.Process) -> datetime:
    return datetime.fromtimestamp(process.create_time(), UTC)
