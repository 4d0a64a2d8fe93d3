"""Page of the comparison of a run's guards."""

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.evaluation.guard_comparison import GuardSlice
from nvtrader_pipelines.evaluation.guard_telemetry import GuardTelemetry
from nvtrader_pipelines.service.cli.output import format_cell, print_line, print_lines, print_table
from nvtrader_pipelines.service.cli.table_layout import CellTable
from nvtrader_pipelines.service.documents.guard_facts import GuardsDocument

MAX_SLICES = 8  # of the page, which fits a screen
DIFFERENCES = ("mean over slices", "return", "95 %", "deepest drawdown", "its 95 %")
SLICES = (
    *("start", "end", "guarded", "unguarded", "baseline", "max DD", "unguarded max DD"),
    *("dd/neg/turn/shut %", "mean scale", "least scale", "mean gross", "max gross", "penalty share", "penalty"),
)


def print_guards(document: GuardsDocument) -> None:
    """Print the verdict, the telemetry, and the slices in which the guards changed the return most."""
    slices = document.slices
    print_line(f"{document.partition_key}: {document.readiness}; {document.reason}", "bold")
    print_line(
        f"run {short_id(document.run_id)}, {len(slices)} slices of {document.n_sessions} sessions from "
        f"{slices[0].first_session} to {slices[-1].last_session}; baseline {document.baseline}"
        f"{', the best in hindsight' if document.is_best_baseline else ''}"
    )
    differences = {
        "guarded less unguarded": (document.return_difference, document.drawdown_difference),
        "guarded less baseline": (document.baseline_return_difference, document.baseline_drawdown_difference),
    }
    cells = [
        (
            name,
            *(
                cell
                for estimate in pair
                for cell in (f"{estimate.point:+.2%}", f"{estimate.low:+.2%} to {estimate.high:+.2%}")
            ),
        )
        for name, pair in differences.items()
    ]
    print_table(CellTable(DIFFERENCES, cells, numeric=range(1, len(DIFFERENCES))))
    _print_telemetry(document.telemetry)
    largest = sorted(slices, key=lambda window: -abs(window.guarded_return - window.unguarded_return))[:MAX_SLICES]
    cells = [_slice_cells(window) for window in sorted(largest, key=lambda window: window.first_session)]
    title = f"the {MAX_SLICES} slices that the guards changed most; --json has all {len(slices)}"
    print_table(
        CellTable(SLICES, cells, numeric=range(2, len(SLICES))), title if len(slices) > MAX_SLICES else "slices"
    )
    if document.picture:
        print_line(f"picture  {document.picture}")


def _print_telemetry(telemetry: GuardTelemetry) -> None:
    """Print the figures of the guards over all slices."""
    rates = ", ".join(f"{name} {rate:.1%}" for name, rate in telemetry.rates.items())
    mean = "" if telemetry.mean_penalty is None else f", by {format_cell(telemetry.mean_penalty)} on average"
    lines = {
        "fired": f"{rates} of {telemetry.n_decisions:,} decisions",
        "scale": f"{telemetry.mean_scale:.3f} on average, at least {telemetry.min_scale:.3f}",
        "turnover penalty": f"replaced in {telemetry.penalty_rate:.1%} of decisions{mean}",
        "gross": f"{telemetry.mean_gross:.3f} on average, at most {telemetry.max_gross:.3f}",
    }
    print_lines(lines)


def _slice_cells(row: GuardSlice) -> tuple[str, ...]:
    """Cells of `SLICES`."""
    telemetry = row.telemetry
    return (
        str(row.first_session),
        str(row.last_session),
        *(f"{value:+.1%}" for value in (row.guarded_return, row.unguarded_return, row.baseline_return)),
        *(f"{value:.1%}" for value in (row.guarded_drawdown, row.unguarded_drawdown)),
        "/".join(f"{100.0 * rate:.0f}" for rate in telemetry.rates.values()),
        *(f"{value:.2f}" for value in (telemetry.mean_scale, telemetry.min_scale)),
        *(f"{value:.2f}" for value in (telemetry.mean_gross, telemetry.max_gross)),
        f"{telemetry.penalty_rate:.0%}",
        format_cell(telemetry.mean_penalty),
    )


PAGES = {"compare": lambda answer: print_guards(answer.document)}
