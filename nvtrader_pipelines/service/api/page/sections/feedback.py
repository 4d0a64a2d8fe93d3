"""Agreement of people and market: whose weights did better, five sessions after each decision."""

from nvtrader_pipelines.preferences.agreement import agreement, counted_outcomes
from nvtrader_pipelines.service.api.context import Context
from nvtrader_pipelines.service.api.page.content import Content, render
from nvtrader_pipelines.storage.tables import OUTCOMES

COLUMNS = ("session", "decision", "reason", "excess_pct", "weight")
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
    return Content({"agreement": part})
