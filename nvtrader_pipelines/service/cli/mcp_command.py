"""`nvtrader mcp`: the tools of a home for an assistant that starts this process."""

from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.open_home import OpenHome

app = typer.Typer()
AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Let tools start trainings, replays and searches, and annotate runs.")
]
AllowTrading = Annotated[
    bool, typer.Option("--allow-trading", help="Let tools decide on plans, whose orders are placed, and stop trading.")
]


@command(app.command, "nvtrader mcp", "nvtrader mcp --allow-writes")
def mcp(*, allow_writes: AllowWrites = False, allow_trading: AllowTrading = False) -> None:
    """Serve tools to an assistant by the Model Context Protocol, over standard input and output.

    A desktop assistant starts the command itself. The tools only read, unless an option allows more; while the kill
    switch is engaged they only read in any case. The audit names the tool of every call that writes or trades.
    """
    from nvtrader_pipelines.service.tools.toolbox import Toolbox, open_server, permissions_of

    permissions = permissions_of(allow_writes=allow_writes, allow_trading=allow_trading)
    server = open_server(Toolbox(OpenHome.find(is_quiet=True), permissions))
    from nvtrader_pipelines.service.tools.server import serve_stdio

    serve_stdio(server)
