"""What the policies of a run are tuned by: those of an earlier run, and its preference pairs."""

import hashlib
from collections.abc import Collection, Mapping, Sequence

import polars as pl

from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.market.panel import Window, normalize_windows
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.policies.archive import read_card, read_stored
from nvtrader_pipelines.policies.preference_data import Tuning
from nvtrader_pipelines.preferences.pairs import STOP, TRAIN, pair_data, pairs_within
from nvtrader_pipelines.runs.planning import find_sealed_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import read_pairs
from nvtrader_pipelines.storage.store import Store


def read_tuning(
    store: Store, plan: RunPlan, agent: DpoAgent, key: FoldSeed, parts: Collection[str] = (TRAIN, STOP)
) -> Tuning:
    """Read the policy of the starting run that a fold and seed are tuned from, and the pairs of the fold, by part.

    Raises:
        StorageError: if the agent names no run or pairs, they are missing, or as `require_start`.
    """
    if agent.start is None or agent.pairs is None:
        raise StorageError(
            "agent.start and agent.pairs must name a run and its preference pairs, but do not; "
            "`nvtrader preferences train` writes such an experiment"
        )
    archives = require_start(store, plan, find_sealed_run(store, agent.start), [key])
    card, tensors = read_stored(archives[key])
    data = pair_data(pairs_of_fold(plan, read_pairs(store.home, agent.pairs), key[0], parts), plan.panel)
    return Tuning(card.scaler, tensors, hashlib.sha256(archives[key]).hexdigest(), data)


def require_start(store: Store, plan: RunPlan, start: SealedRun, keys: Sequence[FoldSeed]) -> Mapping[FoldSeed, bytes]:
    """Require that a run's policies of these folds and seeds had the training that a plan gives them; return all.

    Raises:
        StorageError: if one is missing, or was trained on other sessions, so that it may have seen tested ones.
    """
    archives, sessions = store.policies.read_run(start), plan.panel.sessions
    for fold, seed in keys:
        if (fold, seed) not in archives:
            raise StorageError(
                f"run {start.run_id} must have a policy of every fold and seed, but has none of fold {fold} seed "
                f"{seed}; keep the splitter and the seeds of its experiment"
            )
        days = tuple((str(sessions[first]), str(sessions[last])) for first, last in _training(plan, fold))
        stretches = read_card(archives[fold, seed]).stretches
        if stretches != days:
            raise StorageError(
                f"a policy must be tuned from one of the same training, but fold {fold} of run {start.run_id} was "
                f"trained on {_format(stretches)}, and this run trains it on {_format(days)}; train the experiment of "
                "that run on the current market"
            )
    return archives


def pairs_of_fold(plan: RunPlan, pairs: pl.DataFrame, fold: int, parts: Collection[str]) -> pl.DataFrame:
    """Pairs that lie in the training of a fold, by part."""
    within = pairs_within(pairs, plan.panel, fold, _training(plan, fold))
    return within.filter(pl.col("part").is_in(parts))


def trained_pairs(plan: RunPlan, pairs: pl.DataFrame) -> pl.DataFrame:
    """Pairs that some fold trains on; today's of people lie after the last training until a later fold opens."""
    return pl.concat([pairs_of_fold(plan, pairs, fold.index, [TRAIN]) for fold in plan.folds]).unique("pair_id")


def _training(plan: RunPlan, index: int) -> Sequence[Window]:
    (fold,) = (fold for fold in plan.folds if fold.index == index)
    return normalize_windows(plan.training_window(fold))


def _format(days: Sequence[tuple[str, str]]) -> str:
    return " and ".join(" to ".join(span) for span in days)
