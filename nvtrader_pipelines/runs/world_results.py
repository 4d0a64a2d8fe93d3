"""Results of a run in a world, and what they show."""

from nvtrader_pipelines.components.document import row_model, rows_of
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import WORLD_RESULTS


class WorldResult(row_model(WORLD_RESULTS.schema.without("spec_hash", "run_id", "experiment"))):
    """Result of a policy, or the mean over the seeds, beside the world's reference."""


def read_results(store: Store, run_id: str) -> tuple[WorldResult, ...]:
    """Results of a run, the mean over the seeds first."""
    rows = store.tables.read(WORLD_RESULTS, {"run_id": [run_id]}).sort("seed", nulls_last=False)
    return rows_of(WorldResult, rows.drop("spec_hash", "run_id", "experiment"))


def world_verdict(results: tuple[WorldResult, ...]) -> str:
    """What a run shows about the agent and the world's reference, in words."""
    if not results:
        return "no results yet"
    row = results[0]
    text = f"{row.agent} has a mean reward of {row.mean:.5f}, {row.reference} {row.reference_mean:.5f}"
    low, high = row.difference_low, row.difference_high
    path = " on one path" if row.n_episodes == 1 else ""
    if low is None or high is None or low == high:  # one seed, or seeds that decide alike
        return f"{text}: a difference of {row.difference:+.5f}{path}"
    claim = "it beats it" if low > 0.0 else "it is worse" if high < 0.0 else "the two cannot be told apart"
    return f"{text}: {row.difference:+.5f} [{low:+.5f}, {high:+.5f}] over the seeds{path}, {claim}"
