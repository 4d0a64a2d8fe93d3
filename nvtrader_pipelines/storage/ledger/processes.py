"""Identity of machines and processes, and whether a process is still alive."""

import platform
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

MAX_DRIFT = timedelta(seconds=2)  # start times depend on the boot time, which shifts with clock corrections


def host_name() -> str:
    """Name of this machine."""
    return socket.gethostname()


def processor_name() -> str:
    """Model of the processor, with the widest vector instructions that NumPy finds: they decide how sums round."""
    from numpy import show_config  # a list of runs needs no NumPy

    info = Path("/proc/cpuinfo")  # of Linux
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    vectors = show_config(mode="dicts")["SIMD Extensions"]
    kinds = ["no vectors", *vectors.get("baseline", []), *vectors.get("found", [])]
    return f"{models[0] if models else platform.processor() or platform.machine()} with {kinds[-1]}"


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
