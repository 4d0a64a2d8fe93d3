"""`nvtrader halt` and `nvtrader resume`: the kill switch, engaged and released."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import typer

from nvtrader_pipelines.service.cli.command import command
from nvtrader_pipelines.service.cli.exit_codes import FAILED
from nvtrader_pipelines.service.cli.options import Reason
from nvtrader_pipelines.service.cli.output import print_line, write_json
from nvtrader_pipelines.service.open_home import current_user, require_home
from nvtrader_pipelines.storage.store import Store

NO_REASON = "no reason was given"
app = typer.Typer()


@command(app.command, "nvtrader halt", 'nvtrader halt --reason "the prices look wrong"')
def halt(reason: Reason = NO_REASON, *, as_json: bool) -> None:
    """Stop trading and runs: place no order, cancel open orders at brokers, interrupt runs.

    Trainings, walks, replays and forward runs end at their next step of progress, and can be resumed.

    If an order may still be open, the command names it and exits with 1; trading is stopped all the same. If the audit
    is damaged or the disk is full, orders are cancelled too, and the command exits with 3 and the reason.
    """
    from nvtrader_pipelines.desk.halt import stop_trading

    store = Store(require_home())
    on_halt = (lambda _: None) if as_json else partial(_print_message, store)
    outcome = stop_trading(store, current_user(), reason, _now, on_halt)
    if as_json:
        from nvtrader_pipelines.service.documents.home_facts import HaltDocument

        document = HaltDocument(
            message=outcome.message,
            kill_switch=store.switch.halt_reason(),
            cancelled=tuple(outcome.cancelled),
            still_open=outcome.still_open,
        )
        write_json(document.model_dump(mode="json"))
    else:
        _print_cancelled(outcome.cancelled, outcome.still_open)
    from nvtrader_pipelines.service.due_notifications import notify

    notify(store)
    if outcome.failure is not None:
        raise outcome.failure
    if outcome.still_open:
        raise typer.Exit(FAILED)


@command(app.command, "nvtrader resume", 'nvtrader resume --reason "the prices are right again"')
def resume(reason: Reason = NO_REASON, *, as_json: bool) -> None:
    """Release the kill switch: trading resumes at the next step, a run when it is started again."""
    from nvtrader_pipelines.desk.halt import resume as release

    store = Store(require_home())
    message = release(store, current_user(), reason, _now)
    if as_json:
        from nvtrader_pipelines.service.documents.home_facts import KillSwitchDocument

        write_json(KillSwitchDocument(message=message, kill_switch=store.switch.halt_reason()).model_dump(mode="json"))
    else:
        _print_message(store, message)


def _now() -> datetime:
    """Current time; defined here, since `runs.lifecycle` takes seconds to import."""
    return datetime.now(UTC)


def _print_message(store: Store, message: str) -> None:
    """Print the outcome: red while trading is stopped, green otherwise."""
    print_line(message, "bold white on red" if store.switch.halt_reason() else "bold white on green")


def _print_cancelled(cancelled: Sequence[str], still_open: Mapping[str, str]) -> None:
    """Print the cancelled orders, and the accounts where orders may still be open."""
    if cancelled:
        print_line(f"cancelled: {', '.join(cancelled)}", "bold")
    for account, reason in still_open.items():
        print_line(
            f"ORDERS MAY STILL BE OPEN on the account {account}: {reason}; cancel them at the broker, or halt again",
            "bold white on red",
        )
