"""`nvtrader status`: state of the home on one screen."""

from nvtrader_pipelines.service.cli.options import open_store
from nvtrader_pipelines.service.cli.output import write_json

EXAMPLES = ("nvtrader status", "nvtrader status --json")


def status(*, as_json: bool) -> None:
    """Show on one screen what trades, runs, waits and failed, the UI, and the next command.

    It reads the home and writes nothing. Failed checks and stale data take seconds to read: `nvtrader notify` and the
    UI report them.
    """
    from datetime import UTC, datetime

    from nvtrader_pipelines.service.cli.pages.status_page import print_status
    from nvtrader_pipelines.service.documents.home_status import read_home_status

    state = read_home_status(open_store(), datetime.now(UTC))
    if as_json:
        write_json(state.model_dump(mode="json"))
    else:
        print_status(state)
