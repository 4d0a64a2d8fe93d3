"""`nvtrader status`: state of the home on one screen."""

from nvtrader_pipelines.service.cli.exit_codes import exit_on_error
from nvtrader_pipelines.service.cli.options import AsJson, PageForm, Verbose, is_json, open_store, with_examples
from nvtrader_pipelines.service.cli.output import PageFormat, write_json

EXAMPLES = with_examples("nvtrader status", "nvtrader status --json")


def status(*, form: PageForm = PageFormat.TABLE, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show on one screen what trades, runs, waits and failed, the UI, and the next command.

    It reads the home and writes nothing. Failed checks and stale data take seconds to read: `nvtrader notify` and the
    UI report them.
    """
    from datetime import UTC, datetime

    from nvtrader_pipelines.service.cli.pages.status_page import print_status
    from nvtrader_pipelines.service.documents.home_status import read_home_status

    with exit_on_error(verbose=verbose):
        state = read_home_status(open_store(), datetime.now(UTC))
        if is_json(form, as_json=as_json):
            write_json(state.model_dump(mode="json"))
        else:
            print_status(state)
