"""Covariance matrix adaptation over the actor's weights."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.backbones import Backbone, SharedAssetBackbone

if TYPE_CHECKING:
    from nvtrader_pipelines.policies.agents.evolution_training import Generation, Scores


class CmaEsAgent(EvolutionLearner):
    """CMA-ES with a diagonal matrix (Ros & Hansen 2008) from the package cmaes; defaults untuned.

    A normal distribution of weights moves to the better half of each generation; the policy is its mean. A full matrix
    of 642 weights took ten times the CPU time for a tenth more reward by the same steps. Step sizes adapt by
    themselves: `learning_rate`, `final_learning_rate` and `gamma` have no effect.
    """

    kind: Literal["cma_es"] = "cma_es"
    aliases: ClassVar[tuple[str, ...]] = ("evolutionary",)
    backbones: ClassVar[frozenset[str]] = frozenset({"shared_asset"})
    total_timesteps: PositiveInt = 500_000  # steps of all portfolios together; the last generation is completed
    sigma: PositiveFloat = 0.1  # initial standard deviation of each weight
    population_size: Annotated[int, Field(ge=4)] = 24  # candidates per generation
    backbone: Backbone = SharedAssetBackbone()

    @property
    def n_candidates(self) -> int:
        """Number of candidates per generation."""
        return self.population_size

    def search(self, start: NDArray[np.float64], seed: int) -> "Generator[Generation, Scores]":
        """Yield the mean of the distribution, and a population drawn from it."""
        from cmaes import SepCMA

        optimizer = SepCMA(start, self.sigma, seed=seed, population_size=self.population_size)
        while True:
            candidates = np.stack([optimizer.ask() for _ in range(self.population_size)])
            scores, _ = yield optimizer.mean, candidates
            optimizer.tell(list(zip(candidates, (-scores).tolist(), strict=True)))  # it minimizes
