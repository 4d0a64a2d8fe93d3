"""Queries of rebalance plans: found by id, and listed."""

from collections.abc import Sequence

import polars as pl

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.document import row_model
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.plan_records import PlanRecord, halted_session_events, plan_records
from nvtrader_pipelines.storage.errors import MAX_CANDIDATES, NotFoundError
from nvtrader_pipelines.storage.store import Store

LEVELS = ("hard", "soft", "warn")
LISTED_PLANS = TableSchema(
    Column("plan", pl.String, "id; null of a halted session"),
    Column("account", pl.String, "account"),
    Column("session", pl.Date, "session of the decision"),
    Column("status", pl.String, "status of the plan, or halted"),
    Column("policy", pl.String, "policy that decided"),
    Column("turnover", pl.Float64, "one-way, from held to target weights"),
    *(Column(level, pl.Int64, f"number of {level} findings") for level in LEVELS),
    Column("by", pl.String, "who decided on it"),
    Column("reason", pl.String, "reason of the last decision, block or cancellation, or of the halt"),
)


class ListedPlan(row_model(LISTED_PLANS)):
    """Plan of the list, or a session halted without one."""


def list_plans(events: Sequence[AuditEvent]) -> pl.DataFrame:
    """List the plans in audit events, and the sessions halted without one, newest first."""
    records = plan_records(events)
    rows = [
        {
            "plan": plan_id,
            "account": record.plan.account,
            "session": record.plan.session,
            "status": record.status,
            "policy": record.plan.policy,
            "turnover": record.plan.turnover,
            **{level: sum(finding.level == level for finding in record.findings) for level in LEVELS},
            "by": record.decided_by,
            "reason": record.reason,
        }
        for plan_id, record in records.items()
    ]
    rows += [
        {"account": event.account, "session": event.session, "status": "halted", "reason": event.reason}
        for event in halted_session_events(events, records.values())
    ]
    return pl.DataFrame(rows, schema=LISTED_PLANS).reverse().sort("session", descending=True, maintain_order=True)


def find_plan(store: Store, text: str) -> PlanRecord:
    """Find the plan whose id begins with a text.

    Raises:
        NotFoundError: if no plan or several plans match.
    """
    records = plan_records(store.audit.events())
    plan_ids = [plan_id for plan_id in records if text and plan_id.startswith(text)]
    if len(plan_ids) == 1:
        return records[plan_ids[0]]
    if not plan_ids:
        near = suggest(text, [plan_id[: len(text)] for plan_id in records]) or ";"
        raise NotFoundError(f"no plan's id begins with {text!r}{near} list them with `nvtrader plans`")
    shown = ", ".join(plan_ids[-MAX_CANDIDATES:])  # the newest
    raise NotFoundError(f"{len(plan_ids)} plans begin with {text!r} ({shown}); give more of the id")
