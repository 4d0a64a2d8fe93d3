"""Page of an account: what it holds, how it got there, and what was traded."""

from typing import Annotated, Any, Literal

from fastapi import Path
from starlette.responses import Response

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.desk.account_access import account_names, read_account
from nvtrader_pipelines.desk.account_curves import NameCurve, account_curves, name_curve
from nvtrader_pipelines.desk.account_facts import AccountFacts
from nvtrader_pipelines.desk.account_history import AccountHistory, account_history
from nvtrader_pipelines.desk.account_snapshot import AccountSnapshot, account_snapshot
from nvtrader_pipelines.desk.traded_policy import bot_of
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.service.api.context import Context, Shared, router
from nvtrader_pipelines.service.api.page.lab_pages import show
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError

routes = router("page")
AccountName = Annotated[str, Path(max_length=200)]
MAX_ROWS = 200  # of a table


class AccountView(Document):
    """What the page of an account shows."""

    account: AccountSnapshot
    history: AccountHistory


def _read(shared: Context, account: str) -> AccountView:
    facts = AccountFacts.of(shared.store, account)
    snapshot = account_snapshot(shared.store, account, facts)
    return AccountView(account=snapshot, history=account_history(shared.store, account, facts))


@routes.get("/accounts/{account}", include_in_schema=False)
def show_account(shared: Shared, account: AccountName) -> Response:
    """Show an account: positions, curves, months, orders and plans."""
    accounts = [name for name in account_names(shared.home) if name.isprintable()]
    try:
        read_account(shared.home, account)
        kept = shared.answers.keep(("accounts", account), lambda: _read(shared, account).model_dump_json().encode())
        view, bot = AccountView.model_validate_json(kept), bot_of(shared.store, account)
    except NotFoundError as error:
        return show(shared, "problem", 404, title="There is no such account", problem=error)
    except (StorageError, ExecutionError, ValueError) as error:
        return show(shared, "problem", 503, title=f"The account {account} cannot be read", problem=error)
    held = [position.symbol for position in view.account.positions]
    return show(
        shared,
        "account",
        here=f"/accounts/{account}",
        account=view.account,
        history=view.history,
        bot=bot,
        accounts=accounts,
        names=[*held, *sorted({order.symbol for order in view.history.orders} - set(held))],
        fees=sum(order.fees for order in view.history.orders),
        max_rows=MAX_ROWS,
    )


@routes.get("/accounts/{account}/names/{symbol}", include_in_schema=False, response_model=NameCurve)
def name(shared: Shared, account: AccountName, symbol: AccountName) -> Any:
    """Closes of a name, with the account's trades."""
    with refusing(NotFoundError):
        key = ("accounts/names", account, symbol)
        return shared.answers.get(key, lambda: name_curve(shared.store, account, symbol))


@routes.get("/accounts/{account}/{part}.csv", include_in_schema=False)
def download(
    shared: Shared, account: AccountName, part: Literal["positions", "curves", "days", "months", "orders", "plans"]
) -> Response:
    """Download rows of an account."""
    with refusing(NotFoundError):
        if part == "curves":
            rows = account_curves(shared.store, account).frame()
        else:
            document = (account_snapshot if part == "positions" else account_history)(shared.store, account)
            rows = document.frame(part)
    headers = {"content-disposition": f'attachment; filename="{account}-{part}.csv"'}
    return Response(rows.write_csv(), media_type="text/csv", headers=headers)
