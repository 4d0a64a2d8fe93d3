"""Pages of runs: the list, a run, its figures, and comparisons."""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from nvtrader_pipelines.components.document import frame_of
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.formats import annual_cell, difference_cells, sharpe_cells
from nvtrader_pipelines.evaluation.short_samples import short_note
from nvtrader_pipelines.runs.run_document import RunDocument, WindowsDocument
from nvtrader_pipelines.runs.run_queries import stage_rows
from nvtrader_pipelines.service.cli.family_commands import Answer
from nvtrader_pipelines.service.cli.output import (
    Format,
    format_cell,
    print_differences,
    print_line,
    print_part,
    print_table,
    print_title,
    write_rows,
)
from nvtrader_pipelines.service.cli.pages.world_pages import WORLD_FIGURES
from nvtrader_pipelines.service.cli.summary import COLUMNS, figure_cells, print_period, print_warnings
from nvtrader_pipelines.service.cli.table_layout import CellTable
from nvtrader_pipelines.service.consoles import wide_console

if TYPE_CHECKING:
    from nvtrader_pipelines.runs.run_charts import SharedSessionsDocument
    from nvtrader_pipelines.runs.run_comparison import ComparisonDocument
    from nvtrader_pipelines.runs.run_deletion import Deletion

FIGURES = tuple(name for name in COLUMNS[1:] if name != "openings")  # those are of the reported period only
RUN_FACTS = ("run_id", "partition_key", "kind", "parent_run_id", "status", "message", "source", "window_first",
             "window_last", "seeds", "finished_at", "deleted_at")  # fmt: skip
WINDOW_RETURNS = ("minimum", "lower_quartile", "median", "upper_quartile", "maximum")
ACCOUNT_STAGES = ("signal.emitted", "order.placed", "order.filled", "equity.update")
RUN_DETAILS = ("spec", "files", "events")
SHARED_COLUMNS = (
    "account",
    "net Sharpe",
    "less first",
    "difference 95 %",
    "CAGR",
    "volatility",
    "max DD",
    "total return",
)


def print_list(answer: Answer) -> None:
    """Print a line per run, the messages of failed and interrupted ones, and the warnings."""
    _print_runs(answer.document)
    print_warnings(answer.home.store, wide_console())


def _print_runs(runs: pl.DataFrame) -> None:
    lines = [
        {
            "run": short_id(run["run_id"]),
            "experiment": run["partition_key"],
            "net Sharpe, all tests": sharpe_cells(run)[0],
            "status": run["status"],
            "Sharpe 95 %": sharpe_cells(run)[1],
            "kind": f"{run['kind']}{', validation only' if run['validation_only'] else ''}",
            "window": format_window(run),
            "started": f"{run['started_at']:%Y-%m-%d %H:%M}",
            "parent": short_id(run["parent_run_id"] or ""),
        }
        for run in runs.iter_rows(named=True)
    ]
    if not lines:
        wide_console().print("no run yet: nvtrader materialize", style="dim")
        return
    write_rows(pl.DataFrame(lines), Format.TABLE)
    if note := short_note(runs["n_sessions"]):
        print_line(note, "dim")
    with_message = runs.filter(pl.col("message").is_not_null(), pl.col("status") != "deleted")
    for (status, message), ended in with_message.group_by("status", "message", maintain_order=True):
        print_line(f"{', '.join(map(short_id, ended['run_id']))} {status}: {message}")


def print_run(document: RunDocument, details: Collection[str] = ()) -> None:
    """Print a run: verdict, facts and figures, with `spec`, `files` and `events` among the details."""
    run = document.run.model_dump(mode="json")
    wide_console().print(f"{document.verdict}\n", style="bold")
    _print_facts({**{name: run[name] for name in RUN_FACTS}, **exposure_facts(document)})
    _print_facts({name: value or None for name, value in document.annotation if name != "run_id"})
    if "spec" in details:
        print_part("spec", _spec_rows(document.spec), "")
    if "files" in details:
        _print_facts({name: value for name, value in run.items() if name not in RUN_FACTS})
        print_part("policies", document.frame("policies"), "no trained policy yet")
        for line in document.views:
            print_line(f"  {line}")
    if "events" in details:
        events = document.frame("events")
        print_part("events", events if events.is_empty() else stage_rows(events), "no event yet")
    _print_results(document)
    for line in document.warnings:
        print_line(f"note: {line}", "yellow")
    hidden = [f"--{name}" for name in RUN_DETAILS if name not in details]
    if hidden:
        print_line(f"more: {', '.join(hidden)}", "dim")


