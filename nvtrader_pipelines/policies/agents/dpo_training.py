"""Direct preference optimization, epoch by epoch."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn

from nvtrader_pipelines.envs.actions import Action, ResidualAction, SimplexAction
from nvtrader_pipelines.envs.observations.builder import AccountView, ObservationBuilder
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.agents.checkpoints import (
    add_prefix,
    checkpoint_errors,
    numpy_arrays,
    optimizer_state,
    pack,
    restore_optimizer,
    strip_prefix,
    unpack,
)
from nvtrader_pipelines.policies.agents.dpo_settings import DpoSettings
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.fit import TrainingHooks
from nvtrader_pipelines.policies.preference_data import PreferenceData, Tuning
from nvtrader_pipelines.policies.preference_losses import LogProbs, centered_log_prob, preference_loss
from nvtrader_pipelines.policies.rollout_tables import PREFERENCE_EPOCH

SIGMA = 1.0  # deviation of every logit, our choice: logits of portfolios differ by about 1


@dataclass(frozen=True, eq=False)
class PairTensors:
    """P pairs as the network takes them."""

    observations: Tensor  # (P, length)
    chosen: Tensor  # (P, A) logits, NaN where no weight depends on one
    rejected: Tensor  # (P, A)
    reference: Tensor  # (P, A) of the starting policy
    flip: Tensor  # (P,)
    weight: Tensor  # (P,)

    def __len__(self) -> int:
        return len(self.weight)

    def select(self, rows: Tensor) -> "PairTensors":
        """Select some pairs."""
        return PairTensors(**{name: tensor[rows] for name, tensor in vars(self).items()})


class ActionLogits:
    """Logits that weights depend on: of the network's actions, and of target weights."""

    def __init__(self, action: Action, n_symbols: int) -> None:
        if not isinstance(action, SimplexAction | ResidualAction):
            raise ValueError(
                f"dpo needs an action whose weights can be inverted, simplex or residual, but environment.action is "
                f"{action.kind}; tune a run with one of them"
            )
        self.action: SimplexAction | ResidualAction = action
        self._n_shifted = n_symbols + isinstance(action, SimplexAction)  # whose common shift changes no weight

    def of_actions(self, actions: Tensor) -> Tensor:
        """Logits (n, A) of raw actions (n, A)."""
        action, within = self.action, actions.clamp(-self.action.bound, self.action.bound)
        if isinstance(action, SimplexAction):
            return within
        tilts = torch.full((actions.shape[1],), action.tilt)
        tilts[-1] = action.exposure_tilt
        return tilts * within.tanh()

    def log_prob(self, means: Tensor, logits: Tensor) -> Tensor:
        """Log-probability (n,), up to a constant, of logits (n, A) around those of a policy."""
        return centered_log_prob(means, logits, SIGMA, self._n_shifted)


