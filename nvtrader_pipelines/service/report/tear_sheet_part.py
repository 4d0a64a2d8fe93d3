"""Part of the report with the tear sheets of the best ranked policies."""

import polars as pl

from nvtrader_pipelines.evaluation.tear_sheet import TearSheet
from nvtrader_pipelines.figures.tear_sheet_figure import MONTHS, STRONG_MONTH, STRONG_YEAR, rolling_figure
from nvtrader_pipelines.service.report.cell_formats import format_number
from nvtrader_pipelines.service.report.contents import Grid, Part, Plot
from nvtrader_pipelines.service.report.evidence import Evidence
from nvtrader_pipelines.storage.tables import EQUITY_CURVES

CAPTION = (
    "Over the last 126 sessions: Sharpe ratio, volatility and one-way turnover, each per year; exposure is the "
    "gross, the sum of absolute weights, at every close."
)


def tear_sheets(evidence: Evidence) -> Part:
    """Part with monthly returns, worst drawdowns and rolling figures of each policy."""
    where = {"run_id": evidence.best_runs["run_id"].to_list(), "kind": ["ensemble"]}
    curves = evidence.store.tables.read(EQUITY_CURVES, where).partition_by("run_id", as_dict=True)
    calendars = evidence.store.read_calendars()
    parts = [
        tear_sheet_part(TearSheet.of(curves[(run_id,)], calendars.of(source).periods_per_year), label, key)
        for run_id, source, label, key in evidence.best_runs.select(
            "run_id", "source", "label", "partition_key"
        ).iter_rows()
        if (run_id,) in curves
    ]
    lead = (
        "Each policy by itself over its tests, net of costs. nvtrader policies tear-sheet NAME writes one as a picture."
    )
    return Part("tear-sheets", "Tear sheets", lead, parts=parts, sentences=evidence.omitted_runs_note if parts else [])


def tear_sheet_part(sheet: TearSheet, label: str, key: str) -> Part:
    """Part with the tear sheet of one policy."""
    first, last = sheet.by_session.select(first=pl.col("session").min(), last=pl.col("session").max()).row(0)
    picture = rolling_figure(sheet, f"{label}: rolling figures and exposure").svg()
    return Part(
        f"tear-sheet-{key}",
        f"{label}, {first} to {last}",
        "",
        [month_grid(sheet), drawdown_grid(sheet)],
        [Plot(f"{label}: rolling figures", f"{label}. {CAPTION}", picture)],
    )


def month_grid(sheet: TearSheet) -> Grid:
    """Grid of returns in percent, a row per year and a column per month, shaded by size."""
    months = {(year, month): value for year, month, value in sheet.monthly.iter_rows()}
    rows, shades = [], []
    for year, total in sheet.yearly.iter_rows():
        values = [months.get((year, month)) for month in range(1, len(MONTHS) + 1)]
        rows.append([str(year), *("" if value is None else format_percent(value) for value in (*values, total))])
        shades.append([0.0, *((value or 0.0) / STRONG_MONTH for value in values), total / STRONG_YEAR])
    return Grid("Returns by month, in percent", ["year", *MONTHS, "whole year"], rows, shades=shades)


def drawdown_grid(sheet: TearSheet) -> Grid:
    """Grid of the worst drawdowns, the deepest first."""
    rows = [
        [str(i), f"{row['depth']:.1%}", str(row["start"]), str(row["trough"]), str(row["recovery"] or "not yet"),
         f"{row['n_sessions']:,}"]
        for i, row in enumerate(sheet.drawdowns.iter_rows(named=True), 1)
    ]  # fmt: skip
    columns = ["", "depth", "start", "trough", "recovery", "sessions below the peak"]
    return Grid("Worst drawdowns", columns, rows)


def format_percent(value: float) -> str:
    """Format a fraction as percent without the sign, never as minus zero."""
    return format_number(round(100.0 * value, 1) + 0.0, ".1f")
