"""Servers of the UI, and the process that watches them; of other libraries it imports only psutil."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn, TextIO

import psutil

from nvtrader_pipelines.storage.code_server import LOCK, WORKSPACE, is_reachable, running_session

HOST = "127.0.0.1"
GRACE_SECONDS = 10.0  # for processes to end by themselves
ORPHANED_GRACE_SECONDS = 2.0  # for those whose terminal was closed or whose parent was killed
POLL_SECONDS = 0.2
CHECK_SECONDS = 5.0
PATIENCE_SECONDS = 30.0  # without an answer of the code server
STARTER = "NVTRADER_UI_STARTER"  # process that started the UI beside itself and which the UI must not outlive
SOCKET = "{socket}"  # in a command: socket of the code server
FAILED, BAD_INPUT = 1, 3  # exit codes of the command for a dead code server, and for a taken home or port


def run_servers(
    folder: Path,
    port: int,
    message: str,
    commands: Sequence[Sequence[str]],
    settings: Mapping[str, str],
    workspace: str = "",
) -> NoReturn:
    """Replace this process by a small one that runs the servers of a UI until it is stopped.

    Args:
        folder: folder that the UI shows, locked against a second UI.
        port: port of 127.0.0.1 on which it listens.
        message: text to print once it listens.
        commands: command of each server; a code server comes first.
        settings: environment variables of the servers, added to those of this process.
        workspace: text of the workspace file that names the code server, if there is one.
    """
    arguments = [str(folder), str(port), message, json.dumps(commands), workspace]
    os.execve(sys.executable, [sys.executable, "-m", __name__, *arguments], {**os.environ, **settings})


def stop_servers(folder: Path) -> str:
    """Stop the UI of a folder, even if the process that kept it was killed; return its URL, empty if none runs.

    Raises:
        ValueError: if the UI runs on another machine.
    """
    url, session = running_session(folder)
    if url:
        if not any(_has_open(process, folder / LOCK) for process in _processes_of(session)):
            raise ValueError(f"the UI on {url} must be stopped where it runs, which is another machine or user")
        terminate_session(session)
    return url


def main() -> int:
    """Keep a child that runs the servers in a process session of its own, and let neither outlive the other."""
    starter, own, stops = os.environ.pop(STARTER, ""), os.getpid(), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stops.append(number))
    leader = os.fork()
    if not leader:
        os.setsid()
        return run(stops, own)
    while starter in {"", str(os.getppid())}:
        ended, status = os.waitpid(leader, os.WNOHANG)
        if ended or stops:
            terminate_session(leader)
            return os.waitstatus_to_exitcode(status) if ended else 0
        time.sleep(POLL_SECONDS)
    return 0


def run(stops: Sequence[int], parent: int) -> int:
    """Run the servers of a UI until a signal or the parent's end, if no other process does; announce them."""

    def is_stopped() -> bool:
        return bool(stops) or os.getppid() != parent

    folder, port, message, commands, workspace = Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    try:
        with only_server(folder / LOCK, f"http://{HOST}:{port}") as lock:
            require_free(port)
            with tempfile.TemporaryDirectory(prefix="nvtrader-ui-", ignore_cleanup_errors=True) as private:
                path = f"{private}/code"
                if workspace:
                    (folder / WORKSPACE).write_text(workspace.replace(SOCKET, path))
                full = [[part.replace(SOCKET, path) for part in command] for command in json.loads(commands)]
                code = CodeServer(folder, path) if workspace else None
                try:
                    return serve(full, port, message, code, lock, is_stopped)
                finally:
                    is_orphan = os.getppid() != parent
                    terminate_session(os.getpid(), ORPHANED_GRACE_SECONDS if is_orphan else GRACE_SECONDS)
    except (ValueError, ConnectionError) as error:
        sys.stderr.write(f"error: {error}\n")
        return BAD_INPUT if isinstance(error, ValueError) else FAILED


