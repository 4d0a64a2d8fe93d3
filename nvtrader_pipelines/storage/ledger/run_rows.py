"""Rows of runs in the ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from nvtrader_pipelines.experiments.code_digest import code_of
from nvtrader_pipelines.storage.ledger.processes import host_name, is_alive, this_process

if TYPE_CHECKING:  # takes half a second to import
    from nvtrader_pipelines.experiments.plan import RunPlan

RunKind = Literal["walk_forward", "replay", "forward", "world"]
Ending = Literal["done", "failed", "interrupted"]
RunStatus = Literal["running", "done", "failed", "interrupted"]
JSON_COLUMNS = ("snapshot_ids", "seeds", "metrics")


class RunRow(BaseModel):
    """Row of a run at its beginning."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run_id: str
    kind: RunKind
    spec_hash: str
    partition_key: str
    source: str
    panel_digest: str
    snapshot_ids: dict[str, int]
    code_version: str
    seeds: tuple[int, ...]
    task_id: str  # id of this execution
    started_at: AwareDatetime
    window_first: date | None = None
    window_last: date | None = None
    parent_run_id: str | None = None  # run whose policies this one uses
    dagster_run_id: str | None = None  # Dagster run that launched it

    @classmethod
    def of(cls, plan: RunPlan, task_id: str, started_at: datetime, **more: Any) -> Self:
        """Build the row of a plan's execution; `more` names the Dagster run that launched it."""
        window_first, window_last = plan.window
        planned = {
            "run_id": plan.run_id,
            "kind": plan.kind,
            "spec_hash": plan.spec.spec_hash,
            "partition_key": plan.spec.partition_key,
            "source": plan.panel.source,
            "panel_digest": plan.panel_digest,
            "snapshot_ids": dict(plan.panel.snapshot_ids),
            "code_version": code_of(plan.spec),
            "seeds": plan.spec.seeds,
            "window_first": window_first,
            "window_last": window_last,
            "parent_run_id": plan.parent_run_id,
        }
        return cls(task_id=task_id, started_at=started_at, **{**planned, **more})


class LedgerRun(RunRow):
    """Row of a run as stored."""

    status: RunStatus
    attempts: int  # executions so far
    host: str
    pid: int
    process_started_at: AwareDatetime
    finished_at: AwareDatetime | None
    metrics: dict[str, float | None] | None
    mlflow_run_id: str | None
    message: str | None  # why it failed or was interrupted
    policies_sha256: str | None  # digest of the manifest; None until all policies are trained
    deleted_at: AwareDatetime | None  # when its files and rows were deleted

    @property
    def shown_status(self) -> str:
        """Status of the run, or `deleted`."""
        return self.status if self.deleted_at is None else "deleted"

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """Parse a row of the table."""
        parsed = {name: json.loads(row[name]) for name in JSON_COLUMNS if row[name] is not None}
        return cls.model_validate({**row, **parsed})


def to_json(value: Any) -> str:
    """Encode a value as JSON with sorted keys."""
    return json.dumps(value, sort_keys=True)


def metrics_to_json(metrics: Mapping[str, float]) -> str:
    """Encode metrics as JSON; values that are not finite become null."""
    return to_json({name: value if math.isfinite(value) else None for name, value in metrics.items()})


def running_row(row: RunRow) -> dict[str, Any]:
    """Values of a run that this process begins."""
    pid, started_at = this_process()
    given = row.model_dump(exclude={"snapshot_ids", "seeds"})
    return {
        **given,
        "snapshot_ids": to_json(row.snapshot_ids),
        "seeds": to_json(row.seeds),
        "status": "running",
        "host": host_name(),
        "pid": pid,
        "process_started_at": started_at,
        "finished_at": None,
        "message": None,
        "deleted_at": None,
    }


def death_reason(run: LedgerRun, dead_launchers: Collection[str] = ()) -> str | None:
    """Reason why a run cannot be running any more, or None if it may be."""
    if run.dagster_run_id in dead_launchers:
        return f"the Dagster run {run.dagster_run_id} ended before it did"
    if run.dagster_run_id is None and run.host == host_name() and not is_alive(run.pid, run.process_started_at):
        return f"its process {run.pid} on {run.host} ended without reporting"
    return None
