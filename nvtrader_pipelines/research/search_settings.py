"""Settings of a search session, as people choose them at every door."""

import os
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.text import Flags, Symbols
from nvtrader_pipelines.research.knobs import SearchMode

BUDGET = 20  # trials
GOAL = "A higher Sharpe ratio, net of costs"
MAX_TRIALS = 10**6  # of a session
MAX_WORKERS = max(2, os.cpu_count() or 1)  # cores of this machine; 2 is the default
TIMESTEPS = 20_000  # of a trial, our choice: a few seconds of training on one core


def _require_printable(goal: str) -> str:
    if not goal.strip() or not goal.isprintable():
        raise ValueError(
            f"a goal must be one line of text without control characters, but is {goal!r}; write it in plain words"
        )
    return goal


Goal = Annotated[str, Field(max_length=500), AfterValidator(_require_printable)]


class LaunchSettings(Component):
    """Settings of a search session that routes, schedules and Dagster's launchpad have, too."""

    goal: Annotated[Goal, Field(description="Goal in your words, kept in the journal.")] = GOAL
    symbols: Annotated[Symbols, Field(description="Symbols, separated by commas; default: all.")] = ()
    budget: Annotated[int, Field(ge=1, le=MAX_TRIALS, description="Trials; default: 20, unless --seconds is set.")] = (
        BUDGET
    )
    total_timesteps: Annotated[
        int, Field(ge=1, le=10**9, description="Training steps of a trial; default: 20,000.")
    ] = TIMESTEPS
    eval_mode: Annotated[SearchMode, Field(description="Groups of knobs to vary.")] = SearchMode.PPO_ONLY
    seed: Annotated[int, Field(ge=0, lt=2**31, description="Random seed of the proposals; default: 1.")] = 1
    workers: Annotated[int, Field(ge=1, le=MAX_WORKERS, description="Processes; default: 2.")] = 2
    source: Annotated[str, Field(max_length=32, description="Source of prices in data/market.yaml.")] = "sample"
    proposer: Annotated[
        str | None,
        Field(
            max_length=2000,
            description="optuna, cma_es, random, grid, llm, or its settings as YAML; default: llm where an endpoint of "
            "a language model is configured, else optuna.",
        ),
    ] = None


class SearchSettings(LaunchSettings):
    """Settings of a search session; what is not set follows from the rest."""

    max_seconds: Annotated[
        float | None, Field(gt=0, description="Time after which no trial begins."), Flags(("--seconds",))
    ] = None
    like: Annotated[str | None, Field(description="Experiment to search around; default: one of the mode's own.")] = (
        None
    )
    bounds: Annotated[
        Path | None, Field(description="YAML file of knobs, as for `nvtrader research space`."), Flags(("--space",))
    ] = None
    validation_from: Annotated[date | None, Field(description="First day on which trials are compared.")] = None
    sealed_from: Annotated[date | None, Field(description="First day that no trial sees.")] = None
    n_folds: Annotated[
        int | None,
        Field(ge=1, description="Parts of the validation, each trained for; default: 1."),
        Flags(("--folds",)),
    ] = None
    prunes: Annotated[
        bool,
        Field(description="End trials early that are worse on 4 or more folds; needs 6 folds."),
        Flags(("--prune",)),
    ] = False
