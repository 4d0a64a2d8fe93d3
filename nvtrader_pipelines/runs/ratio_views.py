"""Views of the Sharpe ratio curve: runs and trials over the same sessions, best first."""

from dataclasses import dataclass, replace
from typing import Any

from nvtrader_pipelines.evaluation.findings import describe_period
from nvtrader_pipelines.runs.universes import with_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RATIO_CURVE

VALIDATION = "validation"  # period of a trial
DRAWN = (
    *("kind", "experiment", "source", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown"),
    *("deflated_sharpe", "best_baseline", "information_ratio", "deflated_information_ratio", "finished_at"),
)
NAMES = (*DRAWN, "run_id", "spec_hash", "session_id", "trial_id", "note")


@dataclass(frozen=True)
class RatioView:
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


def read_ratio_views(store: Store) -> list[RatioView]:
    """Read the entries of the ratio curve as views per market and period."""
    curve = store.tables.read(RATIO_CURVE, columns=NAMES).sort("finished_at")
    return ratio_views(with_market(store, curve).to_dicts())


def ratio_views(entries: list[dict[str, Any]]) -> list[RatioView]:
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


def _market_views(entries: list[dict[str, Any]], prefix: str) -> list[RatioView]:
    scored = [entry for entry in entries if entry["sharpe"] is not None]
    periods = {entry["period"] for entry in scored if entry["kind"] == "run"}
    tuned = {period for period in periods if period.startswith("before_")}
    titles = {"tuned": "Before the reported sessions: runs and trials"}
    titles |= {name: f"{describe_period(name).capitalize()}: runs" for name in sorted(periods - tuned, reverse=True)}
    chosen = {name: {name} for name in titles} | {"tuned": {*tuned, VALIDATION}}
    views = [
        RatioView(
            f"{prefix}{name}",
            title,
            sorted((e for e in scored if e["period"] in chosen[name]), key=lambda row: -row["sharpe"]),
        )
        for name, title in titles.items()
    ]
    return [view for view in views if view.rows]
