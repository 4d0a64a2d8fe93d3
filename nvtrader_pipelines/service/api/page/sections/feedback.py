"""Agreement of people and market, and what policies learned from preference pairs."""

import polars as pl

from nvtrader_pipelines.preferences.agreement import agreement, counted_outcomes
from nvtrader_pipelines.preferences.pair_order import readiness
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.storage.tables import DPO_CHECKS, OUTCOMES, PREFERENCE_PAIRS

COLUMNS = ("session", "session_number", "decision", "reason", "excess_pct", "weight")
GROUPS = {"decision": "By decision", "reason": "By reason", "month": "By month"}
AGAINST = {
    "approved": "approved, against the holdings",
    "edited": "edited weights, against the proposal",
    "overridden": "holdings kept, against the proposal",
    "rejected": "rejected, against the proposal",
}


def read_feedback(shared: Context) -> Content:
    """Read the outcomes of decisions, as they were computed last."""
    outcomes = shared.store.tables.read(OUTCOMES, columns=COLUMNS)
    rows = [{**row, "name": AGAINST.get(row["name"], row["name"])} for row in agreement(outcomes).to_dicts()]
    bounds = [row[name] for row in rows for name in ("low_pct", "high_pct", "mean_pct") if row[name] is not None]
    part = render(
        "agreement",
        overrides=next((row for row in rows if row["by"] == "overrides"), None),
        groups={title: [row for row in rows if row["by"] == by] for by, title in GROUPS.items()},
        low=min([-0.1, *bounds]),
        high=max([0.1, *bounds]),
        n_outcomes=len(outcomes),
        n_counted=len(counted_outcomes(outcomes)),
    )
    return Content({"agreement": part, "tuning": read_tuning_part(shared)})


def read_tuning_part(shared: Context) -> str:
    """Read what the preference pairs can tell, and the last check of a policy that was tuned to them."""
    checks = shared.store.tables.read(DPO_CHECKS).sort("checked_at")
    check = checks.row(-1, named=True) if len(checks) else None
    pairs = shared.store.tables.read(PREFERENCE_PAIRS, columns=["run_id", "part", "session", "source"])
    counts = pairs["run_id"].value_counts(sort=True)
    run_id = check["start"] if check and check["start"] in counts["run_id"] else next(iter(counts["run_id"]), None)
    of_run = pairs.filter(pl.col("run_id") == run_id) if run_id else pairs.clear()
    return render(
        "tuning",
        check=check,
        n_pairs=len(of_run),
        n_of_people=len(of_run.filter(source="person")),
        readiness=readiness(of_run),
        run_id=run_id,
    )
