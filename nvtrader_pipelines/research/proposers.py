"""Proposers of a search: samplers of Optuna, each seeded anew for every proposal."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.research.knobs import Knob

if TYPE_CHECKING:  # imported in functions, since Optuna is slow to import
    from optuna.samplers import BaseSampler

MAX_COMBINATIONS = 10_000  # of a grid
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
            multivariate=True, constant_liar=True, n_startup_trials=self.n_startup_trials, seed=_derive(seed, number)
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

        return lambda number: CmaEsSampler(popsize=self.population_size, seed=_derive(seed, number))


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

        return lambda number: RandomSampler(seed=_derive(seed, number))


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
        spaced = np.geomspace if knob.is_log else np.linspace
        values = spaced(knob.low, knob.high, self.points).tolist()
        return list(dict.fromkeys(knob.clip(round(value) if knob.is_whole else value) for value in values))


def _derive(seed: int, number: int) -> int:
    """Seed of a proposal."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


Proposer = Annotated[
    OptunaProposer | CmaEsProposer | RandomProposer | GridProposer, Field(discriminator="kind"), Family("proposers")
]