class DpoTraining:
    """State of a training between two epochs: policy, best tensors, optimizer and random stream."""

    def __init__(
        self, agent: DpoSettings, simulation: PortfolioSimulation, seed: int, hooks: TrainingHooks, tuning: Tuning
    ) -> None:
        _require_within(simulation, tuning.pairs)
        torch.manual_seed(seed)
        self.log = TrainingLog(hooks, simulation, agent.total_timesteps, seed)
        self._agent, self._logits = agent, ActionLogits(simulation.spec.action, len(simulation.panel.symbols))
        self._policy = _starting_policy(agent, simulation, tuning.tensors)
        tensors, kept = pair_tensors(self._policy, simulation.builder, simulation.panel, tuning.pairs, self._logits)
        if agent.labels == "soft":
            tensors = replace(tensors, weight=torch.ones_like(tensors.weight))
        is_stop = torch.from_numpy(tuning.pairs.is_holdout[kept])
        self._train, self._stop = tensors.select(~is_stop), tensors.select(is_stop)
        if not len(self._train):
            raise ValueError(
                f"dpo needs pairs to train on, but none of {len(tuning.pairs)} lies in this training and can be "
                "reached by its action; build pairs of this run"
            )
        self.timesteps = self._epoch = self._best_epoch = 0
        self._best, self._best_loss = self._tensors(), float("inf")
        if hooks.resume_from is None:
            self._record()
        else:
            self._restore(hooks.resume_from)

    @property
    def is_done(self) -> bool:
        """Whether all pairs were shown, or the loss on the pairs that stop the training no longer falls."""
        is_stuck = len(self._stop) > 0 and self._epoch - self._best_epoch >= self._agent.patience
        return is_stuck or self.timesteps >= self._agent.total_timesteps

    def run_epoch(self) -> None:
        """Show every pair once."""
        self.log.start_rollout(self.timesteps, self.save)
        agent, optimizer = self._agent, self._policy.optimizer
        for group in optimizer.param_groups:
            group["lr"] = agent.schedule()(1.0 - self.timesteps / agent.total_timesteps)
        self._policy.set_training_mode(True)
        for rows in torch.randperm(len(self._train)).split(agent.batch_size):
            batch = self._train.select(rows)
            losses, log_probs, _ = self._losses(batch)
            anchor = -log_probs.chosen / batch.chosen.shape[1]  # a logit
            loss = (batch.weight * (losses + agent.sft_weight * anchor)).sum() / batch.weight.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._policy.parameters(), agent.max_grad_norm)
            optimizer.step()
        self._epoch += 1
        self.timesteps += len(self._train)
        self._record()
        self.log.end_rollout(self.timesteps)

    def best_policy(self) -> Any:
        """Policy of the epoch with the lowest loss on the pairs that stop the training; without such, of the last."""
        self._policy.load_state_dict(self._best)
        return self._policy

    def save(self) -> bytes:
        """Return a checkpoint."""
        log_arrays, log_facts = self.log.state()
        tensors, numbers = optimizer_state(self._policy.optimizer)
        arrays = {
            **add_prefix("policy", self._policy.state_dict()),
            **add_prefix("best", self._best),
            **add_prefix("optimizer", tensors),
            **add_prefix("log", log_arrays),
            "torch_random": torch.get_rng_state(),
        }
        facts: dict[str, Any] = {
            "agent": self._agent.model_dump_json(),
            "timesteps": self.timesteps,
            "epoch": self._epoch,
            "best_epoch": self._best_epoch,
            "best_loss": self._best_loss,
            "epochs": self.log.epochs.to_dicts(),
            "optimizer": numbers,
            "log": log_facts,
        }
        return pack(arrays, facts)

    def _restore(self, content: bytes) -> None:
        arrays, facts = unpack(content)
        with checkpoint_errors():
            if facts["agent"] != self._agent.model_dump_json():
                raise ValueError(f"its agent is {facts['agent']}, not {self._agent.model_dump_json()}")
            self.log.restore(numpy_arrays(arrays, "log"), facts["log"])
            self.log.epochs = pl.DataFrame(facts["epochs"], schema=PREFERENCE_EPOCH)
            self._policy.load_state_dict(strip_prefix("policy", arrays))
            self._best = strip_prefix("best", arrays)
            restore_optimizer(self._policy.optimizer, strip_prefix("optimizer", arrays), facts["optimizer"])
            self.timesteps, self._epoch = facts["timesteps"], facts["epoch"]
            self._best_epoch, self._best_loss = facts["best_epoch"], facts["best_loss"]
            torch.set_rng_state(arrays["torch_random"])

    def _tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._policy.state_dict().items()}

    def _losses(self, pairs: PairTensors) -> tuple[Tensor, LogProbs, Tensor]:
        """Losses (n,), log-probabilities and the policy's logits (n, A)."""
        agent, log_prob = self._agent, self._logits.log_prob
        logits = self._logits.of_actions(means(self._policy, pairs.observations))
        log_probs = LogProbs(
            log_prob(logits, pairs.chosen),
            log_prob(logits, pairs.rejected),
            log_prob(pairs.reference, pairs.chosen),
            log_prob(pairs.reference, pairs.rejected),
        )
        smoothing = pairs.flip if agent.labels == "soft" else agent.label_smoothing
        return preference_loss(agent.loss, log_probs, beta=agent.beta, label_smoothing=smoothing), log_probs, logits

    @torch.no_grad()
    def _record(self) -> None:
        """Record the epoch, and keep its policy if it is the best so far."""
        self._policy.set_training_mode(False)
        rows = {name: self._summary(pairs) for name, pairs in (("train", self._train), ("stop", self._stop))}
        frame = pl.DataFrame(
            [{"epoch": self._epoch, "split": name, **row} for name, row in rows.items() if row],
            schema=PREFERENCE_EPOCH,
        )
        self.log.epochs = pl.concat([self.log.epochs, frame])
        self.log.add_reward(rows["train"]["margin"])
        for name, row in rows.items():
            for figure, value in row.items():
                self.log.logger.record(f"{name}/{figure}", value)
        loss = rows["stop"]["loss"] if rows["stop"] else -float(self._epoch)  # without pairs to stop by, the last
        if loss < self._best_loss:
            self._best, self._best_loss, self._best_epoch = self._tensors(), loss, self._epoch

    def _summary(self, pairs: PairTensors) -> dict[str, float]:
        if not len(pairs):
            return {}
        losses, log_probs, logits = self._losses(pairs)
        ratios = log_probs.chosen_log_ratios, log_probs.rejected_log_ratios
        return {
            "n_pairs": len(pairs),
            "loss": float((pairs.weight * losses).sum() / pairs.weight.sum()),
            "log_ratio_chosen": float(ratios[0].mean()),
            "log_ratio_rejected": float(ratios[1].mean()),
            "margin": float(self._agent.beta * (ratios[0] - ratios[1]).mean()),
            "accuracy": float((ratios[0] > ratios[1]).float().mean()),
            "kl": -float(self._logits.log_prob(pairs.reference, logits).mean()),
        }


