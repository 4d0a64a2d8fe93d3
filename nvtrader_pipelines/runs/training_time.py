"""Estimated time to train a run, from the pace of earlier runs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.runs.registration import plan_variants
from nvtrader_pipelines.runs.run_tables import WALK_FORWARD
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.store import Store

ASSUMED_PACE = 1000.0  # steps per second where no run was measured: fewer than two cores reach with the default network
MAX_RUNS = 10  # read to measure the pace
MAX_SECONDS = 24 * 3600.0  # of training that starts without confirmation
UNITS = (("years", 365 * 24 * 3600.0), ("days", 24 * 3600.0), ("hours", 3600.0), ("minutes", 60.0))


@dataclass(frozen=True)
class TrainingEstimate:
    """Estimated training of one experiment: steps of all folds and seeds, and their pace."""

    experiment: str
    timesteps: int
    steps_per_second: float
    is_measured: bool

    @property
    def seconds(self) -> float:
        """Estimated duration."""
        return self.timesteps / self.steps_per_second

    @property
    def sentence(self) -> str:
        """Description with the duration and the pace."""
        pace = f"{self.steps_per_second:,.0f} steps/s {'as measured' if self.is_measured else 'assumed'}"
        duration = format_seconds(self.seconds)
        return f"training {self.experiment} takes about {duration}: {self.timesteps:,} steps, {pace}"

    @property
    def is_long(self) -> bool:
        """Whether the training takes more than a day, which a person must confirm."""
        return self.seconds > MAX_SECONDS


def estimate_training(store: Store, plans: Sequence[RunPlan]) -> TrainingEstimate | None:
    """Estimate the training of an experiment from its plans; None if its agent does not learn."""
    spec = plans[0].spec
    timesteps = sum(plan.task(key).total_timesteps for plan in plans for key in plan.keys)
    if not timesteps:
        return None
    measured = measured_pace(store.ledger, spec.agent.kind)
    return TrainingEstimate(spec.name, timesteps, measured or ASSUMED_PACE, measured is not None)


def long_trainings(store: Store, specs: Sequence[ExperimentSpec]) -> list[TrainingEstimate]:
    """Estimates of more than a day, for experiments without a completed run."""
    return [estimate for estimate in _estimates(store, specs) if estimate.is_long]


def describe_long_trainings(trainings: Sequence[TrainingEstimate], option: str = "--yes") -> str:
    """Describe trainings of more than a day, and the option that confirms them."""
    sentences = "; ".join(training.sentence for training in trainings)
    return f"a training of more than a day needs {option}, but {sentences}; lower total_timesteps, or give {option}"


def measured_pace(ledger: Ledger, agent: str) -> float | None:
    """Steps per second of the fastest recent training; None without one.

    Trainings of agents of this kind count, else all. The fastest counts, since short trainings
    spend most of their time on starting.
    """
    done = ledger.runs().filter(pl.col("status") == "done", pl.col("kind") == WALK_FORWARD)
    contents = dict(ledger.versions().select("spec_hash", "content").iter_rows())
    kinds = [json.loads(contents[spec_hash])["agent"]["kind"] for spec_hash in done["spec_hash"]]
    runs = done.select("run_id", kind=pl.Series(kinds, dtype=pl.String))
    same = runs.filter(pl.col("kind") == agent)
    recent = (runs if same.is_empty() else same)["run_id"].head(MAX_RUNS)
    return max((pace for pace in (_pace(ledger, run_id) for run_id in recent) if pace), default=None)


def format_seconds(seconds: float) -> str:
    """Format a duration in its largest unit."""
    for unit, length in UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def _estimates(store: Store, specs: Sequence[ExperimentSpec]) -> Iterator[TrainingEstimate]:
    done = set(store.ledger.runs().filter(pl.col("status") == "done")["partition_key"])
    for spec in specs:
        is_new = not done.issuperset(variant.partition_key for variant in spec.variants())
        if not is_new:
            continue
        try:
            plans = plan_variants(store, spec)
        except (StorageError, ValueError):  # its registration names the problem
            continue
        estimate = estimate_training(store, plans)
        if estimate is not None:
            yield estimate


def _pace(ledger: Ledger, run_id: str) -> float | None:
    """Last pace that a run recorded; None if it trained nothing."""
    steps = ledger.events(run_id).filter(pl.col("stage") == "train.step")
    return json.loads(steps["metrics"][-1]).get("steps_per_second") if len(steps) else None
