"""Augmented random search over the actor's weights."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.agents.evolution_training import Generation, Scores

DIRECTIONS = 0x41  # separates the random stream of the directions from those of starts and sampler


class ArsAgent(EvolutionLearner):
    """Augmented random search (Mania et al. 2018, V1-t) on scaled observations; defaults untuned.

    A generation tries both signs of `n_delta` random directions; the update weighs the `n_top` best directions by
    their difference in score, over the scores' standard deviation. The default linear policy starts at zero, any
    other network at its initialization. `gamma` has no effect.
    """

    kind: Literal["ars"] = "ars"
    backbones: ClassVar[frozenset[str]] = frozenset({"mlp", "shared_asset"})
    total_timesteps: PositiveInt = 500_000  # steps of all portfolios together; the last generation is completed
    learning_rate: Annotated[float, Field(ge=1e-5, le=1.0)] = 0.02
    n_delta: PositiveInt = 8  # directions per generation
    n_top: PositiveInt = 8  # directions in the update, by the better score of their two signs
    delta_std: PositiveFloat = 0.05  # standard deviation of a direction's weights
    backbone: Backbone = MlpBackbone(hidden=())

    @model_validator(mode="after")
    def _require_top_among_directions(self) -> Self:
        if self.n_top > self.n_delta:
            raise ValueError(f"n_top must be at most n_delta = {self.n_delta}, but is {self.n_top}; lower it")
        return self

    @property
    def n_candidates(self) -> int:
        """Number of candidates per generation."""
        return 2 * self.n_delta

    def search(self, start: NDArray[np.float64], seed: int) -> "Generator[Generation, Scores]":
        """Yield the weights and both signs of random directions, all forward, then all backward."""
        is_linear = isinstance(self.backbone, MlpBackbone) and not self.backbone.hidden
        mean, learning_rate = np.zeros_like(start) if is_linear else start, self.schedule()
        generator = np.random.default_rng([seed, DIRECTIONS])
        while True:
            directions = generator.standard_normal((self.n_delta, len(mean)))
            steps = self.delta_std * directions
            scores, remaining = yield mean, np.concatenate([mean + steps, mean - steps])
            pairs = scores.reshape(2, -1)
            top = np.argsort(-pairs.max(axis=0), kind="stable")[: self.n_top]
            deviation = pairs[:, top].std() or 1.0  # equal scores have no difference either, so there is no step
            differences = (pairs[0, top] - pairs[1, top]) / deviation
            mean = mean + learning_rate(remaining) * (differences @ directions[top]) / len(top)
