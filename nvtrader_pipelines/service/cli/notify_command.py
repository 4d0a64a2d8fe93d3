"""`nvtrader notify`: send due notifications now, or a test message to each channel."""

from typing import Annotated

import typer

from nvtrader_pipelines.service.cli.exit_codes import FAILED
from nvtrader_pipelines.service.cli.options import open_store
from nvtrader_pipelines.service.cli.output import Format, write_rows

EXAMPLES = ("nvtrader notify", "nvtrader notify --test")
Test = Annotated[bool, typer.Option("--test", help="Send a test message to each channel instead.")]
COLUMNS = ("channel", "message", "problem")


def notify(*, test: Test = False, form: Format) -> None:
    """Send due notifications: failed runs or checks, waiting plans, stale data, kill switch.

    Each state is sent once per channel, and again only if it has ended and returned. The server of `nvtrader ui`, and
    the commands that train or trade, also send them.
    """
    import polars as pl

    from nvtrader_pipelines.notifications.channels import require_channels

    store = open_store()
    channels = require_channels(store.home)
    if test:
        from datetime import UTC, datetime

        from nvtrader_pipelines.notifications.send_due import send_test

        results = send_test(store.home, channels, datetime.now(UTC))
        rows = [(name, "test message", problem) for name, problem in results.items()]
    else:
        from nvtrader_pipelines.service.cli.notify_at_end import send_now

        sending = send_now(store, with_runs=True)
        rows = [(name, each.subject, "") for name, sent in sending.sent.items() for each in sent]
        rows += [(name, "due", problem) for name, problem in sending.problems.items()]
    write_rows(
        pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row"),
        form,
        ["problem"],
    )
    if any(problem for *_, problem in rows):
        raise typer.Exit(FAILED)
