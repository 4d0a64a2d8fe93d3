"""Covariance matrix adaptation over the actor's weights."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.backbones import Backbone, SharedAssetBackbone

if TYPE_CHECKING:
    from cmaes import SepCMA


class CmaEsAgent(EvolutionLearner):
    """CMA-ES with a diagonal matrix (Ros & Hansen 2008) from the package cmaes; defaults untuned.

    A normal distribution of weights moves to the better half of each generation; the policy is its mean. A full matrix
    of 642 weights took ten times the CPU time and gained hardly more by the same steps. Step sizes adapt by
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

    def search(self, start: NDArray[np.float64], seed: int) -> "CmaSearch":
        """Begin a search at the network's initial weights (D,)."""
        from cmaes import SepCMA

        return CmaSearch(SepCMA(start, self.sigma, seed=seed, population_size=self.population_size))


class CmaSearch:
    """Search by an optimizer of cmaes, which minimizes."""

    def __init__(self, optimizer: "SepCMA") -> None:
        self._optimizer = optimizer
        self._candidates = np.empty((0, optimizer.dim))

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean of the distribution, (D,)."""
        return self._optimizer.mean

    def ask(self) -> NDArray[np.float64]:
        """Return the candidates of the next generation, (C, D)."""
        self._candidates = np.stack([self._optimizer.ask() for _ in range(self._optimizer.population_size)])
        return self._candidates

    def tell(self, scores: NDArray[np.float64], remaining: float) -> None:  # noqa: ARG002 - step sizes adapt
        """Move by the scores (C,) of the latest candidates."""
        self._optimizer.tell(list(zip(self._candidates, (-scores).tolist(), strict=True)))