class CodeServer:
    """Code server of a UI, which must stay reachable: without it schedules and sensors silently stop."""

    def __init__(self, folder: Path, path: str) -> None:
        self._lock, self._workspace, self._path = folder / LOCK, folder / WORKSPACE, path
        self._checked_at = self._reached_at = 0.0

    def is_reachable(self) -> bool:
        """Whether the servers of the UI can reach it now."""
        return is_reachable(self._workspace, self._path)

    def record_start(self) -> None:
        """Add the socket to the lock: from now on it must be reachable."""
        with self._lock.open("a") as file:
            file.write(f"\n{self._path}")
        self._checked_at = self._reached_at = time.monotonic()

    def require_reachable(self) -> None:
        """Raise if it has been unreachable for a while; checked every few seconds.

        Raises:
            ConnectionError: with what to do.
        """
        if time.monotonic() - self._checked_at < CHECK_SECONDS:
            return
        is_reached, self._checked_at = self.is_reachable(), time.monotonic()
        if is_reached:
            self._reached_at = self._checked_at
        elif self._checked_at - self._reached_at > PATIENCE_SECONDS:
            raise ConnectionError(
                f"the code server must answer on {self._path}, and {self._workspace} must name this socket, but it "
                f"cannot be reached for {PATIENCE_SECONDS:.0f} seconds: no schedule or sensor runs, so the UI stops; "
                "start it again with `nvtrader ui`"
            )


def serve(
    commands: Sequence[Sequence[str]],
    port: int,
    message: str,
    code: CodeServer | None,
    lock: TextIO,
    is_stopped: Callable[[], bool],
) -> int:
    """Run commands, which hold the lock, until one ends or this process is stopped.

    Returns:
        The exit code of the first command that ended, or 0 if the process was stopped.
    """
    servers = []
    for command in commands:
        servers.append(subprocess.Popen(command, pass_fds=[lock.fileno()]))
        while code and not (code.is_reachable() or is_stopped() or servers[-1].poll() is not None):
            time.sleep(POLL_SECONDS)  # the others would log an error
    if code:
        code.record_start()
    is_announced = False
    while not is_stopped() and all(server.poll() is None for server in servers):
        if not is_announced and is_listening(port):
            is_announced = True
            sys.stdout.write(f"{message}\n")
            sys.stdout.flush()
        if code:
            code.require_reachable()
        time.sleep(POLL_SECONDS)
    return next((server.returncode for server in servers if server.returncode is not None), 0)


@contextmanager
def only_server(lock: Path, url: str) -> Iterator[TextIO]:
    """Hold the lock of a UI, with its URL and session; the kernel releases it when the last holder dies.

    Raises:
        ValueError: if another process holds it.
    """
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            url = file.readline().strip()
            raise ValueError(f"a UI already serves this home on {url}; open it, or stop it with --stop") from None
        file.truncate(0)
        file.write(f"{url}\n{os.getpid()}")
        file.flush()
        yield file


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


def terminate_session(session: int, grace_seconds: float = GRACE_SECONDS) -> None:
    """Terminate the other processes of a session: its leader, which ends the others, or else all that are left."""
    while left := _processes_of(session):  # repeated, since a process that ends may just have started others
        leader = [process for process in left if process.pid == session]
        for process in leader or left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        timeout = grace_seconds + len(leader)  # the leader waits for the others as long
        for process in psutil.wait_procs(leader or left, timeout=timeout)[1]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _processes_of(session: int) -> list[psutil.Process]:
    """Other live processes of a process session."""
    processes = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            is_member = process.pid != os.getpid() and os.getsid(process.pid) == session
            if is_member and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _has_open(process: psutil.Process, path: Path) -> bool:
    """Whether a process of this user has a file open."""
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return any(Path(file.path) == path.resolve() for file in process.open_files())
    return False


if __name__ == "__main__":
    sys.exit(main())
