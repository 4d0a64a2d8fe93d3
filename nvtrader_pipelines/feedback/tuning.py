"""Experiments that tune the policies of a run to its preference pairs."""

from collections.abc import Generator
from contextlib import nullcontext

import polars as pl

from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.feedback.check import TuningCheck, check_tuning
from nvtrader_pipelines.feedback.pairs import require_pairs
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.policies.agents.on_policy import ActorCriticLearner
from nvtrader_pipelines.preferences.holdout_auc import readiness
from nvtrader_pipelines.preferences.pair_table import PREFERENCE_PAIR
from nvtrader_pipelines.preferences.pairs import TRAIN
from nvtrader_pipelines.runs.lifecycle import Launch, now
from nvtrader_pipelines.runs.planning import read_plan, reopen_plan
from nvtrader_pipelines.runs.preference_tuning import require_start, trained_pairs
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD, walk_forward_runs
from nvtrader_pipelines.runs.train_walk_judge import Track, judge_run, train_run, walk_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import pair_digest, write_pairs
from nvtrader_pipelines.storage.specs import store_experiment
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import DPO_CHECKS

SUFFIX = "-dpo"
MIN_PAIRS, MIN_DECISIONS = 500, 20  # outside the hold-out, and reported on, to begin with; our choice
MAX_NAME = 63


def tuned_name(experiment: str) -> str:
    """Name of the experiment that tunes another one's policies."""
    return f"{experiment[: MAX_NAME - len(SUFFIX)]}{SUFFIX}"


def tuned_run(store: Store, run: SealedRun) -> SealedRun:
    """Latest run that is tuned from a run's experiment; the run itself if it is tuned.

    Raises:
        StorageError: if there is none.
    """
    if store.ledger.read(run.partition_key).agent.is_tuned:
        return run
    name = tuned_name(run.experiment)
    runs = store.ledger.runs().filter(
        pl.col("partition_key").str.starts_with(f"{name}@"), status="done", kind=WALK_FORWARD
    )
    if runs.is_empty():
        raise StorageError(
            f"no policy of {run.experiment} was tuned yet; run `nvtrader preferences train {run.experiment}`"
        )
    latest = runs.sort("started_at").row(-1, named=True)
    return store.policies.read_sealed(latest["partition_key"], latest["run_id"])


def tuning_experiment(store: Store, run: SealedRun) -> ExperimentSpec:
    """Make the experiment that tunes a run's policies, and keep its pairs of today under their digest.

    It is the run's experiment with another agent; folds, seeds, environment and pipeline stay.

    Raises:
        StorageError: if the run's agent cannot be tuned, or it has no pairs to train on.
    """
    spec, pairs = _tunable(store, run), _own_pairs(store, run)
    if pairs.filter(pl.col("part") == TRAIN).is_empty():
        raise StorageError(f"run {run.run_id} has no preference pairs outside the hold-out; deliver a longer history")
    write_pairs(store.home, pairs)
    return _experiment(spec, run, pairs)


def tuning_obstacle(store: Store, run: SealedRun) -> str | None:
    """Why a run is not tuned now, as a sentence; None if it should be."""
    try:
        reopen_plan(store, run)
        _tunable(store, run)
        plan = read_plan(store, run.partition_key)
        require_start(store, plan, run, plan.keys)
        pairs = _own_pairs(store, run)
    except StorageError as error:
        return str(error)
    n_trained = len(trained_pairs(plan, pairs))
    if n_trained < MIN_PAIRS:
        return f"{n_trained} preference pairs lie in a training and outside the hold-out; {MIN_PAIRS} are needed"
    n_decisions = readiness(pairs).n_decisions
    if n_decisions < MIN_DECISIONS:
        return f"{n_decisions} decisions are held out to report on, and {MIN_DECISIONS} are needed"
    checks = store.tables.read(DPO_CHECKS, columns=["run_id", "start", "pairs"])
    tuned = checks.filter(start=run.run_id, pairs=pair_digest(pairs))["run_id"]
    if len(tuned):
        return f"run {tuned[0]} is tuned to these {len(pairs)} pairs already"
    return None


def tune_run(
    store: Store, run: SealedRun, launch: Launch, track: Track | None = None
) -> Generator[Progress, None, TuningCheck]:
    """Train, walk, judge and check the policies of a run tuned to its pairs; a tuned run that is done is checked only.

    The experiment is a file of `data/experiments` from then on. `track` opens the MLflow run of a plan.

    Raises:
        StorageError: as `tuning_experiment`, or if the current market is not the one of the run.
    """
    spec = tuning_experiment(store, run)
    store.ledger.register(spec)
    plan = read_plan(store, spec.partition_key)
    if plan.run_id not in walk_forward_runs(store, ["run_id"])["run_id"]:
        with track(plan) if track else nullcontext() as tracker:
            yield from train_run(store, plan, launch, tracker)
            yield from walk_run(store, plan, launch)
            yield from judge_run(store, plan, launch, tracker)
    store_experiment(store.home, spec)
    return check_tuning(store, store.policies.read_latest(spec.partition_key), now())


def _tunable(store: Store, run: SealedRun) -> ExperimentSpec:
    spec = store.ledger.read(run.partition_key)
    if not spec.agent.is_tunable:
        raise StorageError(
            f"dpo tunes policies of ppo, a2c or grouped_ppo, but {run.experiment} is trained by {spec.agent.kind}; "
            "name an experiment of one of these"
        )
    return spec


def _own_pairs(store: Store, run: SealedRun) -> pl.DataFrame:
    return require_pairs(store, run).select(PREFERENCE_PAIR.names())


def _experiment(spec: ExperimentSpec, run: SealedRun, pairs: pl.DataFrame) -> ExperimentSpec:
    agent = spec.agent
    assert isinstance(agent, ActorCriticLearner)
    tuning = DpoAgent(
        start=run.run_id, pairs=pair_digest(pairs), backbone=agent.backbone, log_std_init=agent.log_std_init
    )
    description = f"Policies of {run.experiment}, run {run.run_id}, tuned to {len(pairs)} preference pairs."
    return spec.model_copy(update={"name": tuned_name(spec.name), "description": description, "agent": tuning})
