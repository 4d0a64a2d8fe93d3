"""`nvtrader` for many commands: each in a fork of one process that has imported everything already."""

import gc
import json
import os
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import psutil

from nvtrader_pipelines.storage.files import locked

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
POLL_SECONDS = 5.0  # seconds after which the server looks whether somebody may still ask


def start_server_once(folder: Path, user: int) -> Path:
    """A folder for the path with an `nvtrader` whose commands need nothing imported.

    What they are forks of is begun by the first process that asks, and ends some seconds after process `user`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    client, address = folder / "nvtrader", folder / "socket"
    with locked(folder.with_suffix(".lock")):
        if not client.exists():
            command = [sys.executable, "-m", "tests.command_server", str(address), str(user)]
            subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
            client.chmod(0o755)
    return folder


def serve(address: str, user: int) -> None:
    """Begin, then go on in the background: run each command in a fork of its own, and answer with its exit code."""
    from nvtrader_pipelines.service.cli.app import main
    from tests.forkserver import share_forkserver

    import_module("nvtrader_pipelines.orchestration.pipeline")  # and all that a command imports when it needs it
    share_forkserver()
    gc.freeze()  # no fork looks for garbage in what was imported, and so copies none of it
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
    """The command of one connection, in a fork that ends as a program does; this one waits for it."""
    size, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    arguments, folder, environment = json.loads(connection.makefile("rb").read(int.from_bytes(size, "big")))
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
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    connection.sendall(str(code).encode())
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
