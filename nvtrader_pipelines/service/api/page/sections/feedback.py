"""Agreement of people and market, and what policies learned from preference pairs."""

from nvtrader_pipelines.feedback.check import read_last_check
from nvtrader_pipelines.feedback.outcomes import read_outcomes
from nvtrader_pipelines.preferences.agreement import agreement, counted_outcomes
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
    check, pairs = read_last_check(shared.store)
    return render(
        "tuning",
        check=check,
        n_pairs=len(pairs),
        n_of_people=len(pairs.filter(source="person")),
        readiness=readiness(pairs),
        run_id=next(iter(pairs["run_id"]), None),
    )
