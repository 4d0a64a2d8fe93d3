"""Rows and events of a run."""

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.storage.ledger import Ledger, RunRow
from tests.storage.table_rows import AT

SPEC = ExperimentSpec(name="a")
RUN_ID = "0123456789abcdef"


def run_row(ledger: Ledger, spec: ExperimentSpec = SPEC, **changes) -> RunRow:
    """Build the row of a run of a registered spec."""
    known = {
        "run_id": RUN_ID,
        "kind": "walk_forward",
        "spec_hash": spec.spec_hash,
        "partition_key": ledger.register(spec),
    }
    market = {"source": "sample", "panel_digest": "d" * 64, "snapshot_ids": {"gold.returns": 7}}
    execution = {"code_version": "1", "seeds": (0, 1, 2), "task_id": "first", "started_at": AT}
    return RunRow.model_validate({**known, **market, **execution, **changes})


def event(stage="start", run_id=RUN_ID, **more) -> Progress:
    """Build an event of the run."""
    return Progress(run_id=run_id, **{"task_id": "first", "stage": stage, "message": stage, "timestamp": AT, **more})
