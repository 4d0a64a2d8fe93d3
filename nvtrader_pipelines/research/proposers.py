"""Proposers of a search: samplers of Optuna, each seeded anew for every proposal, alone or with a language model."""

from collections.abc import Callable, Sequence
from math import floor, prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.research.knobs import Knob

if TYPE_CHECKING:  # imported in functions, since Optuna is slow to import
    from optuna.samplers import BaseSampler

MAX_COMBINATIONS = 10_000  # of a grid
MAX_SHARE = 0.3  # of proposals that a model makes in the hybrid of the study; with more it is an experiment
SamplerOf = Callable[[int], "BaseSampler"]  # by the number of the proposal, from 1


class GridTooLarge(ValueError):  # noqa: N818 - as SpaceExhausted
    """A grid has too many combinations."""

    def __init__(self, points: int, n_knobs: int, n_combinations: int) -> None:
        self.n_combinations = n_combinations
        super().__init__(
            f"a grid must have at most {MAX_COMBINATIONS:,} combinations, but {points} points for each of {n_knobs} "
            f"knobs give {n_combinations:,}; lower points, or search a smaller space"
        )


class SpaceExhausted(Exception):  # noqa: N818 - an end, not an error
    """Every point of a grid has been proposed."""

    def __init__(self, n_combinations: int) -> None:
        self.n_combinations = n_combinations
        super().__init__(f"all {n_combinations:,} points of the grid have been proposed; raise points to propose more")


class OptunaProposer(Component):
    """Tree-structured Parzen estimator over all knobs together.

    Source: Bergstra et al. (2011), *Algorithms for hyper-parameter optimization*, as Optuna's `TPESampler`.
    """

    kind: Literal["optuna"] = "optuna"
    reason: ClassVar[str] = "where good trials are denser than others"
    aliases: ClassVar[tuple[str, ...]] = ("tpe",)
    is_stateful: ClassVar[bool] = False
    n_startup_trials: PositiveInt = 10  # proposals drawn at random before the estimator has results

    def start(self, knobs: Sequence[Knob], seed: int) -> SamplerOf:  # noqa: ARG002 - one signature
        """Return the sampler of each proposal."""
        from optuna.samplers import TPESampler

        return lambda number: TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=self.n_startup_trials,
            seed=derive_seed(seed, number),
        )


class CmaEsProposer(Component):
    """Covariance matrix adaptation evolution strategy: a normal distribution that moves to better trials.

    Source: Hansen & Ostermeier (2001), *Completely derandomized self-adaptation in evolution strategies*, as Optuna's
    `CmaEsSampler`.
    """

    kind: Literal["cma_es"] = "cma_es"
    reason: ClassVar[str] = "drawn around the best trials so far"
    is_stateful: ClassVar[bool] = True
    population_size: Annotated[int, Field(ge=4)] | None = None  # trials of a generation; null: by the number of knobs

    def start(self, knobs: Sequence[Knob], seed: int) -> SamplerOf:  # noqa: ARG002 - one signature
        """Return the sampler of each proposal."""
        from optuna.samplers import CmaEsSampler

        return lambda number: CmaEsSampler(popsize=self.population_size, seed=derive_seed(seed, number))


class RandomProposer(Component):
    """Values drawn independently and uniformly, on a log scale where the knob has one.

    Source: Bergstra & Bengio (2012), *Random search for hyper-parameter optimization*, as Optuna's `RandomSampler`.
    """

    kind: Literal["random"] = "random"
    reason: ClassVar[str] = "drawn at random"
    is_stateful: ClassVar[bool] = False

    def start(self, knobs: Sequence[Knob], seed: int) -> SamplerOf:  # noqa: ARG002 - one signature
        """Return the sampler of each proposal."""
        from optuna.samplers import RandomSampler

        return lambda number: RandomSampler(seed=derive_seed(seed, number))


