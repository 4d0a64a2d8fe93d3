"""Learners that search the actor's weights by episode rewards alone, without gradients or a critic."""

from abc import abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from nvtrader_pipelines.policies.agents.actor import ActorLearner
from nvtrader_pipelines.policies.fit import TrainingHooks

if TYPE_CHECKING:
    from stable_baselines3.common.policies import BasePolicy

    from nvtrader_pipelines.envs.simulation import PortfolioSimulation
    from nvtrader_pipelines.policies.agents.evolution_training import Generation, Scores
    from nvtrader_pipelines.policies.agents.training_log import TrainingLog


class EvolutionLearner(ActorLearner):
    """Learner that scores a generation of candidate weights by episodes from common starts.

    A candidate's score is the mean undiscounted reward of its `n_starts` episodes, each played to its end without
    noise in the actions, so `gamma` has no effect. Only the weights that the action depends on are searched.
    """

    n_starts: PositiveInt = 4  # per generation, common to all candidates

    @property
    @abstractmethod
    def n_candidates(self) -> int:
        """Number of candidates per generation."""

    @abstractmethod
    def search(self, start: NDArray[np.float64], seed: int) -> "Generator[Generation, Scores]":
        """Yield generations from the network's initial weights (D,) on, each after the scores of the one before.

        They depend on nothing else, so a checkpoint needs the scores alone.
        """

    @property
    def n_portfolios(self) -> int:
        """Number of parallel portfolios."""
        return self.n_starts * self.n_candidates

    def learn(
        self, simulation: "PortfolioSimulation", seed: int, hooks: TrainingHooks
    ) -> "tuple[BasePolicy, TrainingLog]":
        """Train a network on the simulation and return it with the log.

        Raises:
            CheckpointError: if the checkpoint to resume from is damaged or of another training.
        """
        import torch

        from nvtrader_pipelines.policies.agents.evolution_training import EvolutionTraining

        with torch.random.fork_rng(devices=[]):
            training = EvolutionTraining(self, self.search, simulation, seed, hooks)
        while training.timesteps < self.total_timesteps:
            training.update()
        return training.finish(), training.log
