"""Training by a search over weights, generation by generation."""

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.agents.callbacks import TrainingLog
from nvtrader_pipelines.policies.agents.checkpoints import add_prefix, checkpoint_errors, numpy_arrays, pack, unpack
from nvtrader_pipelines.policies.agents.evolution import EvolutionLearner
from nvtrader_pipelines.policies.agents.grouped_episodes import RunningEpisodes, start_groups
from nvtrader_pipelines.policies.fit import TrainingHooks

STARTS = 0x45  # separates the random stream of the starts from those of the search and the sampler


class Actor(nn.Module):
    """Deterministic actions of a policy as a module, whose weights a functional call can replace."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> Tensor:
        """Return actions (n, A)."""
        return self.policy._predict(observation, deterministic=True)  # noqa: SLF001 - no public method takes tensors

    def searched(self, observation: Tensor) -> dict[str, nn.Parameter]:
        """Parameters that the actions for an observation depend on: neither the critic's nor the deviation."""
        parameters = dict(self.named_parameters())
        gradients = torch.autograd.grad(self(observation).sum(), list(parameters.values()), allow_unused=True)
        used = [gradient is not None for gradient in gradients]
        return {name: parameter for (name, parameter), is_used in zip(parameters.items(), used, strict=True) if is_used}


class EvolutionTraining:
    """State of a training between two generations: the search, and the random stream of the starts."""

    def __init__(
        self, agent: EvolutionLearner, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks
    ) -> None:
        torch.manual_seed(seed)
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        spaces = observation_space(simulation), action_space(simulation)
        self._policy = agent.network(simulation.builder.layout, *spaces)
        agent.prepare(self._policy, simulation, seed)
        self._policy.set_training_mode(False)
        self._actor = Actor(self._policy)
        self._searched = self._actor.searched(torch.as_tensor(simulation.observe()))
        start = parameters_to_vector(self._searched.values()).detach().double().numpy()
        self._search = agent.search(start, seed)
        self._agent, self._simulation = agent, simulation
        self._generator = np.random.default_rng([seed, STARTS])
        self._scores: list[NDArray[np.float64]] = []  # (C,) of each generation
        self._timesteps: list[int] = []  # after each generation
        if hooks.resume_from is not None:
            self._restore(hooks.resume_from)

    @property
    def timesteps(self) -> int:
        """Steps of all portfolios so far."""
        return self._timesteps[-1] if self._timesteps else 0

    def update(self) -> None:
        """Score one generation of candidates and move the search."""
        self.log.start_rollout(self.timesteps, self.save)
        scores, n_steps = self._evaluate(self._search.ask())
        self.log.logger.record("train/score", float(scores.mean()))
        self.log.logger.record("train/score_std", float(scores.std()))
        self._tell(scores, self.timesteps + n_steps)
        self.log.end_rollout(self.timesteps)

    def finish(self) -> ActorCriticPolicy:
        """Return the policy with the weights that the search has reached."""
        vector_to_parameters(torch.as_tensor(self._search.mean).float(), self._searched.values())
        return self._policy

    def save(self) -> bytes:
        """Return a checkpoint: the scores, from which the search is repeated, since its state has no public form."""
        log_arrays, log_facts = self.log.state()
        arrays = {
            **add_prefix("log", log_arrays),
            "scores": np.stack(self._scores),
            "timesteps": np.array(self._timesteps),
        }
        facts = {
            "agent": self._agent.model_dump_json(),
            "log": log_facts,
            "generator": self._generator.bit_generator.state,
        }
        return pack(arrays, facts)

    def _restore(self, content: bytes) -> None:
        arrays, facts = unpack(content)
        with checkpoint_errors():
            if facts["agent"] != self._agent.model_dump_json():
                raise ValueError(f"its agent is {facts['agent']}, not {self._agent.model_dump_json()}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            self._generator.bit_generator.state = facts["generator"]
            for scores, timesteps in zip(arrays["scores"].numpy(), arrays["timesteps"].tolist(), strict=True):
                self._search.ask()
                self._tell(scores, timesteps)

    def _tell(self, scores: NDArray[np.float64], timesteps: int) -> None:
        self._scores.append(scores)
        self._timesteps.append(timesteps)
        self._search.tell(scores, 1.0 - timesteps / self._agent.total_timesteps)

    @torch.no_grad()
    def _evaluate(self, candidates: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
        """Play episodes of every candidate (C, D); return mean total rewards (C,) and the number of steps."""
        weights, n_candidates = self._unflatten(candidates), len(candidates)
        act = vmap(lambda own, observation: functional_call(self._actor, own, (observation,)), (0, 1), 1)
        start_groups(self._simulation, self._generator, n_candidates)
        episodes, n_steps = RunningEpisodes(self._simulation, self.log), 0
        totals = np.zeros(len(episodes.running))
        while episodes.running.any():
            running = episodes.running
            observation = torch.as_tensor(episodes.observation).unflatten(0, (-1, n_candidates))
            step = episodes.step(act(weights, observation).flatten(0, 1))
            totals += step.reward * running
            n_steps += int(running.sum())
        return totals.reshape(-1, n_candidates).mean(axis=0), n_steps

    def _unflatten(self, candidates: NDArray[np.float64]) -> dict[str, Tensor]:
        """Split candidates (C, D) into the searched parameters, each (C, *shape)."""
        sizes = [parameter.numel() for parameter in self._searched.values()]
        parts = torch.as_tensor(candidates).float().split(sizes, dim=1)
        return {
            name: part.unflatten(1, parameter.shape)
            for (name, parameter), part in zip(self._searched.items(), parts, strict=True)
        }
