"""`nvtrader runs`: list, show, compare, replay, and carry on as a paper account."""

import json
import sys
from datetime import datetime
from typing import Annotated, Any
from uuid import uuid4

import polars as pl
import typer

from nvtrader_pipelines.service.errors import one_sentence
from nvtrader_pipelines.service.options import EPILOG, AsJson, Form, Verbose, found_home
from nvtrader_pipelines.service.tables import Format, wide_console, write_rows

app = typer.Typer(help="What was run, and what came of it.", epilog=EPILOG)
Prefix = Annotated[str, typer.Argument(metavar="RUN", help="The beginning of a run's id, or an experiment's name.")]
LEFT_OUT = ("source", "finished_at", "sharpe_low", "sharpe_high")  # for ids that are not folded in a terminal


@app.callback(invoke_without_command=True, epilog=EPILOG)
def runs(context: typer.Context, *, form: Form = Format.TABLE, verbose: Verbose = False) -> None:
    """List every run, newest first, with its net Sharpe ratio; or do something with one."""
    if context.invoked_subcommand is None:
        list_(form=form, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(*, form: Form = Format.TABLE, verbose: Verbose = False) -> None:
    """List every run, newest first, with its net Sharpe ratio."""
    from nvtrader_pipelines.service.run_facts import listed_runs
    from nvtrader_pipelines.service.summary import print_notes
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        home = found_home()
        ledger = Ledger.open(home)
        ledger.close_interrupted()
        rows = listed_runs(Warehouse(home), ledger)
        write_rows(rows.drop(LEFT_OUT) if form is Format.TABLE else rows, form)
        if form is Format.TABLE:
            print_notes(home, wide_console())


@app.command(epilog=EPILOG)
def show(run: Prefix, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show one run: its version, data, policies by digest, events, figures and views."""
    from nvtrader_pipelines.service.run_facts import described, named_run
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        home = found_home()
        ledger = Ledger.open(home)
        document = described(Warehouse(home), ledger, named_run(ledger, run))
        if as_json:
            _write_json(document)
        else:
            _print_run(document)


@app.command(epilog=EPILOG)
def compare(
    run: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or more, by their ids.")],
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show runs side by side: their figures, and where their specs differ from the first one's."""
    from nvtrader_pipelines.service.run_facts import compared, named_run, spec_differences
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        if len(run) < 2:
            raise ValueError("a comparison needs two runs or more; name another (see `nvtrader runs`)")
        home = found_home()
        ledger = Ledger.open(home)
        found = [named_run(ledger, each) for each in run]
        if len({each.run_id for each in found}) < len(found):
            raise ValueError("a comparison needs different runs, but one is named twice; see `nvtrader runs`")
        table, differ = compared(Warehouse(home), found), spec_differences(ledger, found)
        if as_json:
            _write_json({"figures": table.to_dicts(), "spec_differences": differ.to_dicts()})
        else:
            write_rows(table, Format.TABLE)
            _print_part("where the specs differ from the first run's", differ, "the specs are the same")


@app.command(epilog=EPILOG)
def replay(
    run: Prefix,
    *,
    first: Annotated[
        datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day; else its tests' first.")
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day; else its tests' last.")
    ] = None,
    pinned: Annotated[
        bool, typer.Option("--pinned", help="On the market the run recorded, not the present one.")
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Walk a run's own policies through another window, or through its own again."""
    from nvtrader_pipelines.service.run_facts import named_run
    from nvtrader_pipelines.storage.execution import replay_run, replay_window
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.recording import Launch
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        home = found_home()
        lake, ledger = Warehouse(home), Ledger.open(home)
        days = (first.date() if first else None, last.date() if last else None)
        run_id = named_run(ledger, run).run_id
        window = replay_window(lake, ledger, run_id, days)
        _execute(home, replay_run(lake, ledger, run_id, Launch(uuid4().hex), window, pinned=pinned), as_json=as_json)


@app.command(epilog=EPILOG)
def paper(run: Prefix, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Carry a run's last policies on over every session since its tests, on a paper account."""
    from nvtrader_pipelines.service.run_facts import named_run
    from nvtrader_pipelines.storage.execution import paper_run
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.recording import Launch
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with one_sentence(verbose=verbose):
        home = found_home()
        lake, ledger = Warehouse(home), Ledger.open(home)
        _execute(home, paper_run(lake, ledger, named_run(ledger, run).run_id, Launch(uuid4().hex)), as_json=as_json)


def _execute(home: Any, steps: Any, *, as_json: bool) -> None:
    """Follow a run to its end, publish the views, and show what came of it."""
    from nvtrader_pipelines.service.run_facts import FIGURES, figures
    from nvtrader_pipelines.service.watching import follow, watching
    from nvtrader_pipelines.storage.ledger import Ledger
    from nvtrader_pipelines.storage.views import publish
    from nvtrader_pipelines.storage.warehouse import Warehouse

    with watching(wide_console(), quiet=as_json) as watch:
        run_id = follow(steps, watch)
    lake = Warehouse(home)
    publish(lake)
    verdict = figures(lake, run_id).select("policy", "kind", *FIGURES)
    if as_json:
        run = Ledger.open(home).find_run(run_id)
        _write_json({"run": run.model_dump(mode="json"), "figures": verdict.to_dicts()})
    else:
        write_rows(verdict, Format.TABLE)
        wide_console().print(f"run {run_id}: nvtrader runs show {run_id[:8]}", highlight=False)


def _write_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")


def _print_run(document: dict[str, Any]) -> None:
    from nvtrader_pipelines.service.run_facts import stages

    console = wide_console()
    for name, value in document["run"].items():
        if value not in (None, {}, []):
            text = json.dumps(value) if isinstance(value, dict | list) else str(value)
            console.print(f"{name:<20} {text}", markup=False, highlight=False, soft_wrap=True)
    _print_part("spec", _spec_rows(document["spec"]), "")
    _print_part("policies", pl.DataFrame(document["policies"]), "no policy is trained yet")
    _print_part("figures", pl.DataFrame(document["figures"]), "no verdict yet")
    _print_part("what happened", stages(document["events"]), "nothing yet")
    for title in ("views", "warnings"):
        if document[title]:
            console.print(f"\n{title}", style="bold")
            for line in document[title]:
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _spec_rows(spec: dict[str, Any], prefix: str = "") -> pl.DataFrame:
    """Each field of a nested document and its value."""
    rows: list[tuple[str, str]] = []
    for name, value in spec.items():
        if isinstance(value, dict):
            rows += _spec_rows(value, f"{prefix}{name}.").rows()
        else:
            rows.append((f"{prefix}{name}", json.dumps(value)))
    return pl.DataFrame(rows, schema={"field": pl.String, "value": pl.String}, orient="row")


def _print_part(title: str, rows: pl.DataFrame, otherwise: str) -> None:
    console = wide_console()
    console.print(f"\n{title}", style="bold")
    if rows.is_empty():
        console.print(otherwise, style="dim")
    else:
        write_rows(rows, Format.TABLE)
