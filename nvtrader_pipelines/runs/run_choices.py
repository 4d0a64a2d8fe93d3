"""Seeds that trade in each fold of a run, chosen or weighted by validation."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.experiments.progress import SHARPE_OF_SEED, WEIGHT_OF_SEED


class ChosenSeed(Document):
    """Seed that trades in a fold, chosen by the design `best_of_n`."""

    fold: int
    seed: int
    agent: str  # kind of the agent that trained it
    sharpe: dict[int, float]  # validation Sharpe ratio by seed


class WeightedSeeds(Document):
    """Seeds that trade together in a fold, weighted by the design `meta_ensemble`."""

    fold: int
    weights: dict[int, float]  # by seed, sum to 1
    agents: dict[int, str]  # kind of the agent that trained it, by seed
    sharpe: dict[int, float]  # validation Sharpe ratio by seed


def read_choices(events: pl.DataFrame, agents: Mapping[int, str]) -> tuple[ChosenSeed, ...]:
    """Read the chosen seeds from the events of their choice; a run that was resumed has chosen again."""
    return tuple(
        ChosenSeed(fold=fold, seed=seed, agent=agents[seed], sharpe=_by_seed(metrics, SHARPE_OF_SEED))
        for fold, seed, metrics, _ in _validations(events)
        if seed is not None
    )


def read_seed_weights(events: pl.DataFrame, agents: Mapping[int, str]) -> tuple[WeightedSeeds, ...]:
    """Read the weights of seeds from the events of their validation, the last of each fold."""
    return tuple(
        WeightedSeeds(
            fold=fold,
            weights=weights,
            agents={seed: agents[seed] for seed in weights},
            sharpe=_by_seed(metrics, SHARPE_OF_SEED),
        )
        for fold, _, metrics, _ in _validations(events)
        if (weights := _by_seed(metrics, WEIGHT_OF_SEED))
    )


def read_choice_messages(events: pl.DataFrame) -> tuple[str, ...]:
    """Read who trades in each fold and why, a sentence each; empty where all seeds weigh the same."""
    return tuple(message for *_, message in _validations(events))


def describe_choices(choices: Sequence[ChosenSeed], seed_weights: Sequence[WeightedSeeds]) -> str:
    """Seeds that trade, with their agents, over all folds; empty where all weigh the same."""
    if seed_weights:
        means = ", ".join(
            f"seed {seed} ({agent}) {fmean(fold.weights[seed] for fold in seed_weights):.2f}"
            for seed, agent in seed_weights[0].agents.items()
        )
        return f"weights by validation, on average over the folds: {means}"
    folds = Counter(f"seed {choice.seed} ({choice.agent})" for choice in choices).most_common()
    names = ", ".join(f"{name} in {n} fold{'s' if n > 1 else ''}" for name, n in folds)
    return f"chosen by validation: {names}" if names else ""


def _validations(events: pl.DataFrame) -> list[tuple[int, int | None, dict[str, float], str]]:
    """Fold, seed that trades alone, metrics and message of the last validation of each fold, by fold."""
    last = {}
    rows = events.filter(stage="evaluate.step").select("fold", "seed", "metrics", "message")
    for fold, seed, content, message in rows.iter_rows():
        metrics = json.loads(content or "{}")
        if _by_seed(metrics, SHARPE_OF_SEED):
            last[fold] = (fold, seed, metrics, message)
    return [last[fold] for fold in sorted(last)]


def _by_seed(metrics: Mapping[str, float], prefix: str) -> dict[int, float]:
    return {int(name.removeprefix(prefix)): value for name, value in metrics.items() if name.startswith(prefix)}
