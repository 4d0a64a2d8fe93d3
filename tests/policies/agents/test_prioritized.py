import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DDPG, DQN, TD3
from stable_baselines3.common.logger import Logger

from nvtrader_pipelines.policies.agents.prioritized import (
    PrioritizedDdpg,
    PrioritizedDqn,
    PrioritizedQrDqn,
    PrioritizedTd3,
)
from nvtrader_pipelines.policies.replay.priority_buffer import PriorityBuffer
from tests.markets import synthetic_panel
from tests.policies.agents.learners import CPU, bits, environment

PANEL = synthetic_panel(160, 3)
N_QUANTILES = 5


def played(algorithm, alpha, steps=96, **settings):
    """Model that played without an update, on portfolios or on a cart with a pole."""
    is_discrete = issubclass(algorithm, DQN | QRDQN)
    env = "CartPole-v1" if is_discrete else environment(PANEL)
    network = {"net_arch": [8], **({"n_quantiles": N_QUANTILES} if issubclass(algorithm, QRDQN) else {})}
    exponents = {"alpha": alpha, "beta": 0.4}
    model = algorithm(
        "MlpPolicy",
        env,
        learning_starts=steps,
        buffer_size=300,
        replay_buffer_class=PriorityBuffer,
        replay_buffer_kwargs=exponents,
        policy_kwargs=network,
        seed=0,
        **CPU,
        **settings,
    )
    model.set_logger(Logger(None, []))
    return model.learn(steps)


def of_actions(rows, actions):
    return torch.stack([row[..., action] for row, action in zip(rows, actions.tolist(), strict=True)])


@torch.no_grad()
def errors_by_hand(model, samples):
    """Errors of the samples: (B, critics) or, of quantiles, (B, quantiles, targets)."""
    after, taken = samples.next_observations, samples.actions[:, 0]
    if isinstance(model, QRDQN):
        quantiles = model.quantile_net_target(after)
        best = of_actions(quantiles, quantiles.mean(dim=1).argmax(dim=1))
        values = of_actions(model.quantile_net(samples.observations), taken)[:, :, None]
    elif isinstance(model, DQN):
        best = model.q_net_target(after).max(dim=1, keepdim=True).values
        values = of_actions(model.q_net(samples.observations), taken)[:, None]
    else:
        critics = torch.cat(model.critic_target(after, model.actor_target(after)), dim=1)
        best = critics.min(dim=1, keepdim=True).values
        values = torch.cat(model.critic(samples.observations, samples.actions), dim=1)
    target = samples.rewards + (1 - samples.dones) * model.gamma * best
    return values - (target[:, None, :] if values.ndim == 3 else target)


def huber(errors):
    return torch.where(errors.abs() > 1.0, errors.abs() - 0.5, errors.square() / 2.0)


def quantile_losses(errors):
    levels = ((torch.arange(N_QUANTILES) + 0.5) / N_QUANTILES)[None, :, None]
    return ((levels - (errors > 0.0).float()).abs() * huber(errors)).sum(dim=1).mean(dim=1)


CASES = {  # ours, the library's; losses per step and sizes of the errors, from `errors_by_hand`
    "td3": (PrioritizedTd3, TD3, lambda e: e.square().sum(dim=1), lambda e: e.abs().max(dim=1).values),
    "ddpg": (PrioritizedDdpg, DDPG, lambda e: e.square()[:, 0], lambda e: e.abs()[:, 0]),
    "dqn": (PrioritizedDqn, DQN, lambda e: huber(e)[:, 0], lambda e: e.abs()[:, 0]),
    "qr_dqn": (PrioritizedQrDqn, QRDQN, quantile_losses, lambda e: e.mean(dim=(1, 2)).abs()),
}


@pytest.mark.parametrize("case", CASES)
def test_update_with_equal_weights_equals_that_of_the_library(case):
    models = [played(algorithm, alpha=0.0) for algorithm in CASES[case][:2]]
    for model in models:
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - the generator that SB3 seeds
        for _ in range(3):
            model.train(gradient_steps=2, batch_size=32)
    assert bits(models[0]) == bits(models[1])
    assert models[0].logger.name_to_value == pytest.approx(models[1].logger.name_to_value)


@pytest.mark.parametrize("case", CASES)
def test_update_weights_the_loss_and_sets_priorities_by_the_errors(case):
    algorithm, _, losses, sizes = CASES[case]
    quiet = {"target_policy_noise": 1e-9} if algorithm is PrioritizedTd3 else {}
    model = played(algorithm, alpha=1.0, **quiet)
    buffer = model.replay_buffer
    buffer.priorities[:] = np.random.default_rng(0).uniform(0.1, 2.0, buffer.priorities.shape)
    np.random.seed(1)  # noqa: NPY002
    samples = buffer.sample(32)
    errors, weights = errors_by_hand(model, samples), buffer.weights(0.0)[:, 0]
    np.random.seed(1)  # noqa: NPY002
    model.train(gradient_steps=1, batch_size=32)
    logged = model.logger.name_to_value
    loss = logged["train/critic_loss" if "train/critic_loss" in logged else "train/loss"]
    assert weights.min() < 0.5
    assert loss == pytest.approx(float((weights * losses(errors)).mean()), rel=1e-5)
    np.testing.assert_allclose(
        buffer.priorities.ravel()[buffer.drawn], sizes(errors).numpy() + 1e-6, rtol=1e-4, atol=1e-6
    )
