"""Agreement of people and market, and what policies learned from preference pairs."""

from typing import Any

import polars as pl

from nvtrader_pipelines.feedback.check import read_last_check
from nvtrader_pipelines.feedback.outcomes import read_outcomes
from nvtrader_pipelines.preferences.agreement import agreement
from nvtrader_pipelines.preferences.holdout_auc import readiness
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render

GROUPS = {"decision": "By decision", "reason": "By reason", "month": "By month"}
AGAINST = {
    "approved": "approved, against the holdings",
    "edited": "edited weights, against the proposal",
    "overridden": "holdings kept, against the proposal",
    "rejected": "rejected, against the proposal",
}


def read_feedback(shared: Context) -> Content:
    """Read the outcomes of decisions, as they were computed last."""
    outcomes = read_outcomes(shared.store)
    counted, practice = agreement(outcomes), agreement(outcomes, practice=True)
    bounds = pl.concat([counted, practice]).select("low_pct", "high_pct", "mean_pct").unpivot()["value"].drop_nulls()
    part = render(
        "agreement",
        counted=_groups(counted),
        practice=_groups(practice),
        low=min([-0.1, *bounds]),
        high=max([0.1, *bounds]),
        n_outcomes=len(outcomes),
    )
    return Content({"agreement": part, "tuning": read_tuning_part(shared)})


def _groups(summary: pl.DataFrame) -> dict[str, Any]:
    """Rows of a summary by group, and the number of decisions in it."""
    rows = [{**row, "name": AGAINST.get(row["name"], row["name"])} for row in summary.to_dicts()]
    return {
        "n": sum(row["n"] for row in rows if row["by"] == "decision"),
        "overrides": next((row for row in rows if row["by"] == "overrides"), None),
        "groups": {title: [row for row in rows if row["by"] == by] for by, title in GROUPS.items()},
    }


def read_tuning_part(shared: Context) -> str:
    """Read what the preference pairs can tell, and the last check of a policy that was tuned to them."""
    check, pairs = read_last_check(shared.store)
    return render(
        "tuning",
        check=check,
        n_pairs=len(pairs),
        n_of_people=len(pairs.filter(source="person")),
        readiness=readiness(pairs),
        run_id=next(iter(pairs["run_id"]), None),
    )
