"""Short facts of a run, as agents read them before they ask for more."""

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.spec_versions import version_content
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import TRAJECTORIES


class RunSummary(Document):
    """Short facts of a run of the ledger."""

    rl_run_id: str
    status: str  # of the ledger, or deleted
    mean_reward: float | None  # per step of the run's own account in its tests; null without one
    total_timesteps: int | None  # of a policy's training, of an ensemble the mean of its members; null without training
    spec_version_id: str  # name@hash8
    spec_hash: str
    parent_run_id: str | None  # run whose policies it walks; null of a training
    mlflow_run_id: str | None  # null if not tracked
    trajectory_namespace: str  # of Iceberg; its tables are filtered by spec_hash and run_id
    message: str | None  # why it failed or was interrupted


def run_summary(store: Store, run: LedgerRun) -> RunSummary:
    """Read the short facts of a run."""
    account = {"spec_hash": [run.spec_hash], "run_id": [run.run_id], "kind": ["ensemble"]}
    return RunSummary.of(
        run,
        rl_run_id=run.run_id,
        status=run.shown_status,
        mean_reward=store.tables.read(TRAJECTORIES, account, ["reward"])["reward"].mean(),
        total_timesteps=_total_timesteps(version_content(store.ledger, run.partition_key)["agent"]),
        spec_version_id=run.partition_key,
        trajectory_namespace=TRAJECTORIES.namespace,
    )


def _total_timesteps(agent: dict) -> int | None:
    parts = (agent, *agent.get("members", ()))
    steps = [part["total_timesteps"] for part in parts if "total_timesteps" in part]
    return -(-sum(steps) // len(steps)) if steps else None
