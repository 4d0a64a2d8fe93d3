"""Servers of the UI, and the process that watches them; it imports only psutil."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import psutil

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0
POLL_SECONDS = 0.5
LOCK = "ui.lock"  # in the folder that a UI shows; holds its URL
BAD_INPUT = 3  # exit code of the command for a taken home or port


def run_servers(
    folder: Path, port: int, message: str, commands: Sequence[Sequence[str]], settings: Mapping[str, str]
) -> NoReturn:
    """Replace this process by a small one that runs the servers of a UI until it is stopped.

    Args:
        folder: folder that the UI shows, locked against a second UI.
        port: port of 127.0.0.1 on which it listens.
        message: text to print once it listens.
        commands: command of each server.
        settings: environment variables of the servers, added to those of this process.
    """
    arguments = [str(folder / LOCK), str(port), message, json.dumps(commands)]
    os.execve(sys.executable, [sys.executable, "-m", __name__, *arguments], {**os.environ, **settings})


def main() -> int:
    """Run the servers of a UI, if no other process does; print the message once they listen."""
    lock, port, message, commands = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    try:
        with only_server(lock, f"http://{HOST}:{port}"):
            require_free(port)
            return serve(commands, port, message)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_INPUT


def serve(commands: Sequence[Sequence[str]], port: int, message: str) -> int:
    """Run commands until one ends or this process is stopped.

    Each has a process session of its own; started in the background of a shell it would ignore SIGTERM.

    Returns:
        The exit code of the first command that ended, or 0 if the process was stopped.
    """
    stops: list[int] = []
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _frame: stops.append(number))
    with ExitStack() as stack:
        servers = []
        for command in commands:
            server = subprocess.Popen(command, start_new_session=True)
            stack.callback(server.wait)
            stack.callback(terminate_session, server.pid)
            servers.append(server)
            if "--socket" in command:
                path = Path(command[command.index("--socket") + 1])
                stack.callback(shutil.rmtree, path.parent, ignore_errors=True)
                while not (path.exists() or stops or server.poll() is not None):  # the others would log an error
                    time.sleep(POLL_SECONDS)
        is_announced = False
        while not stops and all(server.poll() is None for server in servers):
            if not is_announced and is_listening(port):
                is_announced = True
                sys.stdout.write(f"{message}\n")
                sys.stdout.flush()
            time.sleep(POLL_SECONDS)
        return 0 if stops else next(server.returncode for server in servers if server.returncode is not None)


@contextmanager
def only_server(lock: Path, url: str) -> Iterator[None]:
    """Hold the lock of a UI, with its URL; the kernel releases it when the process dies.

    Raises:
        ValueError: if another process holds it.
    """
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(f"a UI already serves this home on {file.read()}; open it, or stop it first") from None
        file.truncate(0)
        file.write(url)
        file.flush()
        yield


def require_free(port: int) -> None:
    """Raise if a port is taken.

    Raises:
        ValueError: if another program listens on the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just closed is free
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ValueError(f"port {port} of {HOST} is taken; name another with --port") from error


def is_listening(port: int) -> bool:
    """Whether a program accepts connections on a port."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def terminate_session(session: int) -> None:
    """Terminate processes left by the server: its code server and resumable runs."""
    while left := _processes_of(session):  # repeated, since a process that ends may just have started others
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(left, timeout=GRACE_SECONDS)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _processes_of(session: int) -> list[psutil.Process]:
    """Live processes of a process session."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


if __name__ == "__main__":
    sys.exit(main())
