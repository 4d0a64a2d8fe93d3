"""Settings of a search session, and the windows that it trains, validates and seals."""

import itertools
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.sharpe.lead import BLOCK_SIZE
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.spec import ExperimentSpec, Seed
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.portfolio.cufolio import CufolioProgram
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.proposers import OptunaProposer, Proposer
from nvtrader_pipelines.research.search_settings import BUDGET, GOAL, MAX_TRIALS, MAX_WORKERS, Goal
from nvtrader_pipelines.research.space import SearchSpace, search_space
from nvtrader_pipelines.research.space_file import KnobBounds, bounded_space
from nvtrader_pipelines.research.verdict import require_sealed_window

BASE_SEEDS = (0, 1, 2, 3, 4)  # of the base, and of both sides at a look
FIRST_SEED = 5  # of every trial
FRESH_SEEDS = (6, 7)  # of a rerun
MIN_PRUNED_FOLDS = 6  # a sign test over five scores can be significant at the earliest
Trials = Annotated[PositiveInt, Field(le=MAX_TRIALS)]


def require_workers(workers: int) -> None:
    """Raise a ValueError unless a number of workers is positive and at most that of the cores."""
    if not 1 <= workers <= MAX_WORKERS:
        raise ValueError(
            f"a session needs 1 to {MAX_WORKERS} workers, as this machine has cores, but workers is {workers}; change "
            "it, or leave it out"
        )


class SessionSpec(Component):
    """Search session: what it varies, how it proposes, when it ends, and its windows."""

    goal: Goal = GOAL
    eval_mode: SearchMode = SearchMode.PPO_ONLY
    base: ExperimentSpec  # as given; the space clips it
    bounds: dict[str, KnobBounds] | None = None  # by dotted path; null: the knobs of the mode
    proposer: Proposer = OptunaProposer()
    max_seconds: PositiveFloat | None = None  # after which no trial begins; null: no limit
    budget: Trials | None = Field(  # known ones do not count; null: no limit
        default_factory=lambda fields: None if fields.get("max_seconds") else BUDGET
    )
    seed: Seed = 1  # of the proposals; trainings have the same seeds in every session
    workers: PositiveInt = 2  # processes
    n_folds: PositiveInt = 1  # of the validation window
    prunes: bool = False  # whether a trial ends early whose folds are worse than the best one's
    validation_from: date
    sealed_from: date

    @model_validator(mode="after")
    def _require_end(self) -> Self:
        if self.budget is None and self.max_seconds is None:
            raise ValueError("a session needs a budget of trials or seconds, but has neither; set one")
        if self.prunes and self.n_folds < MIN_PRUNED_FOLDS:
            raise ValueError(
                f"pruning compares at least {MIN_PRUNED_FOLDS} folds, but n_folds is {self.n_folds}; raise it"
            )
        return self

    def space(self) -> SearchSpace:
        """Return the space that it searches.

        Raises:
            ValueError: if the base lacks a knob, or bounds do not fit it.
        """
        if self.bounds is None:
            return search_space(self.eval_mode, self.base)
        return bounded_space(self.bounds, self.base, self.eval_mode)

    def windows(self, panel: MarketPanel) -> "SearchWindows":
        """Return its windows on a market.

        Raises:
            ValueError: if the market is too short for them.
        """
        return SearchWindows.of(self, panel)


class Session(BaseModel):
    """Session as stored: its settings and the market it began on."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    session_id: str
    created_at: datetime
    spec: SessionSpec
    symbols: tuple[str, ...]
    n_sealed: int  # sessions of the sealed window
    validation_digest: str  # of the market before the sealed window, the folds and the code


@dataclass(frozen=True)
class SearchWindows:
    """Windows of a session as indices into the market's sessions."""

    folds: tuple[Fold, ...]  # of the validation, in time order; each trains before its test
    sealed: Fold

    @classmethod
    def of(cls, spec: SessionSpec, panel: MarketPanel) -> Self:
        """Cut a market; see `SessionSpec.windows`."""
        purge, days = spec.base.splitter.purge_size, panel.sessions
        first, sealed, end = (
            panel.index_of(np.datetime64(spec.validation_from)),
            panel.index_of(np.datetime64(spec.sealed_from)),
            len(days),
        )
        year = panel.calendar.periods_per_year
        if len(days) < (needed := 3 * year + purge):
            raise ValueError(
                f"a search needs {needed:,} usable sessions: a sealed year, a year of validation and one of training "
                f"with a purge of {purge}; {spec.base.market.source} has {len(days):,}; deliver earlier prices"
            )
        require_sealed_window(end - sealed, year)
        n_validation, n_training = sealed - first, first - purge
        if n_validation < year or n_training < year:
            raise ValueError(
                f"a search needs a year of sessions ({year}) to train and one to validate before it is "
                f"sealed, but {days[0]} to {spec.sealed_from} leave {max(0, n_training)} and {max(0, n_validation)} "
                f"with a validation from {spec.validation_from}; bring a longer history, or set other days"
            )
        if n_validation < spec.n_folds * BLOCK_SIZE:
            raise ValueError(
                f"each fold must test at least {BLOCK_SIZE} sessions, but the validation has {n_validation} for "
                f"n_folds {spec.n_folds}; lower it, or validate from an earlier day"
            )
        edges = np.linspace(first, sealed, spec.n_folds + 1).astype(int).tolist()
        folds = tuple(
            Fold(index, 0, start - purge - 1, start, stop - 1)
            for index, (start, stop) in enumerate(itertools.pairwise(edges))
        )
        return cls(folds, Fold(0, 0, sealed - purge - 1, sealed, end - 1))

    @property
    def validation(self) -> Window:
        """First and last session of the validation."""
        return self.folds[0].test_first, self.folds[-1].test_last


def is_random(spec: ExperimentSpec) -> bool:
    """Whether its account depends on a seed: it learns, or draws scenarios for cuFOLIO."""
    return not spec.agent.is_classical or spec != with_scenario_seed(spec, 1)


def with_scenario_seed(spec: ExperimentSpec, seed: int) -> ExperimentSpec:
    """Return the experiment whose cuFOLIO, as agent or allocator, draws by another seed."""
    agent, pipeline = spec.agent, spec.pipeline
    if isinstance(agent, CufolioProgram):
        agent = agent.with_scenario_seed(seed)
    if isinstance(pipeline.allocator, CufolioProgram):
        pipeline = pipeline.model_copy(update={"allocator": pipeline.allocator.with_scenario_seed(seed)})
    return spec.model_copy(update={"agent": agent, "pipeline": pipeline})


VALIDATION_YEARS = 8  # a lead's error over it is a third of that over a year


def default_windows(panel: MarketPanel, report_from: date | None, sealed_from: date | None = None) -> tuple[date, date]:
    """Days from which a search validates and seals where they are not chosen: our choice.

    The reported period of the base is sealed, or the last third of the market; the eight years before it, but at most
    half of what precedes the seal, are the validation.
    """
    days, sealed_day = panel.sessions, sealed_from or report_from
    sealed = len(days) * 2 // 3 if sealed_day is None else panel.index_of(np.datetime64(sealed_day))
    sealed = min(sealed, len(days) - 1)
    first = max(sealed - VALIDATION_YEARS * panel.calendar.periods_per_year, sealed // 2)
    return days[first].item(), sealed_from or days[sealed].item()
