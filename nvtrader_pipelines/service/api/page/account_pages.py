"""Page of an account: what it holds, what became of it, and what was traded."""

from typing import Annotated, Any, Literal

from fastapi import Path
from starlette.responses import Response

from nvtrader_pipelines.components.document import frame_of
from nvtrader_pipelines.desk.account_access import account_names
from nvtrader_pipelines.desk.account_curves import AccountCurves, NameCurve, account_curves, name_curve
from nvtrader_pipelines.desk.account_history import account_history
from nvtrader_pipelines.desk.account_snapshot import account_snapshot
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.service.api.context import Shared, router
from nvtrader_pipelines.service.api.page.lab_pages import show
from nvtrader_pipelines.service.api.problems import refusing
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError

routes = router("page")
AccountName = Annotated[str, Path(max_length=200)]
MAX_ROWS = 200  # of a table


@routes.get("/accounts/{account}", include_in_schema=False)
def show_account(shared: Shared, account: AccountName) -> Response:
    """Show an account: positions, curves, months, orders and plans."""
    accounts = [name for name in account_names(shared.home) if name.isprintable()]
    try:
        snapshot, history = account_snapshot(shared.store, account), account_history(shared.store, account)
    except NotFoundError as error:
        return show(shared, "problem", 404, title="There is no such account", problem=error)
    except (StorageError, ExecutionError, ValueError) as error:
        return show(shared, "problem", 503, title=f"The account {account} cannot be read", problem=error)
    values = {"account": snapshot, "history": history, "accounts": accounts, "max_rows": MAX_ROWS}
    held = {position.symbol for position in snapshot.positions}
    values["names"] = [*(position.symbol for position in snapshot.positions)]
    values["names"] += sorted({order.symbol for order in history.orders} - held)
    values["fees"] = sum(order.fees for order in history.orders)
    return show(shared, "account", here=f"/accounts/{account}", **values)


@routes.get("/accounts/{account}/charts", include_in_schema=False, response_model=AccountCurves)
def charts(shared: Shared, account: AccountName) -> Any:
    """Curves of an account."""
    with refusing(NotFoundError):
        return shared.answers.get(("accounts/charts", account), lambda: account_curves(shared.store, account))


@routes.get("/accounts/{account}/names/{symbol}", include_in_schema=False, response_model=NameCurve)
def name(shared: Shared, account: AccountName, symbol: AccountName) -> Any:
    """Closes of a name, with the account's trades."""
    with refusing(NotFoundError):
        key = ("accounts/names", account, symbol)
        return shared.answers.get(key, lambda: name_curve(shared.store, account, symbol))


@routes.get("/accounts/{account}/{part}.csv", include_in_schema=False)
def download(
    shared: Shared, account: AccountName, part: Literal["positions", "days", "months", "orders", "plans"]
) -> Response:
    """Download rows of an account."""
    read = account_snapshot if part == "positions" else account_history
    with refusing(NotFoundError):
        rows = getattr(read(shared.store, account), part)
    name = f"{account}-{part}.csv"
    content = frame_of(rows).write_csv() if rows else ""
    return Response(content, media_type="text/csv", headers={"content-disposition": f'attachment; filename="{name}"'})
