import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from nvtrader_pipelines.policies.networks.hft_qnet import MaskedQNetwork, divergence, nearest_choices
from nvtrader_pipelines.policies.world_agents.hft_ddqn import HftDdqnAgent, program_values
from nvtrader_pipelines.worlds.book_trading import N_POSITIONS, BookTrading
from nvtrader_pipelines.worlds.books import GeneratedBooks
from tests.policies.world_agents.planted import trained_rewards

THOROUGH = [pytest.param(60_000, seed, marks=pytest.mark.nightly) for seed in range(3)]


def world(persistence):
    """Market of an hour, tested on two others."""
    return BookTrading(books=GeneratedBooks(train_days=1, test_days=2, day_seconds=7200, persistence=persistence))


@pytest.mark.slow
@pytest.mark.parametrize(("total_timesteps", "seed"), [(12_000, 0), *THOROUGH])
def test_persistent_flow_is_earned_and_an_independent_one_is_not(total_timesteps, seed):
    agent, gains = HftDdqnAgent(total_timesteps=total_timesteps), {}
    for persistence in (0.6, 0.0):
        market = world(persistence)
        gains[persistence] = trained_rewards(agent, market, seed=seed).sum(axis=0)
        if persistence:
            test = market.examine(None, None)
            best = program_values(test)[[first for first, _ in test.windows], 0].mean() / (5.0 * 100.0)
    earned, chance = gains[0.6], gains[0.0]
    assert best > earned.mean() > max(0.2 * best, 3.0 * earned.std() / len(earned) ** 0.5)
    assert chance.mean() < 2.0 * chance.std() / len(chance) ** 0.5


def test_divergence_is_that_of_the_softmax_over_the_choices_in_reach():
    generator = np.random.default_rng(0)
    values, program = generator.normal(0.0, 1.0, (2, 4, 5))
    values[:, 3:] -= 1e12
    program[:, 3:] = -1e12
    expected = np.mean(
        [entropy(softmax(own), softmax(taught)) for own, taught in zip(values[:, :3], program[:, :3], strict=True)]
    )
    assert divergence(torch.tensor(values), torch.tensor(program)).item() == pytest.approx(expected, rel=1e-9)
    assert divergence(torch.tensor(values), torch.tensor(values)).item() == pytest.approx(0.0, abs=1e-12)


def test_choices_out_of_reach_count_as_the_nearest():
    mask = torch.tensor([[0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]])
    for choice, expected in ((0, [1, 0, 3]), (2, [2, 2, 3]), (3, [2, 3, 3])):
        assert nearest_choices(torch.full((3, 1), choice), mask)[:, 0].tolist() == expected


@pytest.mark.slow
def test_network_chooses_only_what_is_in_reach_and_reads_the_position():
    market = world(0.4)
    test = market.examine(None, None)
    network = HftDdqnAgent().network(test.observation_space, test.action_space)
    assert isinstance(network.q_net, MaskedQNetwork)
    observation = np.repeat(test.observe()[:1], 2, axis=0)
    observation[:, -12:-1], observation[:, -1] = 0.0, [0.0, 0.5]
    observation[:, [-9, -5]] = 1.0  # positions 3 and 7
    values = network.q_net(torch.from_numpy(observation))
    in_reach = [3, 7]
    assert (values.detach() > -1e11).nonzero()[:, 1].tolist() == in_reach * 2
    assert set(network._predict(torch.from_numpy(observation)).tolist()) <= set(in_reach)
    assert not torch.equal(values[0, in_reach], values[1, in_reach])
    assert values.shape == (2, N_POSITIONS)
