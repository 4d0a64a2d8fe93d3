"""Experiments that tune the policies of a run to its preference pairs."""

import polars as pl

from nvtrader_pipelines.desk.preference_pairs import require_pairs
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import DpoAgent, RecurrentPpoAgent
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.pairs import TRAIN
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import write_pairs
from nvtrader_pipelines.storage.store import Store

SUFFIX = "-dpo"
MAX_NAME = 63


def tuned_name(experiment: str) -> str:
    """Name of the experiment that tunes another one's policies."""
    return f"{experiment[: MAX_NAME - len(SUFFIX)]}{SUFFIX}"


def tuning_experiment(store: Store, run: SealedRun) -> ExperimentSpec:
    """Make the experiment that tunes a run's policies, and keep its pairs of today under their digest.

    It is the run's experiment with another agent; folds, seeds, environment and pipeline stay.

    Raises:
        StorageError: if the run's agent has no normal actor, or it has no pairs to train on.
    """
    spec = store.ledger.read(run.partition_key)
    agent = spec.agent
    if not isinstance(agent, ActorCriticLearner) or isinstance(agent, RecurrentPpoAgent | DpoAgent):
        raise StorageError(
            f"dpo tunes policies of ppo, a2c or grouped_ppo, but {run.experiment} is trained by {agent.kind}; name an "
            "experiment of one of these"
        )
    pairs = require_pairs(store, run).select(PREFERENCE_PAIR.names())
    if pairs.filter(pl.col("part") == TRAIN).is_empty():
        raise StorageError(f"run {run.run_id} has no preference pairs outside the hold-out; deliver a longer history")
    tuning = DpoAgent(
        start=run.run_id,
        pairs=write_pairs(store.home, pairs),
        backbone=agent.backbone,
        log_std_init=agent.log_std_init,
    )
    description = f"Policies of {run.experiment}, run {run.run_id}, tuned to {len(pairs)} preference pairs."
    return spec.model_copy(update={"name": tuned_name(spec.name), "description": description, "agent": tuning})
