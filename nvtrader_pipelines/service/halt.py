"""`nvtrader halt` and `nvtrader resume`: the kill switch, in one loud sentence."""

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from nvtrader_pipelines.service.errors import one_sentence
from nvtrader_pipelines.service.options import AsJson, Verbose, found_home, person
from nvtrader_pipelines.storage.home import Home

if TYPE_CHECKING:
    from nvtrader_pipelines.storage.audit_log import JsonlAudit

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit.")]
UNSAID = "no reason was given"


def halt(reason: Reason = UNSAID, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Stop trading at once, whatever trades: no order is placed any more, and what is open is cancelled."""
    from nvtrader_pipelines.storage.kill_switch import halt as engage

    with one_sentence(verbose=verbose):
        home = found_home()
        _say(home, engage(home, _audit(home), person(), reason, _now), as_json=as_json)


def resume(reason: Reason = UNSAID, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Let trading go on from the next step."""
    from nvtrader_pipelines.storage.kill_switch import resume as release

    with one_sentence(verbose=verbose):
        home = found_home()
        _say(home, release(home, _audit(home), person(), reason, _now), as_json=as_json)


def _now() -> datetime:
    """The time; taken here, since what else knows it takes seconds to import."""
    return datetime.now(UTC)


def _audit(home: Home) -> "JsonlAudit":
    from nvtrader_pipelines.storage.audit_log import JsonlAudit

    return JsonlAudit(home)


def _say(home: Home, sentence: str, *, as_json: bool) -> None:
    """What was done: red while trading is stopped, green while it is not."""
    from nvtrader_pipelines.storage.kill_switch import FileKillSwitch

    stopped = FileKillSwitch(home).engaged()
    if as_json:
        sys.stdout.write(json.dumps({"said": sentence, "kill_switch": stopped}, indent=1) + "\n")
        return
    style = "bold white on red" if stopped else "bold white on green"
    Console().print(sentence, style=style, markup=False, highlight=False, soft_wrap=True)
