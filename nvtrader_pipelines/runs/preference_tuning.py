"""What the policies of a run are tuned by: those of an earlier run, and its preference pairs."""

import hashlib
from collections.abc import Collection, Sequence

import polars as pl

from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.market.panel import normalize_windows
from nvtrader_pipelines.policies.agents import DpoAgent
from nvtrader_pipelines.policies.archive import read_stored
from nvtrader_pipelines.policies.preference_data import Tuning
from nvtrader_pipelines.preferences.pairs import STOP, TRAIN, pair_data, pairs_within
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.pair_files import read_pairs
from nvtrader_pipelines.storage.store import Store


def read_tuning(
    store: Store, plan: RunPlan, agent: DpoAgent, key: FoldSeed, parts: Collection[str] = (TRAIN, STOP)
) -> Tuning:
    """Read the policy of the starting run that a fold and seed are tuned from, and the pairs of the fold, by part.

    Raises:
        StorageError: if the agent names no run or pairs, they are missing, or the starting policy of the fold was
            trained on other sessions, so that it may have seen tested ones.
    """
    if agent.start is None or agent.pairs is None:
        raise StorageError(
            "agent.start and agent.pairs must name a run and its preference pairs, but do not; "
            "`nvtrader preferences train` writes such an experiment"
        )
    start = store.ledger.find_run(agent.start)
    archives = store.policies.read_run(store.policies.read_sealed(start.partition_key, start.run_id))
    if key not in archives:
        raise StorageError(
            f"run {agent.start} must have a policy of every fold and seed, but has none of fold {key[0]} seed {key[1]}"
            "; keep the splitter and the seeds of its experiment"
        )
    (fold,) = (fold for fold in plan.folds if fold.index == key[0])
    windows, sessions = normalize_windows(plan.training_window(fold)), plan.panel.sessions
    card, tensors = read_stored(archives[key])
    days = tuple((str(sessions[first]), str(sessions[last])) for first, last in windows)
    if card.stretches != days:
        raise StorageError(
            f"a policy must be tuned from one of the same training, but fold {key[0]} of run {agent.start} was trained "
            f"on {_format(card.stretches)}, and this run trains it on {_format(days)}; train the experiment of that "
            "run on the current market"
        )
    pairs = pairs_within(read_pairs(store.home, agent.pairs), plan.panel, fold.index, windows)
    data = pair_data(pairs.filter(pl.col("part").is_in(parts)), plan.panel)
    return Tuning(card.scaler, tensors, hashlib.sha256(archives[key]).hexdigest(), data)


def _format(days: Sequence[tuple[str, str]]) -> str:
    return " and ".join(" to ".join(span) for span in days)
