"""Server of `nvtrader` commands: each runs in a fork of a process with all imports done, and ends with its client."""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import psutil

from nvtrader_pipelines.storage.files import file_lock
from tests.cpu_seconds import add_seconds, cpu_seconds

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(request)
    code = server.makefile().read()
sys.exit(int(code or 1))
"""
ROOT = Path(__file__).resolve().parents[1]
LAZY = ("nvtrader_pipelines.orchestration.materialize", "nvtrader_pipelines.service.api.server")  # with all they import
POLL_SECONDS = 5.0  # seconds between checks that the user process is alive


def start_server_once(folder: Path, user: int) -> Path:
    """Start the server unless it runs; return a folder with an `nvtrader` as its client.

    The server ends some seconds after process `user`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client, address = folder / "nvtrader", folder / "socket"
    with file_lock(folder.with_suffix(".lock")):
        if not client.exists():
            command = [sys.executable, "-m", "tests.command_server", str(address), str(user)]
            subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
            client.chmod(0o755)
    return folder


def serve(address: str, user: int) -> None:
    """Serve in the background: run each command in a fork and reply with its exit code."""
    from tests.engines import share_engines

    share_engines()
    from nvtrader_pipelines.service.cli.app import main
    from nvtrader_pipelines.service.cli.lazy_group import LazyCommands
    from tests.forkserver import share_forkserver

    dict(LazyCommands())  # imports every command
    for module in LAZY:
        import_module(module)
    share_forkserver()
    gc.freeze()  # forks then copy no page of imported modules for garbage collection
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(POLL_SECONDS)
        listening.bind(address)
        listening.listen()
        if os.fork():
            os._exit(0)
        os.setsid()
        while True:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                if psutil.pid_exists(user):
                    continue
                return
            if os.fork() == 0:
                listening.close()
                run_command(connection, main)
            connection.close()


def run_command(connection: socket.socket, main) -> None:
    """Run the command of a connection in a fork, and reply with its exit code; kill it if its client has ended."""
    size, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    arguments, folder, environment = json.loads(connection.makefile("rb").read(int.from_bytes(size, "big")))
    before = cpu_seconds()
    command = os.fork()
    if command == 0:
        connection.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["nvtrader", *arguments]
        main()
        sys.exit()
    end = os.pidfd_open(command)
    if end not in select.select([end, connection], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    add_seconds(environment.get("PYTEST_CURRENT_TEST", "commands"), cpu_seconds() - before)
    with suppress(BrokenPipeError):
        connection.sendall(str(code).encode())
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
