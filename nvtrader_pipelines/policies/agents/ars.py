"""Augmented random search over the actor's weights."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.backbones import Backbone, MlpBackbone

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

    def search(self, start: NDArray[np.float64], seed: int) -> "RandomSearch":
        """Begin a search at zero for a linear policy, else at the network's initial weights (D,)."""
        is_linear = isinstance(self.backbone, MlpBackbone) and not self.backbone.hidden
        return RandomSearch(self, np.zeros_like(start) if is_linear else start, seed, self.schedule())


class RandomSearch:
    """Search that steps along random directions, each tried with both signs."""

    def __init__(
        self, agent: ArsAgent, start: NDArray[np.float64], seed: int, learning_rate: Callable[[float], float]
    ) -> None:
        self.mean = start
        self._agent, self._learning_rate = agent, learning_rate
        self._generator = np.random.default_rng([seed, DIRECTIONS])
        self._directions = np.empty((0, len(start)))

    def ask(self) -> NDArray[np.float64]:
        """Return the candidates of the next generation, (C, D): all directions forward, then all backward."""
        self._directions = self._generator.standard_normal((self._agent.n_delta, len(self.mean)))
        steps = self._agent.delta_std * self._directions
        return np.concatenate([self.mean + steps, self.mean - steps])

    def tell(self, scores: NDArray[np.float64], remaining: float) -> None:
        """Move by the scores (C,) of the latest candidates, where a share of the training remains."""
        pairs = scores.reshape(2, -1)
        top = np.argsort(-pairs.max(axis=0), kind="stable")[: self._agent.n_top]
        deviation = pairs[:, top].std() or 1.0  # equal scores differ by nothing, so there is no step
        differences = (pairs[0, top] - pairs[1, top]) / deviation
        self.mean = self.mean + self._learning_rate(remaining) * (differences @ self._directions[top]) / len(top)
