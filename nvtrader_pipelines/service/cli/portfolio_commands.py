"""`nvtrader portfolio` and `nvtrader trade`: the state of an account, its trading and its reset."""

from typing import TYPE_CHECKING

from nvtrader_pipelines.execution.errors import TradingStopped
from nvtrader_pipelines.service.cli.exit_codes import OK
from nvtrader_pipelines.service.cli.family_commands import family_app
from nvtrader_pipelines.service.operations.accounts import Accounts

if TYPE_CHECKING:
    from nvtrader_pipelines.desk.account_activity import AccountActivity


def _end(activity: "AccountActivity") -> int:
    """Raise what ended trading early, after the account was printed."""
    if activity.stopped:
        raise TradingStopped(activity.stopped)
    return OK


app = family_app(Accounts, "account_pages", exit_codes={"trade": _end})
