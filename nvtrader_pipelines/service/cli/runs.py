"""`nvtrader runs`: list, show, compare, replay, and walk forward over sessions since the tests."""

import json
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.cli.errors import one_sentence
from nvtrader_pipelines.service.cli.options import (
    EPILOG,
    AsJson,
    Form,
    Verbose,
    chosen_form,
    open_store,
    refuse_options_before_command,
)
from nvtrader_pipelines.service.cli.tables import Format, print_part, wide_console, write_rows
from nvtrader_pipelines.storage.store import Store

if TYPE_CHECKING:
    from nvtrader_pipelines.experiments.progress import Progress

app = typer.Typer(help="What was run, and what came of it.", epilog=EPILOG)
Prefix = Annotated[str, typer.Argument(metavar="RUN", help="The beginning of a run's id, or an experiment's name.")]
OF_AN_ACCOUNT = ("signal.emitted", "order.placed", "order.filled", "equity.update")


@app.callback(invoke_without_command=True, epilog=EPILOG)
def runs(
    context: typer.Context, *, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List every run, newest first, with its net Sharpe ratio; or do something with one."""
    refuse_options_before_command(context)
    if context.invoked_subcommand is None:
        list_(form=form, as_json=as_json, verbose=verbose)


@app.command("list", epilog=EPILOG)
def list_(*, form: Form = Format.TABLE, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List every run, newest first, with its net Sharpe ratio."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_runs
    from nvtrader_pipelines.service.cli.summary import print_notes
    from nvtrader_pipelines.service.documents.run_facts import listed_runs

    with one_sentence(verbose=verbose):
        store = _current_store()
        rows = listed_runs(store)
        if chosen_form(form, as_json=as_json) is Format.TABLE:
            print_runs(rows)
            print_notes(store, wide_console())
        else:
            write_rows(rows, chosen_form(form, as_json=as_json))


@app.command(epilog=EPILOG)
def show(run: Prefix, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Show one run: its version, data, policies by digest, figures, events and views."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_run
    from nvtrader_pipelines.service.documents.run_facts import described, named_run

    with one_sentence(verbose=verbose):
        store = _current_store()
        document = described(store, named_run(store.ledger, run))
        if as_json:
            _write_json(document)
        else:
            print_run(document)


@app.command(epilog=EPILOG)
def compare(
    run: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or more, as `show` takes them.")],
    *,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show runs side by side: their figures, and where their specs differ from the first one's."""
    from nvtrader_pipelines.service.cli.pages.run_pages import print_comparison
    from nvtrader_pipelines.service.documents.run_facts import compared, named_run, spec_differences

    with one_sentence(verbose=verbose):
        if len(run) < 2:
            raise ValueError("a comparison needs two runs or more; name another (see `nvtrader runs`)")
        store = _current_store()
        found = [named_run(store.ledger, each) for each in run]
        if len({each.run_id for each in found}) < len(found):
            raise ValueError("a comparison needs different runs, but one is named twice; see `nvtrader runs`")
        table, differ = compared(store, found), spec_differences(store.ledger, found)
        if as_json:
            _write_json({"runs": table.to_dicts(), "spec_differences": differ.to_dicts()})
        else:
            print_comparison(table, differ)


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
    from nvtrader_pipelines.runs.launch import replay_run, replay_window
    from nvtrader_pipelines.runs.lifecycle import Launch
    from nvtrader_pipelines.service.documents.run_facts import trained_run

    with one_sentence(verbose=verbose):
        store = _current_store()
        days = (first.date() if first else None, last.date() if last else None)
        run_id = trained_run(store, run).run_id
        window = replay_window(store, run_id, days)
        _execute(store, replay_run(store, run_id, Launch(uuid4().hex), window, pinned=pinned), as_json=as_json)


@app.command(epilog=EPILOG)
def forward(run: Prefix, *, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Walk a run's last policies on over every session since its tests, as one more run; no order is placed.

    It tells whether a policy has held up since, and keeps no account. `nvtrader trade` trades: the active policy, by
    plans that compliance looks at, orders and an account that goes on.
    """
    from nvtrader_pipelines.runs.launch import forward_run
    from nvtrader_pipelines.runs.lifecycle import Launch
    from nvtrader_pipelines.service.documents.run_facts import trained_run

    with one_sentence(verbose=verbose):
        store = _current_store()
        run_id = trained_run(store, run).run_id
        _execute(store, forward_run(store, run_id, Launch(uuid4().hex)), as_json=as_json)


def _current_store() -> Store:
    """Open the store, and mark the runs whose process has ended as interrupted."""
    import polars as pl

    store = open_store()
    store.ledger.close_interrupted()
    left = store.ledger.runs().filter(pl.col("status") == "running", pl.col("dagster_run_id").is_not_null())
    if len(left):  # Dagster knows, and it takes seconds to ask
        from nvtrader_pipelines.orchestration.instance import open_instance

        open_instance(store).dispose()
    return store


def _execute(store: Store, steps: "Iterable[Progress]", *, as_json: bool) -> None:
    """Follow a run to its end, publish the views, and show what came of it."""
    import polars as pl

    from nvtrader_pipelines.service.cli.pages.run_pages import print_figures
    from nvtrader_pipelines.service.cli.watching import follow, watching
    from nvtrader_pipelines.service.documents.run_facts import figures, stages
    from nvtrader_pipelines.storage.views import publish

    with watching(wide_console(), quiet=as_json) as watch:
        run_id = follow(steps, watch)
    publish(store)
    run, verdict = store.ledger.run(run_id), figures(store, run_id)
    if as_json:
        _write_json({"run": run.model_dump(mode="json"), "figures": verdict.to_dicts()})
        return
    if run.kind == "forward":
        told = store.ledger.events(run_id).filter(
            pl.col("task_id") == run.task_id, pl.col("stage").is_in(OF_AN_ACCOUNT)
        )
        print_part("the account", stages(told).drop("fold", "seed"), "no session since the tests")
    print_figures(verdict)
    wide_console().print(f"run {run_id}: nvtrader runs show {short_id(run_id)}", highlight=False)


def _write_json(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, indent=1, default=str) + "\n")
