"""Policies of an earlier run that the trainings of a run start from, fold by fold and seed by seed."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.spec import network_settings
from nvtrader_pipelines.market.panel import Window, normalize_windows
from nvtrader_pipelines.policies.agents import DpoAgent, Learner
from nvtrader_pipelines.policies.archive import PolicyCard, read_card, read_stored
from nvtrader_pipelines.policies.fit import Start
from nvtrader_pipelines.policies.learned import require_same_market
from nvtrader_pipelines.runs.planning import find_sealed_run
from nvtrader_pipelines.runs.preference_tuning import read_tuning
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store


def read_start(store: Store, plan: RunPlan, key: FoldSeed) -> Start | None:
    """Read what the training of a fold and seed starts from; None for random weights.

    Of the starting run, the policy of the same seed is taken: that of the same fold or, if it saw sessions that
    it must not, the one trained until the latest day among those that did not. Its scaler comes with its tensors.

    Raises:
        StorageError: as `require_starts`, or as `read_tuning` for an agent that tunes policies.
    """
    agent = plan.spec.agent_of(key[1])
    if isinstance(agent, DpoAgent):
        return read_tuning(store, plan, agent, key)
    run_id = _starting_run(plan, key[1])
    if run_id is None:
        return None
    archives = store.policies.read_run(find_sealed_run(store, run_id))
    content = archives[_starting_fold(plan, key, archives), key[1]]
    card, tensors = read_stored(content)
    return Start(card.scaler, tensors, hashlib.sha256(content).hexdigest())


def require_starts(store: Store, plan: RunPlan) -> None:
    """Require a policy to start from for every training whose agent names a run.

    Raises:
        StorageError: if there is no such run, it lacks a seed, its names, features or networks are others, or all its
            policies of a seed saw sessions after a fold's training, or some that it leaves out for a test.
    """
    runs = {seed: run_id for seed in plan.spec.seeds if (run_id := _starting_run(plan, seed))}
    archives = {run_id: store.policies.read_run(find_sealed_run(store, run_id)) for run_id in set(runs.values())}
    for key in plan.keys:
        if key[1] in runs:
            _starting_fold(plan, key, archives[runs[key[1]]])


def _starting_run(plan: RunPlan, seed: int) -> str | None:
    agent = plan.spec.agent_of(seed)
    return agent.start if isinstance(agent, Learner) and not agent.is_tuned else None


def _starting_fold(plan: RunPlan, key: FoldSeed, archives: Mapping[FoldSeed, bytes]) -> int:
    """Fold of the starting run whose policy a fold and seed starts from."""
    (fold,), seed = (fold for fold in plan.folds if fold.index == key[0]), key[1]
    name = f"run {_starting_run(plan, seed)}"
    cards = {index: read_card(content) for (index, own), content in sorted(archives.items()) if own == seed}
    if not cards:
        seeds = sorted({own for _, own in archives})
        raise StorageError(f"{name} must have policies of seed {seed} to start from, but has seeds {seeds}; list these")
    for card in cards.values():
        _require_same_network(plan, card, name)
    windows = normalize_windows(plan.training_window(fold))
    last = str(plan.panel.sessions[windows[-1][1]])
    usable = [k for k, card in cards.items() if card.train_last <= last and not _saw_gap(plan, fold, windows, card)]
    if not usable:
        raise StorageError(
            f"the training of fold {fold.index} ends on {last} and must start from a policy that saw no later session "
            f"and none that it leaves out for a test, but the first of {name} was trained until "
            f"{min(card.train_last for card in cards.values())}; start from an earlier run, or test later"
        )
    return fold.index if fold.index in usable else max(usable, key=lambda index: (cards[index].train_last, index))


def _require_same_network(plan: RunPlan, card: PolicyCard, name: str) -> None:
    """Require the names, features and network of a plan's policies."""
    try:
        require_same_market(card, plan.panel.symbols, plan.panel.feature_names)
    except ValueError as error:
        raise StorageError(f"no training can start from {name}: {error}") from error
    theirs = network_settings(card.agent, card.environment)
    for path, value in network_settings(plan.spec.agent_of(card.seed), plan.spec.environment).items():
        if theirs[path] != value:
            raise StorageError(
                f"{path} must be {theirs[path]!r} as in {name}, whose policies the training starts from, but is "
                f"{value!r}; change it, or start from another run"
            )


def _saw_gap(plan: RunPlan, fold: Fold, windows: Sequence[Window], card: PolicyCard) -> bool:
    """Whether a policy was trained on sessions that a training leaves out, for a test, before its end.

    What the policy itself started from ended no later, which suffices where no test precedes a training.
    """
    known, days = (0, min(windows[0][0], fold.test_first) - 1), [str(day) for day in plan.panel.sessions]
    gaps = [days[end + 1 : start] for (_, end), (start, _) in pairwise((known, *windows))]
    overlaps = any(first <= gap[-1] and gap[0] <= last for gap in gaps if gap for first, last in card.stretches)
    return overlaps or (card.start != "" and fold.trains_on_the_future)