def _print_results(document: RunDocument) -> None:
    if document.world_results:
        print_part("results", document.frame("world_results").select(WORLD_FIGURES), "")
    elif document.figures:
        print_figures(document.frame("figures"))
    else:
        print_part(
            "figures", pl.DataFrame(), "none: the run is deleted" if document.run.deleted_at else "no verdict yet"
        )


def exposure_facts(document: RunDocument) -> dict[str, str]:
    """Facts on leverage and guards of a run's account over all tests, where it has any."""
    facts = {}
    if leverage := document.leverage:
        gross = f"gross {leverage.mean_gross:.2f} on average, at most {leverage.max_gross:.2f}"
        facts["leverage"] = f"{gross}; financing {leverage.financing_per_year:.1%} a year"
    if guards := document.guards:
        shares = ", ".join(f"{name} {rate:.1%}" for name, rate in guards.rates.items())
        facts["guards"] = f"{shares} of {guards.n_decisions:,} decisions; scale {guards.mean_scale:.2f} on average"
    return facts


def _print_facts(facts: Mapping[str, Any]) -> None:
    """Print the facts that are known, a line each."""
    for name, value in facts.items():
        if value not in (None, {}, []):
            print_line(f"{name:<20} {_format_value(value)}")


def print_deletion(deletion: "Deletion") -> None:
    """Print what a deletion removes and keeps."""
    name = f"run {deletion.run.run_id} of {deletion.run.partition_key}"
    if deletion.is_empty:
        print_line(f"{name} was deleted on {deletion.run.deleted_at:%Y-%m-%d %H:%M}; there is nothing left to delete")
        return
    print_line(name)
    if deletion.n_files:
        print_line(f"  removes  {deletion.n_files} policy files, {deletion.n_bytes / 1e6:.1f} MB")
    for name, n_rows in deletion.rows.items():
        print_line(f"  removes  {n_rows:,} rows of {name}")
    for folder in deletion.pictures:
        print_line(f"  removes  pictures in {folder}")
    print_line("  removes  its MLflow run and its views")
    print_line(f"  keeps    {deletion.remainder}")


def print_walk(answer: Answer) -> None:
    """Print the account of a forward run, the figures, and how to show the run."""
    run, ledger = answer.document.run, answer.home.store.ledger
    if run.kind == "forward":
        events = ledger.events(run.run_id).filter(pl.col("stage").is_in(ACCOUNT_STAGES), task_id=run.task_id)
        print_part("the account", stage_rows(events).drop("fold", "seed"), "no session since its tests")
    print_figures(answer.document.frame("figures"))
    print_line(f"run {run.run_id}: nvtrader runs show {short_id(run.run_id)}")


def print_figures(figures: pl.DataFrame) -> None:
    """Print a table of figures per period."""
    console = wide_console()
    for period in figures["period"].unique(maintain_order=True) if len(figures) else ():
        console.print()
        print_period(figures.filter(pl.col("period") == period), period, console)


