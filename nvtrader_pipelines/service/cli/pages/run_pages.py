"""Pages of runs: the list, a run, its figures, and comparisons."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from nvtrader_pipelines.components.ids import short_id
from nvtrader_pipelines.service.cli.output import (
    Format,
    format_cell,
    print_line,
    print_part,
    print_title,
    wide_console,
    write_rows,
)
from nvtrader_pipelines.service.cli.summary import COLUMNS, figure_cells, format_sharpe, period_table
from nvtrader_pipelines.service.documents.run_facts import stage_rows

if TYPE_CHECKING:
    from nvtrader_pipelines.orchestration.run_deletion import Deletion

FIGURES = COLUMNS[1:]


def print_runs(runs: pl.DataFrame) -> None:
    """Print a line per run, and the messages of failed and interrupted ones."""
    lines = [
        {
            "run": short_id(run["run_id"]),
            "kind": f"{run['kind']}{', validation only' if run['validation_only'] else ''}",
            "status": run["status"],
            "experiment": run["partition_key"],
            "window": format_window(run),
            "parent": short_id(run["parent_run_id"] or ""),
            "net Sharpe [95 %]": format_sharpe(run),
            "started": f"{run['started_at']:%Y-%m-%d %H:%M}",
        }
        for run in runs.iter_rows(named=True)
    ]
    if not lines:
        wide_console().print("no run yet: nvtrader materialize", style="dim")
        return
    write_rows(pl.DataFrame(lines), Format.TABLE)
    for run in runs.filter(pl.col("message").is_not_null()).iter_rows(named=True):
        print_line(f"{short_id(run['run_id'])} {run['status']}: {run['message']}")


def print_run(document: Mapping[str, Any]) -> None:
    """Print a run: facts, spec, policies, figures, events, views and warnings."""
    for name, value in document["run"].items():
        if value not in (None, {}, []):
            print_line(f"{name:<20} {_format_value(value)}")
    print_part("spec", _spec_rows(document["spec"]), "")
    print_part("policies", pl.DataFrame(document["policies"]), "no trained policy yet")
    if document["figures"]:
        print_figures(pl.DataFrame(document["figures"], infer_schema_length=None))
    else:
        print_part("figures", pl.DataFrame(), "no verdict yet")
    events = pl.DataFrame(document["events"], infer_schema_length=None)
    print_part("events", events if events.is_empty() else stage_rows(events), "no event yet")
    for title in ("views", "warnings"):
        if document[title]:
            print_title(title)
            for line in document[title]:
                print_line(f"  {line}")


def print_deletion(deletion: "Deletion") -> None:
    """Print what a deletion removes and keeps."""
    print_line(f"run {deletion.run.run_id} of {deletion.run.partition_key}")
    if deletion.n_files:
        print_line(f"  removed  {deletion.n_files} policy files, {deletion.n_bytes / 1e6:.1f} MB")
    for name, n_rows in deletion.rows.items():
        print_line(f"  removed  {n_rows:,} rows of {name}")
    for folder in deletion.pictures:
        print_line(f"  removed  pictures in {folder}")
    print_line("  removed  its MLflow run and its views")
    print_line(f"  kept     {deletion.kept}")


def print_figures(figures: pl.DataFrame) -> None:
    """Print a table of figures per period."""
    console = wide_console()
    for period in figures["period"].unique(maintain_order=True) if len(figures) else ():
        console.print()
        console.print(period_table(figures.filter(pl.col("period") == period), period))


def print_comparison(runs: pl.DataFrame, differ: pl.DataFrame) -> None:
    """Print runs side by side, a column each, and the differences of their specs."""
    columns: dict[str, list[str]] = {"": ["experiment", "kind", "window", *FIGURES, "best baseline"]}
    for run in runs.iter_rows(named=True):
        has_verdict = run["sharpe"] is not None
        own = (
            [*figure_cells({**run, "policy": ""})[1:], format_cell(run["best_baseline"])]
            if has_verdict
            else [""] * (len(FIGURES) + 1)
        )
        columns[short_id(run["run_id"])] = [run["partition_key"], run["kind"], format_window(run), *own]
    write_rows(pl.DataFrame(columns), Format.TABLE)
    first = short_id(runs["run_id"][0])
    print_part("differences of the specs", differ.rename({"left": first, "right": "other"}), "the specs are the same")


def format_window(run: Mapping[str, Any]) -> str:
    """Format the first and the last session of a run."""
    return f"{run['window_first']} to {run['window_last']}"


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps({name: round(each, 4) if isinstance(each, float) else each for name, each in value.items()})
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
