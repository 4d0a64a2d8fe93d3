"""`nvtrader portfolio` and `nvtrader trade`: the state of an account, its trading and its reset."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.service.cli.exit_codes import FAILED, OK, print_error
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.accounts import Accounts

if TYPE_CHECKING:
    from nvtrader_pipelines.service.documents.account_facts import AccountActivity


def _end(activity: "AccountActivity") -> int:
    """Say why trading ended early, if it did."""
    if activity.stopped:
        print_error(activity.stopped, FAILED)
    return FAILED if activity.stopped else OK


app = family_app(Accounts, "account_pages", exit_codes={"trade": _end})