def print_comparison(comparison: "ComparisonDocument") -> None:
    """Print figures per run, figures over shared sessions, and differences of the specs."""
    columns = ("run", "experiment", *FIGURES, "kind", "status", "window", "best baseline")
    runs = [run.model_dump() for run in comparison.runs]
    cells = [
        (
            short_id(run["run_id"]),
            run["partition_key"],
            *_own_figures(run),
            run["kind"],
            run["status"],
            format_window(run),
            format_cell(run["best_baseline"]),
        )
        for run in runs
    ]
    print_table(CellTable(columns, cells, numeric=range(2, 2 + len(FIGURES))))
    if note := short_note(run["n_sessions"] for run in runs):
        print_line(note, "dim")
    _print_shared(comparison.shared)
    print_title("differences of the specs")
    first, *others = ((short_id(run["run_id"]), run["partition_key"]) for run in runs)
    for other in others:
        differences = frame_of([row for row in comparison.spec_differences if row.run == other[0]])
        print_differences(differences, " ".join(first), " ".join(other))
    print_line(f"picture  {comparison.shared.picture}" if comparison.shared.picture else str(comparison.shared.note))


def print_windows(document: WindowsDocument) -> None:
    """Print the distribution over all windows, the note on them and the path of the picture."""
    from nvtrader_pipelines.runs.run_pictures import windows_note

    n_sessions = document.n_sessions
    rows = (
        document.frame("accounts")
        .with_columns(
            pl.col("n_windows").map_elements("{:,}".format, pl.String),
            pl.col(WINDOW_RETURNS).map_elements("{:+.1%}".format, pl.String),
            pl.col("max_drawdown").map_elements("{:.1%}".format, pl.String),
        )
        .rename({"n_windows": "windows", "max_drawdown": "deepest drawdown"})
    )
    print_part(
        f"net returns of all windows of {n_sessions} sessions", rows.rename(lambda name: name.replace("_", " ")), ""
    )
    print_line(windows_note(n_sessions), "dim")
    print_line(f"picture  {document.picture}")


def _print_shared(shared: "SharedSessionsDocument") -> None:
    """Print the figures over the sessions that the runs share, if there are any."""
    rows = [row.model_dump() for row in shared.figures]
    if not rows:
        return
    cells = [
        (row["account"], annual_cell(row, "sharpe", ".2f"), *difference_cells(row), annual_cell(row, "cagr", ".1%"),
         annual_cell(row, "volatility", ".1%"), f"{row['max_drawdown']:.0%}", f"{row['total_return']:+.1%}")
        for row in rows
    ]  # fmt: skip
    wide_console().print()
    title = f"{rows[0]['n_sessions']:,} shared sessions ({rows[0]['first_session']} to {rows[0]['last_session']})"
    print_table(CellTable(SHARED_COLUMNS, cells, numeric=range(1, len(SHARED_COLUMNS))), f"{title}, net of costs")
    if note := short_note(row["n_sessions"] for row in rows):
        print_line(note, "dim")


def _own_figures(run: Mapping[str, Any]) -> list[str]:
    """Cells of a run's figures; empty without a verdict."""
    cells = dict(zip(COLUMNS, figure_cells({**run, "policy": ""}), strict=True)) if run["n_sessions"] else {}
    return [cells.get(name, "") for name in FIGURES]


def format_window(run: Mapping[str, Any]) -> str:
    """Format the first and the last session of a run."""
    return f"{run['window_first']} to {run['window_last']}" if run["window_first"] else ""  # of a world without days


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps({name: round(item, 4) if isinstance(item, float) else item for name, item in value.items()})
    return json.dumps(value) if isinstance(value, list) else str(value)


def _spec_rows(spec: Mapping[str, Any], prefix: str = "") -> pl.DataFrame:
    """Rows of field and value of a nested document."""
    rows: list[tuple[str, str]] = []
    for name, value in spec.items():
        if isinstance(value, dict):
            rows += _spec_rows(value, f"{prefix}{name}.").rows()
        else:
            rows.append((f"{prefix}{name}", json.dumps(value)))
    return pl.DataFrame(rows, schema={"field": pl.String, "value": pl.String}, orient="row")


PAGES = {
    "list": print_list,
    "curves": lambda answer: write_rows(answer.document.frame(), Format.TABLE),
    "compare": lambda answer: print_comparison(answer.document),
    "windows": lambda answer: print_windows(answer.document),
    "replay": print_walk,
    "forward": print_walk,
}
