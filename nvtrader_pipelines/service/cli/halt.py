"""`nvtrader halt` and `nvtrader resume`: the kill switch, in one loud sentence."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from nvtrader_pipelines.service.cli.errors import FAILED, one_sentence
from nvtrader_pipelines.service.cli.options import AsJson, Verbose, open_store, person
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]
UNSAID = "no reason was given"


def halt(reason: Reason = UNSAID, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Stop trading at once, whatever trades: no order is placed any more, and what is open is cancelled.

    Orders that wait at a broker are cancelled there after trading is stopped. Where one may still be open, the command
    says so and ends with 1; trading is stopped all the same. They are cancelled too where the audit is damaged or the
    disk is full, which is said and ends it with 3.
    """
    from nvtrader_pipelines.desk.halt import halt as engage

    with one_sentence(verbose=verbose):
        store, by = open_store(), person()
        failure = None
        try:
            said = engage(store, by, reason, _now)
        except StorageError as error:  # orders wait at brokers, whatever cannot be kept here
            said, failure = str(error), error
        if failure is None and not as_json:
            _say(store, said)
        from nvtrader_pipelines.desk.open_orders import Stop, withdraw_all

        cancelled, still_open = withdraw_all(store, Stop(f"trading was stopped by {by}: {reason}", by, _now))
        if as_json:
            _write(store, said, cancelled=cancelled, still_open=still_open)
        else:
            _say_cancelled(cancelled, still_open)
        if failure is not None:
            raise failure
        if still_open:
            raise typer.Exit(FAILED)


def resume(reason: Reason = UNSAID, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Let trading go on from the next step."""
    from nvtrader_pipelines.desk.halt import resume as release

    with one_sentence(verbose=verbose):
        store = open_store()
        said = release(store, person(), reason, _now)
        if as_json:
            _write(store, said)
        else:
            _say(store, said)


def _now() -> datetime:
    """The time; taken here, since what else knows it takes seconds to import."""
    return datetime.now(UTC)


def _engaged(store: Store) -> str | None:
    from nvtrader_pipelines.storage.kill_switch import FileKillSwitch

    return FileKillSwitch(store.home).halt_reason()


def _write(store: Store, sentence: str, **more: Any) -> None:
    """What was done, as a document."""
    document = {"said": sentence, "kill_switch": _engaged(store), **more}
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _say(store: Store, sentence: str) -> None:
    """What was done: red while trading is stopped, green while it is not."""
    _print(sentence, "bold white on red" if _engaged(store) else "bold white on green")


def _say_cancelled(cancelled: Sequence[str], still_open: Mapping[str, str]) -> None:
    """What was cancelled at brokers, and what was not."""
    if cancelled:
        _print(f"cancelled: {', '.join(cancelled)}", "bold")
    for account, why in still_open.items():
        _print(
            f"ORDERS MAY STILL BE OPEN on the account {account}: {why}; cancel them at the broker, or halt once more",
            "bold white on red",
        )


def _print(sentence: str, style: str) -> None:
    Console().print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)
