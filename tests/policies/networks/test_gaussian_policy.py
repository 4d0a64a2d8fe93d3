import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn
from torch.distributions import Independent, Normal

from nvtrader_pipelines.policies.networks.gaussian_policy import GaussianPolicy

OBSERVATIONS = torch.randn(40, 11, generator=torch.Generator().manual_seed(0))
SHAPES = [(8, 4), (8,), ()]


def policy(kind, hidden):
    torch.manual_seed(0)
    boxes = spaces.Box(-np.inf, np.inf, (11,), np.float32), spaces.Box(-1.0, 1.0, (3,), np.float32)
    net_arch = {"pi": list(hidden), "vf": list(hidden)}
    made = kind(*boxes, lambda _: 1e-3, net_arch=net_arch, activation_fn=nn.Tanh, log_std_init=-0.5)
    with torch.no_grad():
        made.log_std += torch.arange(3.0) / 10  # each action its own deviation
        made.action_net.weight *= 50  # the library begins near zero
    return made


def both(hidden):
    """The same network as ours and as the library's."""
    ours, theirs = policy(GaussianPolicy, hidden), policy(ActorCriticPolicy, hidden)
    assert set(ours.state_dict()) == set(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("hidden", SHAPES, ids=str)
def test_evaluated_actions_match_the_library(hidden):
    ours, theirs = both(hidden)
    actions = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    for mine, library in zip(*(net.evaluate_actions(OBSERVATIONS, actions) for net in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, library)


@pytest.mark.parametrize("hidden", SHAPES, ids=str)
def test_gradients_are_the_librarys(hidden):
    actions = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    gradients = []
    for net in both(hidden):
        values, log_probs, entropy = net.evaluate_actions(OBSERVATIONS, actions)
        (values.square().mean() - log_probs.exp().mean() - 0.1 * entropy.mean()).backward()
        gradients.append({name: parameter.grad for name, parameter in net.named_parameters()})
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("hidden", SHAPES, ids=str)
def test_the_most_likely_action_is_the_librarys(hidden):
    for mine, library in zip(*(net(OBSERVATIONS, deterministic=True) for net in both(hidden)), strict=True):
        torch.testing.assert_close(mine, library)


def test_sampled_actions_follow_the_evaluated_distribution():
    ours, _ = both((8, 4))
    observation = OBSERVATIONS[:1].expand(20_000, -1)
    with torch.no_grad():
        torch.manual_seed(2)
        actions, _, log_probs = ours(observation)
        means = ours(OBSERVATIONS[:1], deterministic=True)[0]
    expected = Independent(Normal(means, ours.log_std.detach().exp()), 1)
    torch.testing.assert_close(log_probs, expected.log_prob(actions))
    torch.testing.assert_close(actions.mean(0), expected.mean[0], atol=0.02, rtol=0.0)
    torch.testing.assert_close(actions.std(0), expected.stddev[0], atol=0.02, rtol=0.0)
    torch.testing.assert_close(torch.corrcoef(actions.T), torch.eye(3), atol=0.03, rtol=0.0)
