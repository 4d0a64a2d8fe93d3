"""Sharpe ratio curve: every completed run and trial, ranked."""

from typing import Any

from nvtrader_pipelines.evaluation.findings import MIN_DEFLATED, format_probability
from nvtrader_pipelines.runs.ratio_views import DRAWN, read_ratio_views
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render

MAX_ROWS = 100  # of a table


def read_review(shared: Context) -> Content:
    """Read the ratio curve, as a view per market and period."""
    views = read_ratio_views(shared.store)
    values = {"views": views, "probability": format_probability, "max_rows": MAX_ROWS, "min_deflated": MIN_DEFLATED}
    rows = tuple(_point(entry, view.name) for view in views for entry in view.rows)
    n_entries = len({(entry["run_id"], entry["experiment"]) for view in views for entry in view.rows})
    return Content(
        {name: render(name, **values) for name in ("periods", "verdicts", "ranked")},
        {"ratio": Series("ratio", rows, {"min_deflated": MIN_DEFLATED})},
        {"entries": str(n_entries) if n_entries else ""},
    )


def _point(row: dict[str, Any], view: str) -> dict[str, Any]:
    values = {name: row[name] for name in DRAWN}
    values |= {"source": row["market"], "finished_at": row["finished_at"].isoformat()}
    return {"id": f"{view}/{row['run_id'] or row['experiment']}", "view": view, **values}
