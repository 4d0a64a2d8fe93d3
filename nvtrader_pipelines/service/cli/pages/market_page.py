"""Page of the ingested market."""

from collections.abc import Sequence

import polars as pl
from rich.console import Console

from nvtrader_pipelines.evaluation.formats import pluralize
from nvtrader_pipelines.runs.market_summary import MarketSummary
from nvtrader_pipelines.service.cli.output import print_line, print_sentences, print_table
from nvtrader_pipelines.service.cli.table_layout import CellTable

MAX_FILES, MAX_NOTES, MAX_SYMBOLS, MAX_REASONS, MAX_WARNINGS = 10, 5, 12, 5, 20  # shown; the rest is counted
MAX_VALUE = 60  # characters of a refused value, which may be a whole line
BLOCKS = "\u00b7\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # dot, then an eighth to full height
NEXT = (
    'nvtrader sql "SELECT file, line, symbol, date, rule, value, reason FROM silver.quarantine ORDER BY file, line"',
    'nvtrader sql "SELECT symbol, year, count(*) AS bars FROM silver.clean_bars GROUP BY ALL ORDER BY ALL"',
)


def print_market(summary: MarketSummary, console: Console, more_warnings: Sequence[str] = ()) -> None:
    """Print files, notes, symbols with their coverage, reasons, warnings, and the SQL that shows more."""
    _print_files(summary.files, console)
    for note in summary.notes[:MAX_NOTES]:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    _print_rest(len(summary.notes), MAX_NOTES, "notes", console)
    _print_symbols(summary, console)
    if len(summary.reasons):
        _print_reasons(summary.reasons, console)
    warnings = (*more_warnings, *summary.warnings)
    for warning in warnings[:MAX_WARNINGS]:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    _print_rest(len(warnings), MAX_WARNINGS, "warnings", console)
    console.print("\nsee more")
    for line in NEXT:
        console.print(f"  {line}", soft_wrap=True)


def print_unchanged(summary: MarketSummary) -> None:
    """Print the extent of a market that has nothing new."""
    symbols = summary.symbols.filter(pl.col("n_kept") > 0)
    span = f"{symbols['first'].min()} to {symbols['last'].max()}"
    print_line(f"nothing new: {pluralize(len(symbols), 'symbol')}, {span}; `nvtrader ingest --json` shows them")


def draw_coverage(shares: Sequence[float] | None) -> str:
    """Draw the share of sessions with a bar, a block per year: a dot for none, full for all."""
    full = len(BLOCKS) - 1
    return "".join(
        BLOCKS[full if share >= 1.0 else 0 if share <= 0.0 else max(1, int(share * full))] for share in shares or ()
    )


def _print_files(files: pl.DataFrame, console: Console) -> None:
    counts = ["n_symbols", "n_rows", "n_kept", "n_refused", "n_repeated"]
    cells = [
        [file, *(f"{row[name]:,}" for name in counts)]
        for row in files.head(MAX_FILES).rows(named=True)
        for file in [row["file"]]
    ]
    title = f"\nmarket: {pluralize(len(files), 'file')}, {files['n_rows'].sum():,} rows, {files['n_kept'].sum():,} kept"
    print_table(
        CellTable(["file", "symbols", "rows", "kept", "refused", "repeated"], cells, range(1, 6)), title, console
    )
    _print_rest(len(files), MAX_FILES, "files", console)


def _print_symbols(summary: MarketSummary, console: Console) -> None:
    symbols = summary.symbols
    cells = [
        [
            row["symbol"],
            str(row["first"] or ""),
            str(row["last"] or ""),
            *(f"{row[name]:,}" for name in ("n_kept", "n_missing", "n_refused")),
            draw_coverage(row["coverage"]),
        ]
        for row in symbols.head(MAX_SYMBOLS).rows(named=True)
    ]
    columns = ["symbol", "first", "last", "kept", "missing", "refused", f"bars per year from {summary.first_year}"]
    print_table(CellTable(columns, cells, range(3, 6)), f"\n{len(symbols):,} symbols, most refused first", console)
    _print_rest(len(symbols), MAX_SYMBOLS, "symbols", console)


def _print_reasons(reasons: pl.DataFrame, console: Console) -> None:
    cells = [
        [
            f"{row['n_rows']:,}",
            row["rule"],
            f"{row['file']}:{row['line']}",
            (row["value"] or "")[:MAX_VALUE],
        ]
        for row in reasons.head(MAX_REASONS).rows(named=True)
    ]
    print_table(CellTable(["rows", "rule", "first at", "found"], cells, [0]), "\nrefused or repeated", console)
    shown = reasons.head(MAX_REASONS).select(pl.format("{}:{}", "file", "line"), "reason")
    print_sentences(shown.iter_rows(), console)
    _print_rest(len(reasons), MAX_REASONS, "reasons", console)


def _print_rest(count: int, shown: int, things: str, console: Console) -> None:
    if count > shown:
        console.print(f"\u2026 {count - shown:,} more {things}; `nvtrader ingest --json` shows all", style="dim")
