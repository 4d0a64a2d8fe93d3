from dataclasses import replace

import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.actions import LongShortAction, SimplexAction
from nvtrader_pipelines.envs.spaces import space_of
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.agents import DeepTraderAgent
from nvtrader_pipelines.policies.backbones import SagcnBackbone
from nvtrader_pipelines.policies.learned import open_policy
from nvtrader_pipelines.policies.pathwise.drawn_shares import reinforce, window_rewards
from tests.markets import synthetic_panel
from tests.policies.backbones.networks import LAYOUT, N, observed, space
from tests.policies.small_learners import card_of

SMALL = SagcnBackbone(channels=6, n_layers=2, dropout=0.0)
T = np.full(16, 100)


def extractor_of(action, **settings):
    """Untrained network of an agent for an action, with scores and shares that differ between observations."""
    torch.manual_seed(0)
    agent = DeepTraderAgent(backbone=SMALL, **settings)
    policy = agent.network(LAYOUT, space(LAYOUT.length), space_of(action, N))
    policy.mlp_extractor.market.share.weight.data *= 10.0
    return policy.mlp_extractor


def parts(extractor, observations):
    """Sigmoid scores (n, N) and mean shares (n,) as they are held."""
    scores = extractor.assets(extractor.returns(observations)).sigmoid()
    return scores.detach().numpy(), extractor.share(observations).mean.detach().clamp(0.0, 0.99).numpy()


def softmax(scores, is_selected):
    shares = np.where(is_selected, np.exp(scores), 0.0)
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_selected", [1, 2, None])
def test_weights_are_softmax_of_best_and_worst_names_by_share(n_selected):
    extractor, observations, n = extractor_of(LongShortAction(), n_selected=n_selected), observed(16), n_selected or 2
    scores, share = parts(extractor, observations)
    rank = scores.argsort(axis=1).argsort(axis=1)
    long, short = softmax(scores, rank >= N - n), softmax(-scores, rank < n)
    target = LongShortAction(gross=1.5).start(synthetic_panel(160, N))(
        extractor.forward_actor(observations).detach().numpy(), T
    )
    expected = 1.5 * (share[:, None] * long - (1.0 - share[:, None]) * short)
    np.testing.assert_allclose(target[:, :-1], expected, atol=4e-4)  # a name without weight has exp(-10) of the largest


def test_simplex_holds_the_drawn_share_clipped_and_the_rest_in_cash():
    extractor, observations = extractor_of(SimplexAction()), observed(16)
    extractor.market.share.bias.data[1] = 1.0  # deviation 1.3
    actions, log_prob = extractor.draw(observations)
    cash = SimplexAction().start(synthetic_panel(160, N))(actions.detach().numpy(), T)[:, -1]
    assert cash.min() == pytest.approx(0.01, abs=4e-4)
    assert cash.max() == pytest.approx(1.0, abs=4e-4)
    (gradient,) = torch.autograd.grad(log_prob.sum(), extractor.market.share.bias)
    assert (gradient != 0.0).all()


def test_reinforce_moves_toward_the_draw_that_earned_more():
    mean = torch.zeros(1, requires_grad=True)
    draws, rewards = torch.tensor([-1.0, 1.0]), torch.tensor([0.1, 0.3])
    (gradient,) = torch.autograd.grad(reinforce(torch.distributions.Normal(mean, 1.0).log_prob(draws), rewards), mean)
    assert gradient.item() == pytest.approx(1.0, abs=1e-4)  # (-1 * -1 + 1 * 1) / 2


def test_window_rewards_are_log_return_or_less_maximum_drawdown():
    growth = torch.tensor([[0.1, -0.3, 0.1, -0.1], [-0.2, 0.1, 0.3, 0.0]])
    np.testing.assert_allclose(window_rewards(growth, "return"), [-0.2, 0.2], atol=1e-7)
    np.testing.assert_allclose(window_rewards(growth, "drawdown"), [-0.3, -0.2], atol=1e-7)


@pytest.mark.slow
def test_training_orders_names_by_drift_and_goes_long_in_a_rising_market():
    drift, panel = np.array([0.0, 0.012, -0.006, 0.006]), synthetic_panel(160, 4)
    returns = np.random.default_rng(0).normal(drift, 0.01, panel.close_returns.shape)
    panel = replace(panel, close_returns=returns, overnight_returns=np.zeros_like(returns))
    spec = EnvSpec(lookback=5, rebal_freq=5, action=LongShortAction())
    agent = DeepTraderAgent(total_timesteps=2560, n_envs=16, n_steps=4, learning_rate=1e-2, backbone=SMALL)
    fit = agent.train(panel, spec, (5, 120), 0)
    correlation = fit.tensors["mlp_extractor.assets.correlation"]
    np.testing.assert_allclose(correlation, np.corrcoef(returns[6:121].T), atol=1e-6)
    policy = open_policy(card_of(panel, fit, spec, agent), fit.tensors, panel)
    targets = np.array([policy.decide(panel, t, opening_account(4)).target for t in range(125, 159)])
    assert targets[:, :-1].mean(axis=0).argsort().tolist() == [2, 0, 3, 1]
    assert targets[:, :-1].sum(axis=1).min() > 0.9
