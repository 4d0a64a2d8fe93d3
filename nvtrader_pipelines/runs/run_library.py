"""Library of the RL Lab: runs with agent and verdict, and runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.evaluation.shared_sessions import shared_curves, shared_figures
from nvtrader_pipelines.runs.run_charts import kept_places
from nvtrader_pipelines.runs.run_queries import compare_runs, compare_specs, find_run_by_name, list_runs
from nvtrader_pipelines.runs.run_verdict import Claim, read_verdicts
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store


class LibraryRun(Document):
    """Run of the library."""

    run_id: str
    experiment: str
    partition_key: str
    kind: str
    status: str
    agent: str
    source: str
    sharpe: float | None  # of its account over all tests, annual, net
    sharpe_low: float | None
    sharpe_high: float | None
    max_drawdown: float | None
    n_sessions: int | None
    claim: Claim
    started_at: datetime
    message: str | None


@dataclass(frozen=True)
class PageComparison:
    """Runs side by side, as the page shows them."""

    runs: list[dict[str, Any]]  # figures of each over its own tests
    figures: list[dict[str, Any]]  # figures over the sessions that all have
    curves: list[dict[str, Any]]  # account, sessions, equity and drawdown over them, thinned
    differences: list[dict[str, Any]]  # fields of specs that differ from the first run's
    problem: str | None  # why no sessions are shared


def library_runs(store: Store) -> list[LibraryRun]:
    """Runs that are neither deleted nor of archived experiments, newest first."""
    verdicts, agents = read_verdicts(store), dict[str, str]()
    rows = []
    for row in list_runs(store).iter_rows(named=True):
        key = row["partition_key"]
        if key not in agents:
            agents[key] = version_content(store.ledger, key).get("agent", {}).get("kind", "")
        names = [name for name in LibraryRun.model_fields if name in row]
        facts = {name: row[name] for name in names} | {"experiment": key.partition("@")[0], "agent": agents[key]}
        verdict = None if row["sharpe"] is None else verdicts.get(row["run_id"])
        rows.append(LibraryRun(**facts, claim=verdict.claim if verdict else Claim.NONE))
    return rows


def compare_on_page(store: Store, names: Sequence[str]) -> PageComparison:
    """Compare runs, named as in `find_run_by_name`.

    Raises:
        StorageError: if a name matches no run or several.
        ValueError: if there are fewer than two runs, or one is named twice.
    """
    from nvtrader_pipelines.runs.run_pictures import read_shared_sessions, shared_periods_per_year

    runs: dict[str, LedgerRun] = {}
    for name in names:
        run = find_run_by_name(store.ledger, name)
        runs[run.run_id] = run
    if len(runs) < 2:
        raise ValueError(
            f"a comparison needs two different runs or more, but got {len(runs)}; choose them in the library"
        )
    several = list(runs.values())
    shared, problem = read_shared_sessions(store, several)
    periods_per_year = shared_periods_per_year(store, several)
    curves = [] if problem else shared_curves(shared, periods_per_year).partition_by("account", maintain_order=True)
    return PageComparison(
        runs=compare_runs(store, several).to_dicts(),
        figures=[] if problem else shared_figures(shared, periods_per_year).to_dicts(),
        curves=list(map(_curve, curves)),
        differences=compare_specs(store.ledger, several).to_dicts(),
        problem=problem,
    )


def _curve(rows: pl.DataFrame) -> dict[str, Any]:
    thinned = rows[kept_places(rows["equity"].to_numpy())]
    sessions: list[date] = thinned["session"].to_list()
    return {
        "account": rows["account"][0],
        "sessions": [session.isoformat() for session in sessions],
        "equity": thinned["equity"].to_list(),
        "drawdown": thinned["drawdown"].to_list(),
    }
