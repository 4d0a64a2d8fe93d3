from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CONTEXT_COLUMNS
from nvtrader_pipelines.policies.agents.analytic_ppo import AnalyticPpo
from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer
from nvtrader_pipelines.policies.backbones import SharedAssetBackbone
from nvtrader_pipelines.policies.networks.gaussian_policy import GaussianPolicy
from nvtrader_pipelines.policies.networks.shared_asset_network import SharedAssetPolicy
from tests.markets import synthetic_panel
from tests.policies.agents.learners import trained

N_ENVS, N_STEPS = 4, 16
BOUNDS = (1, 1e-6), (10, 1e-4)  # epochs, and the relative difference after them
layers = st.lists(st.integers(1, 12), min_size=1, max_size=3)
updates = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([32, 64]),
        "clip_range": st.sampled_from([0.02, 0.2, 5.0]),
        "clip_range_vf": st.sampled_from([None, 0.1, 5.0]),
        "ent_coef": st.sampled_from([0.0, 0.05]),
        "vf_coef": st.sampled_from([0.0, 0.5]),
        "max_grad_norm": st.sampled_from([0.01, 0.5, 100.0]),
        "normalize_advantage": st.booleans(),
    }
)


class Spaces(gym.Env):
    """Environment of given sizes that is never stepped."""

    def __init__(self, n_inputs, n_actions):
        self.observation_space = gym.spaces.Box(-9.0, 9.0, (n_inputs,))
        self.action_space = gym.spaces.Box(-9.0, 9.0, (n_actions,))


def model_of(algorithm, buffer, sizes, network, rollout, policy=GaussianPolicy, **options):
    """A model with a whole rollout, whose ratios and value changes lie within and beyond the clip ranges."""
    env = DummyVecEnv([lambda: Spaces(*sizes)] * N_ENVS)
    model = algorithm(
        policy, env, n_steps=N_STEPS, seed=0, device="cpu", learning_rate=1e-3, policy_kwargs=deepcopy(network),
        rollout_buffer_class=buffer, **options
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    for name, values in rollout.items():
        setattr(model.rollout_buffer, name, values.copy())
    flat = [torch.from_numpy(rollout[name]).flatten(0, 1) for name in ("observations", "actions")]
    with torch.no_grad():
        model.rollout_buffer.log_probs += model.policy.evaluate_actions(*flat)[1].view(N_STEPS, N_ENVS).numpy()
    model.rollout_buffer.full = True
    np.random.seed(1)  # noqa: NPY002 - it shuffles SB3's minibatches
    return model


def rollout_of(sizes):
    draw = np.random.default_rng(0).normal
    shape = N_STEPS, N_ENVS
    arrays = {name: draw(size=shape) for name in ("values", "advantages", "returns")}
    log_probs = draw(0.0, 0.2, shape)  # less those of the first policy
    boxes = {"observations": draw(size=(*shape, sizes[0])), "actions": draw(size=(*shape, sizes[1]))}
    return {name: array.astype(np.float32) for name, array in {**arrays, **boxes, "log_probs": log_probs}.items()}


def parameters(model):
    return torch.cat([parameter.detach().double().flatten() for parameter in model.policy.parameters()])


def assert_same_update(sizes, network, dtype, n_epochs, tolerance, **options):
    """Require the parameters and scalars of SB3's update, computed in `dtype`."""
    rollout = rollout_of(sizes)
    theirs = model_of(PPO, RolloutBuffer, sizes, network, rollout, n_epochs=n_epochs, **options)
    start = parameters(theirs)
    theirs.policy.to(dtype).extract_features = lambda observations, *_: observations.to(dtype)
    theirs.train()
    ours = model_of(AnalyticPpo, InPlaceRolloutBuffer, sizes, network, rollout, n_epochs=n_epochs, **options)
    ours.train()
    expected = parameters(theirs)
    assert ours.network is not None
    assert float((parameters(ours) - expected).norm() / expected.norm()) <= tolerance
    assert float((expected - start).norm()) > 0.0
    for name, scalar in theirs.logger.name_to_value.items():
        assert ours.logger.name_to_value[name] == pytest.approx(scalar, rel=1e-3, abs=1e-5), name


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.tuples(st.integers(1, 30), st.integers(1, 5)),
    layers,
    layers,
    st.sampled_from([nn.Tanh, nn.ReLU]),
    updates,
    st.sampled_from(
        [(BOUNDS[0], torch.float32), *((bound, torch.float64) for bound in BOUNDS)]
    ),  # kinks amplify rounding
)
@example((702, 21), [64, 64], [64, 64], nn.Tanh, {"batch_size": 64, "clip_range": 0.2}, ((10, 1e-4), torch.float32))
def test_update_equals_that_of_sb3(sizes, pi, vf, activation, options, bound_and_dtype):
    bound, dtype = bound_and_dtype
    network = {
        "net_arch": {"pi": pi, "vf": vf},
        "activation_fn": activation,
        "optimizer_kwargs": {"fused": True, "eps": 1e-5},
    }
    assert_same_update(sizes, network, dtype, *bound, **options)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_symbols", [1, 20])
def test_update_of_the_shared_network_equals_that_of_sb3(n_symbols, dtype, bound):
    _, network = SharedAssetBackbone().actor_critic(None, -0.5)
    sizes = ASSET_COLUMNS * n_symbols + CONTEXT_COLUMNS, n_symbols + 1
    assert_same_update(sizes, network, dtype, *bound, policy=SharedAssetPolicy, ent_coef=0.01)


@pytest.mark.slow
def test_rollout_and_training_equal_those_of_sb3():
    def on(algorithm, buffer):
        def make(env, seed):
            return algorithm(
                GaussianPolicy, env, n_steps=16, batch_size=48, n_epochs=2, seed=seed, device="cpu",
                rollout_buffer_class=buffer, policy_kwargs={"net_arch": [8, 8]},
            )  # fmt: skip

        return trained(make, synthetic_panel(160, 3))

    (ours, log), (theirs, sb3_log) = on(AnalyticPpo, InPlaceRolloutBuffer), on(PPO, RolloutBuffer)
    np.testing.assert_allclose(parameters(ours), parameters(theirs), atol=1e-4)
    np.testing.assert_allclose(log.points, sb3_log.points, rtol=1e-4)


@pytest.mark.parametrize(
    ("network", "options"),
    [
        ({"net_arch": []}, {}),
        ({"optimizer_kwargs": {"weight_decay": 0.1}}, {}),
        ({"optimizer_class": torch.optim.AdamW}, {}),
        ({}, {"target_kl": 9.0}),
    ],
)
def test_policy_or_training_that_is_not_written_out_is_left_to_sb3(network, options):
    model = model_of(AnalyticPpo, InPlaceRolloutBuffer, (3, 1), network, rollout_of((3, 1)), **options)
    before = parameters(model)
    model.train()
    assert model.network is None
    assert not torch.equal(parameters(model), before)
