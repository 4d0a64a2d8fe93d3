"""Training by a search over weights, generation by generation."""

from collections.abc import Callable, Generator

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import BasePolicy
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.agents.checkpoints import add_prefix, checkpoint_errors, numpy_arrays, pack, unpack
from nvtrader_pipelines.policies.agents.grouped_episodes import RunningEpisodes, start_groups
from nvtrader_pipelines.policies.agents.learner import Learner
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks

Scores = tuple[NDArray[np.float64], float]  # of the candidates (C,), and the remaining share of the training
Generation = tuple[NDArray[np.float64], NDArray[np.float64]]  # the policy's weights (D,), candidates to score (C, D)
Search = Callable[[NDArray[np.float64], int], Generator[Generation, Scores]]  # from initial weights (D,) and a seed
STARTS = 0x45  # separates the random stream of the starts from those of the search and the sampler


class Actor(nn.Module):
    """Deterministic actions of a policy as a module, whose weights a functional call can replace."""

    def __init__(self, policy: BasePolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> Tensor:
        """Return actions (n, A)."""
        return self.policy._predict(observation, deterministic=True)  # noqa: SLF001 - no public method takes tensors

    def searched(self, observation: Tensor) -> dict[str, nn.Parameter]:
        """Parameters that the actions for an observation depend on: neither the critic's nor the deviation."""
        names, parameters = zip(*self.named_parameters(), strict=True)
        gradients = torch.autograd.grad(self(observation).sum(), parameters, allow_unused=True)
        triples = zip(names, parameters, gradients, strict=True)
        return {name: parameter for name, parameter, gradient in triples if gradient is not None}


class EvolutionTraining:
    """State of a training between two generations: the search, and the random stream of the starts."""

    def __init__(
        self, agent: Learner, search: Search, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks
    ) -> None:
        torch.manual_seed(seed)
        self.timesteps = 0
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        spaces = observation_space(simulation), action_space(simulation)
        self._policy = agent.network(simulation.builder.layout, *spaces)
        agent.prepare(self._policy, simulation, seed, hooks.start)
        self._policy.set_training_mode(False)
        self._actor = Actor(self._policy)
        self._searched = self._actor.searched(torch.as_tensor(simulation.observe()))
        start = parameters_to_vector(self._searched.values()).detach().double().numpy()
        self._search = search(start, seed)
        self._mean, self._candidates = next(self._search)
        self._agent, self._simulation = agent, simulation
        self._generator = np.random.default_rng([seed, STARTS])
        self._history: list[tuple[NDArray[np.float64], int]] = []  # scores (C,) and steps of each generation
        if hooks.resume_from is not None:
            self._restore(hooks.resume_from)

    def update(self) -> None:
        """Score one generation of candidates and move the search."""
        self.log.start_rollout(self.timesteps, self.save)
        scores, n_steps = self._score()
        self.log.logger.record("train/score", float(scores.mean()))
        self.log.logger.record("train/score_std", float(scores.std()))
        self._move(scores, n_steps)
        self.log.end_rollout(self.timesteps)

    def finish(self) -> BasePolicy:
        """Return the policy with the weights that the search has reached."""
        vector_to_parameters(torch.as_tensor(self._mean).float(), self._searched.values())
        return self._policy

    def save(self) -> bytes:
        """Return a checkpoint: the scores, from which the search is repeated, since its state has no public form."""
        log_arrays, log_facts = self.log.state()
        scores, steps = zip(*self._history, strict=True)
        arrays = {**add_prefix("log", log_arrays), "scores": np.stack(scores), "steps": np.array(steps)}
        facts = {"agent": self._agent.model_dump_json(), "generator": self._generator.bit_generator.state}
        return pack(arrays, {**facts, "log": log_facts})

    def _restore(self, content: bytes) -> None:
        arrays, facts = unpack(content)
        with checkpoint_errors():
            if facts["agent"] != self._agent.model_dump_json():
                raise ValueError(f"its agent is {facts['agent']}, not {self._agent.model_dump_json()}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            self._generator.bit_generator.state = facts["generator"]
            for scores, n_steps in zip(arrays["scores"].numpy(), arrays["steps"].tolist(), strict=True):
                self._move(scores, n_steps)

    def _move(self, scores: NDArray[np.float64], n_steps: int) -> None:
        self._history.append((scores, n_steps))
        self.timesteps += n_steps
        remaining = 1.0 - self.timesteps / self._agent.total_timesteps
        self._mean, self._candidates = self._search.send((scores, remaining))

    @torch.no_grad()
    def _score(self) -> tuple[NDArray[np.float64], int]:
        """Play episodes of every candidate; return mean total rewards (C,) and the number of steps."""
        weights, n_candidates = self._weights(), len(self._candidates)
        act = vmap(lambda own, observation: functional_call(self._actor, own, (observation,)), (0, 1), 1)
        start_groups(self._simulation, self._generator, n_candidates)
        episodes, n_steps = RunningEpisodes(self._simulation, self.log), 0
        totals = np.zeros(len(episodes.running))
        while episodes.running.any():
            running = episodes.running
            observation = torch.tensor(episodes.observation).unflatten(0, (-1, n_candidates))  # aligned
            step = episodes.step(act(weights, observation).flatten(0, 1))
            totals += step.reward * running
            n_steps += int(running.sum())
        return totals.reshape(-1, n_candidates).mean(axis=0), n_steps

    def _weights(self) -> dict[str, Tensor]:
        """Searched parameters of all candidates, each (C, *shape)."""
        sizes = [parameter.numel() for parameter in self._searched.values()]
        parts = torch.as_tensor(self._candidates).float().split(sizes, dim=1)
        shaped = zip(self._searched.items(), parts, strict=True)
        return {name: part.unflatten(1, parameter.shape) for (name, parameter), part in shaped}
