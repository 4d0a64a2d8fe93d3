"""`nvtrader serve`: the REST service of a home."""

import os
import secrets
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import Thread
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.mcp_command import AllowTrading, AllowWrites
from nvtrader_pipelines.service.cli.output import print_line
from nvtrader_pipelines.service.open_home import current_user, open_store
from nvtrader_pipelines.storage.code_server import running_url
from nvtrader_pipelines.storage.home import VARIABLE, Home

app = typer.Typer()
TOKEN = "NVTRADER_TOKEN"


@command(app.command, "nvtrader serve", "nvtrader serve --port 8080 --with-ui")
def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="Address; another than 127.0.0.1 asks a token of reads, too.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8000,
    with_ui: Annotated[bool, typer.Option("--with-ui", help="Start the Dagster UI beside it, on port 3000.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Open no browser.")] = False,
    allow_writes: AllowWrites = False,
    allow_trading: AllowTrading = False,
) -> None:
    """Serve the home on 127.0.0.1: the page /continuous-rl.html, and its REST routes, described at /docs.

    Where the machine has a screen, the page opens in its browser; else the printed link lets one in. Programs send its
    token: `Authorization: Bearer TOKEN`. $NVTRADER_TOKEN sets it; otherwise each start has a new one. The tools
    of `nvtrader mcp` are at /mcp.
    """
    from nvtrader_pipelines.service.api.access import Access
    from nvtrader_pipelines.service.api.server import serve as serve_home
    from nvtrader_pipelines.service.tools.toolbox import permissions_of

    if not host.strip():
        raise ValueError("the host must be an address of this machine, such as 127.0.0.1, but is empty; name one")
    store = open_store()
    access = Access(host, port, os.environ.get(TOKEN) or secrets.token_urlsafe(32))

    def announce() -> None:
        print_line(f"{access.link} (Ctrl-C stops it)")
        if has_screen() and not no_browser:
            Thread(target=webbrowser.open, args=(access.link,), daemon=True).start()  # some browsers return late

    with _ui(store.home) if with_ui else nullcontext():
        permissions = permissions_of(allow_writes=allow_writes, allow_trading=allow_trading)
        serve_home(store, access, current_user(), announce, permissions)


def has_screen() -> bool:
    """Whether somebody at this machine would see a browser."""
    is_local = "SSH_CONNECTION" not in os.environ and sys.stdout.isatty()
    return is_local and (sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY"))))


@contextmanager
def _ui(home: Home) -> Iterator[None]:
    """Run the Dagster UI beside the service, unless one runs already."""
    from nvtrader_pipelines.orchestration.ui_processes import STARTER

    if running_url(home.dagster):
        yield
        return
    command_line = [sys.executable, "-c", "from nvtrader_pipelines.service.cli.app import main; main()", "ui"]
    environment = {name: value for name, value in os.environ.items() if name != TOKEN}
    environment |= {VARIABLE: str(home.root), STARTER: str(os.getpid())}
    process = subprocess.Popen(command_line, stdin=subprocess.DEVNULL, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait()
