"""`nvtrader serve`: the REST service of a home."""

import os
import secrets
from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.options import current_user
from nvtrader_pipelines.service.cli.output import print_line
from nvtrader_pipelines.service.open_home import open_store

app = typer.Typer()
TOKEN = "NVTRADER_TOKEN"  # noqa: S105 - name of the environment variable


@command(app.command, "nvtrader serve", "nvtrader serve --port 8080 --with-ui")
def serve(
    *,
    host: Annotated[str, typer.Option("--host", help="Address; another than 127.0.0.1 asks a token of reads, too.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port.")] = 8000,
    with_ui: Annotated[bool, typer.Option("--with-ui", help="Start the Dagster UI beside it, on port 3000.")] = False,
) -> None:
    """Serve the home as a REST service on 127.0.0.1; its routes are at /docs.

    The printed link lets a browser in. Programs send its token: `Authorization: Bearer TOKEN`. $NVTRADER_TOKEN sets it;
    otherwise each start has a new one.
    """