class GridProposer(Component):
    """Every combination of evenly spaced values once, in random order.

    Values of a knob with a log scale have equal ratios; those of a whole-number knob are rounded. The point depends on
    the number of the proposal only, where Optuna's `GridSampler` repeats points after a resume with gaps.
    """

    kind: Literal["grid"] = "grid"
    reason: ClassVar[str] = "next point of the grid"
    is_stateful: ClassVar[bool] = False
    points: Annotated[int, Field(ge=2, le=MAX_COMBINATIONS)] = 3  # values of each knob, both bounds included

    def start(self, knobs: Sequence[Knob], seed: int) -> SamplerOf:
        """Return the sampler of each proposal, which raises SpaceExhausted after the last point.

        Raises:
            GridTooLarge: if there are too many combinations.
        """
        from optuna.samplers import PartialFixedSampler, RandomSampler

        axes = {knob.name: self._values(knob) for knob in knobs}
        sizes = [len(values) for values in axes.values()]
        n_combinations = prod(sizes)
        if n_combinations > MAX_COMBINATIONS:
            raise GridTooLarge(self.points, len(knobs), n_combinations)
        order = np.random.default_rng(seed).permutation(n_combinations)

        def sampler(number: int) -> "BaseSampler":
            if number > n_combinations:
                raise SpaceExhausted(n_combinations)
            places = np.unravel_index(order[number - 1], sizes)
            point = {name: values[place] for (name, values), place in zip(axes.items(), places, strict=True)}
            return PartialFixedSampler(point, RandomSampler())

        return sampler

    def _values(self, knob: Knob) -> list[float]:
        values = spaced_values(knob, self.points)
        return list(dict.fromkeys(knob.clip(round(value) if knob.is_whole else value) for value in values))


class LlmProposer(Component):
    """Optimizer that leaves some proposals to a language model, and learns from every result.

    The model begins after a warm-up and sees the optimizer's own next proposal, its center and spread. Where an answer
    is bad, late or repeated, the optimizer proposes. A model that makes most of the proposals is an experiment.

    Source: Ferreira et al. (2026), *Can LLMs beat classical hyperparameter optimization algorithms?*, arXiv 2603.24647.
    """

    kind: Literal["llm"] = "llm"
    optimizer: Annotated[OptunaProposer | CmaEsProposer, Field(discriminator="kind")] = OptunaProposer()
    n_warmup_trials: NonNegativeInt = 10  # proposals before the first of the model
    share: Annotated[float, Field(gt=0.0, le=1.0)] = MAX_SHARE  # of the later proposals, which the model makes

    @property
    def reason(self) -> str:
        """Reason of the optimizer's proposals."""
        return self.optimizer.reason

    @property
    def is_stateful(self) -> bool:
        """Whether the optimizer keeps a state in the trials."""
        return self.optimizer.is_stateful

    @property
    def is_experiment(self) -> bool:
        """Whether the model makes more of the proposals than in the study."""
        return self.share > MAX_SHARE

    def is_turn_of_model(self, number: int) -> bool:
        """Whether the model makes a proposal, numbered from 1; its turns are evenly spread."""
        n_later = number - self.n_warmup_trials
        return n_later > 0 and floor(n_later * self.share) > floor((n_later - 1) * self.share)

    def start(self, knobs: Sequence[Knob], seed: int) -> SamplerOf:
        """Return the optimizer's sampler of each proposal."""
        return self.optimizer.start(knobs, seed)


def spaced_values(knob: Knob, n: int) -> list[float]:
    """Evenly spaced values of a knob, both bounds included; equal ratios on a log scale."""
    spaced = np.geomspace if knob.is_log else np.linspace
    return spaced(knob.low, knob.high, n).tolist()


def derive_seed(seed: int, number: int) -> int:
    """Seed of a proposal."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


Proposer = Annotated[
    OptunaProposer | CmaEsProposer | RandomProposer | GridProposer | LlmProposer,
    Field(discriminator="kind"),
    Family("proposers"),
]
