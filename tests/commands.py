"""`nvtrader` for shell scripts of many commands: each in a fork of one process that has imported everything already."""

import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(asked)
    code = server.makefile().read()
sys.exit(int(code or 1))
"""
ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def forked_commands(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A folder for the path with an `nvtrader` whose commands need nothing imported; they go on till the end."""
    folder.mkdir(parents=True)
    client, address = folder / "nvtrader", folder / "socket"
    client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    command = [sys.executable, "-m", "tests.commands", str(address)]
    with subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield folder
        finally:
            server.terminate()


def serve(address: str) -> None:
    """Run each command that is asked for in a fork of its own, and answer with its exit code."""
    from nvtrader_pipelines.service.cli import main

    import_module(
        "nvtrader_pipelines.orchestration.pipeline"
    )  # and with it all that a command imports when it needs it
    gc.freeze()  # no fork looks for garbage in what was imported, and so copies none of it
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                answer(connection, main)
            connection.close()


def answer(connection: socket.socket, main) -> None:
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
    serve(sys.argv[1])