def _starting_policy(agent: DpoSettings, simulation: PortfolioSimulation, tensors: bytes) -> Any:
    policy_class, policy_kwargs = agent.policy(simulation.builder.layout)
    policy = policy_class(observation_space(simulation), action_space(simulation), agent.schedule(), **policy_kwargs)
    try:
        policy.load_state_dict(load(tensors))
    except RuntimeError as error:
        raise ValueError(
            f"the starting policy must have the network of the agent's backbone, but its tensors do not fit "
            f"({error}); copy agent.backbone and log_std_init from the experiment of run {agent.start}"
        ) from error
    return policy


def means(policy: Any, observations: Tensor) -> Tensor:
    """Mean actions (n, A) of a policy."""
    return policy.get_distribution(observations).distribution.mean


@torch.no_grad()
def pair_tensors(
    policy: Any, builder: ObservationBuilder, panel: MarketPanel, pairs: PreferenceData, logits: "ActionLogits"
) -> tuple[PairTensors, NDArray[np.int64]]:
    """Tensors of the pairs that the action can reach, under the starting policy, and their places among all pairs."""
    chosen, rejected = (
        logits.action.logits(panel, weights, pairs.decided_at) for weights in (pairs.chosen, pairs.rejected)
    )
    places = np.flatnonzero(chosen.is_reachable & rejected.is_reachable)
    kept = pairs.select(places)
    observations = torch.from_numpy(builder.observe(kept.decided_at, AccountView(kept.held, kept.drawdown)))
    policy.set_training_mode(False)
    reference = logits.of_actions(means(policy, observations))

    def tensor(values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values[places].astype(np.float32))

    flip, weight = (torch.from_numpy(values.astype(np.float32)) for values in (kept.flip, kept.weight))
    return PairTensors(observations, tensor(chosen.values), tensor(rejected.values), reference, flip, weight), places


@torch.no_grad()
def pair_gains(
    agent: DpoSettings,
    environment: EnvSpec,
    panel: MarketPanel,
    tuning: Tuning,
    tensors: dict[str, Tensor],
) -> NDArray[np.float64]:
    """How much more the chosen than the rejected portfolio of pairs (P,) gained in log-probability since the start.

    NaN where the action cannot reach one of the two.
    """
    builder = environment.observation.start(panel, tuning.scaler, environment.lookback)
    logits, size = ActionLogits(environment.action, len(panel.symbols)), environment.action.size(len(panel.symbols))
    observations = spaces.Box(-np.inf, np.inf, (builder.length,), np.float32)
    actions = spaces.Box(-size.bound, size.bound, (size.length,), np.float32)
    start, tuned = (agent.network(builder.layout, observations, actions) for _ in range(2))
    start.load_state_dict(load(tuning.tensors))
    tuned.load_state_dict(tensors)
    tuned.set_training_mode(False)
    pairs, places = pair_tensors(start, builder, panel, tuning.pairs, logits)
    now = logits.of_actions(means(tuned, pairs.observations))
    gained = [
        logits.log_prob(now, weights) - logits.log_prob(pairs.reference, weights)
        for weights in (pairs.chosen, pairs.rejected)
    ]
    gains = np.full(len(tuning.pairs), np.nan)
    gains[places] = (gained[0] - gained[1]).numpy()
    return gains


def _require_within(simulation: PortfolioSimulation, pairs: PreferenceData) -> None:
    """Raise unless all pairs that are trained on were decided in the training windows."""
    inside = np.zeros(len(pairs), np.bool_)
    for first, last in simulation.stretches:
        inside |= (pairs.decided_at >= first - 1) & (pairs.decided_at < last)
    outside = np.flatnonzero(~inside)
    if len(outside):
        session = simulation.panel.sessions[pairs.decided_at[outside[0]]]
        raise ValueError(
            f"pairs must be decided in the training of their fold, but {len(outside)} of {len(pairs)} are not, such as "
            f"that of {session}; build the pairs of this run again"
        )
