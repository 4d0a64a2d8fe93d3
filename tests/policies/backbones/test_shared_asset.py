import numpy as np
import pytest
import torch
from gymnasium import spaces

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.envs.observations.per_asset_builder import ASSET_COLUMNS, CONTEXT_COLUMNS
from nvtrader_pipelines.policies.backbones import SharedAssetBackbone

N = 5
COLUMNS = N * ASSET_COLUMNS + CONTEXT_COLUMNS
LAYOUT = ObservationLayout(COLUMNS, N, lookback=0)


def built(network, columns=COLUMNS, n_actions=N + 1, log_std=-0.5):
    torch.manual_seed(0)
    policy, kwargs = network.actor_critic(LAYOUT, log_std)
    observation = spaces.Box(-np.inf, np.inf, (columns,), np.float32)
    return policy(observation, spaces.Box(-3, 3, (n_actions,), np.float32), lambda _: 1e-3, **kwargs)


def observed(n=4, seed=0):
    return torch.randn(n, COLUMNS, generator=torch.Generator().manual_seed(seed))


def means(policy, observation):
    with torch.no_grad():
        return policy.get_distribution(observation).distribution.mean


def test_shared_scores_do_not_depend_on_the_position_of_a_name():
    policy, observation = built(SharedAssetBackbone()), observed()
    order = torch.tensor([3, 0, 4, 2, 1])
    assets = observation[:, :-CONTEXT_COLUMNS].reshape(-1, N, ASSET_COLUMNS)[:, order].reshape(-1, N * ASSET_COLUMNS)
    swapped = torch.cat([assets, observation[:, -CONTEXT_COLUMNS:]], dim=1)
    scores, other = means(policy, observation), means(policy, swapped)
    torch.testing.assert_close(other[:, :N], scores[:, order], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(other[:, N], scores[:, N], rtol=1e-5, atol=1e-6)


def test_shared_scores_are_centered_and_start_near_zero():
    scores = means(built(SharedAssetBackbone()), observed(64))
    torch.testing.assert_close(scores[:, :N].sum(dim=1), torch.zeros(64), atol=1e-6, rtol=0)
    assert scores.abs().max() < 0.5


def test_shared_network_size_is_independent_of_the_number_of_names():
    sizes = [
        sum(p.numel() for p in built(SharedAssetBackbone(), n * ASSET_COLUMNS + CONTEXT_COLUMNS, n + 1).parameters())
        - n
        for n in (2, 9)
    ]
    assert sizes[0] == sizes[1]


def test_shared_network_raises_for_another_observation():
    with pytest.raises(ValueError):
        built(SharedAssetBackbone(), columns=COLUMNS + 1)


def test_every_shared_parameter_gets_a_gradient():
    policy = built(SharedAssetBackbone())
    known = {id(p) for group in policy.optimizer.param_groups for p in group["params"]}
    assert known == {id(p) for p in policy.parameters()}
    values, log_prob, entropy = policy.evaluate_actions(observed(), torch.ones(4, N + 1))
    (values.sum() + log_prob.sum() + entropy.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())
