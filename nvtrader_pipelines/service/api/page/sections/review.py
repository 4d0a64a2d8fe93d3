"""Sharpe ratio curve: every completed run and trial, ranked."""

from dataclasses import dataclass, replace
from typing import Any

from nvtrader_pipelines.promotion.findings import MIN_DEFLATED, describe_period, format_probability
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, Series, render
from nvtrader_pipelines.service.documents.universes import with_market
from nvtrader_pipelines.storage.tables import RATIO_CURVE

MAX_ROWS = 100  # of a table
VALIDATION = "validation"  # period of a trial
NAMES = (
    *("kind", "run_id", "spec_hash", "session_id", "trial_id", "experiment", "source", "period", "finished_at"),
    *("sharpe", "sharpe_low", "sharpe_high", "max_drawdown", "deflated_sharpe"),
    *("best_baseline", "information_ratio", "deflated_information_ratio", "note"),
)


@dataclass(frozen=True)
class View:
    """Entries of the ratio curve over the same sessions."""

    name: str
    title: str
    rows: list[dict[str, Any]]  # best first

    @property
    def highest(self) -> float | None:
        """Highest deflated ratio of a run over its best baseline; None if none is known."""
        return max(
            (value for row in self.rows if (value := row["deflated_information_ratio"]) is not None), default=None
        )


def read_review(shared: Context) -> Content:
    """Read the ratio curve, as a view per market and period."""
    curve = shared.store.tables.read(RATIO_CURVE, columns=NAMES).sort("finished_at")
    entries = with_market(shared.store, curve).to_dicts()
    views = ratio_views(entries)
    values = {"views": views, "probability": _probability, "max_rows": MAX_ROWS, "min_deflated": MIN_DEFLATED}
    rows = tuple(_point(entry, view.name) for view in views for entry in view.rows)
    n_entries = len({(entry["run_id"], entry["experiment"]) for entry in entries})
    return Content(
        {name: render(name, **values) for name in ("periods", "verdicts", "ranked")},
        {"ratio": Series("ratio", rows, {"min_deflated": MIN_DEFLATED})},
        {"entries": str(n_entries) if n_entries else ""},
    )


def ratio_views(entries: list[dict[str, Any]]) -> list[View]:
    """Views with their entries, best first; trials are with the runs over the sessions before the reported ones.

    Different markets are never ranked together.
    """
    markets = list(dict.fromkeys(entry["market"] for entry in entries))
    parts = [[entry for entry in entries if entry["market"] == market] for market in markets]
    views = [_market_views(part, f"{i}-" if i else "") for i, part in enumerate(parts)]
    if len(markets) == 1:
        return views[0]
    return [
        replace(view, title=f"{market}: {view.title}")
        for market, of_market in zip(markets, views, strict=True)
        for view in of_market
    ]


def _market_views(entries: list[dict[str, Any]], prefix: str) -> list[View]:
    scored = [entry for entry in entries if entry["sharpe"] is not None]
    periods = {entry["period"] for entry in scored if entry["kind"] == "run"}
    tuned = {period for period in periods if period.startswith("before_")}
    titles = {"tuned": "Before the reported sessions: runs and trials"}
    titles |= {name: f"{describe_period(name).capitalize()}: runs" for name in sorted(periods - tuned, reverse=True)}
    chosen = {name: {name} for name in titles} | {"tuned": {*tuned, VALIDATION}}
    views = [
        View(
            f"{prefix}{name}",
            title,
            sorted((e for e in scored if e["period"] in chosen[name]), key=lambda row: -row["sharpe"]),
        )
        for name, title in titles.items()
    ]
    return [view for view in views if view.rows]


def _probability(value: float) -> str:
    return format_probability(value, MIN_DEFLATED)


def _point(row: dict[str, Any], view: str) -> dict[str, Any]:
    name = row["experiment"]
    return {
        "id": f"{view}/{row['run_id'] or name}",
        "view": view,
        "kind": row["kind"],
        "experiment": name,
        "source": row["market"],
        "period": row["period"],
        "sharpe": row["sharpe"],
        "sharpe_low": row["sharpe_low"],
        "sharpe_high": row["sharpe_high"],
        "max_drawdown": row["max_drawdown"],
        "deflated_sharpe": row["deflated_sharpe"],
        "best_baseline": row["best_baseline"],
        "information_ratio": row["information_ratio"],
        "deflated_information_ratio": row["deflated_information_ratio"],
        "finished_at": row["finished_at"].isoformat(),
    }
