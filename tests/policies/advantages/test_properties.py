"""What holds for every advantage, or for every one that compares the episodes of a group."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.policies.advantages import Episodes, GaeAdvantage, GrpoAdvantage, ReinforcePlusPlusAdvantage

MEAN_BASELINE = [
    GrpoAdvantage(),
    GrpoAdvantage(normalize=False),
    ReinforcePlusPlusAdvantage(global_normalization=False),
]
COMPARING = [
    *MEAN_BASELINE,
    GrpoAdvantage(leave_one_out=True),
    ReinforcePlusPlusAdvantage(),
    ReinforcePlusPlusAdvantage(baseline="leave_one_out"),
]
GAE = [GaeAdvantage(normalize=normalize) for normalize in (False, True)]
EVERY = [*COMPARING, *GAE, ReinforcePlusPlusAdvantage(baseline="none")]
SEEDS = given(seed=st.integers(0, 2**32 - 1))


def random_episodes(seed, n_groups=3, group_size=4, length=6):
    """Episodes of random rewards and lengths, none empty."""
    draw = torch.Generator().manual_seed(seed)
    n = n_groups * group_size
    rewards, values = (torch.randn(n, length, generator=draw, dtype=torch.float64) for _ in range(2))
    lengths = torch.randint(1, length + 1, (n, 1), generator=draw)
    mask = (torch.arange(length) < lengths).double()
    groups = torch.arange(n_groups).repeat_interleave(group_size)
    return Episodes(
        rewards=rewards * mask, mask=mask, groups=groups, values=values, final_values=torch.zeros(n).double()
    )


@pytest.mark.parametrize("advantage", MEAN_BASELINE, ids=repr)
@SEEDS
def test_advantages_with_a_group_mean_sum_to_zero(advantage, seed):
    episodes = random_episodes(seed)
    found = advantage.estimate(episodes, 0.9).advantages[:, 0]
    sums = torch.stack([found[episodes.groups == group].sum() for group in range(3)])
    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("advantage", COMPARING, ids=repr)
@SEEDS
def test_constant_added_to_a_group_changes_no_advantage(advantage, seed):
    episodes = random_episodes(seed)
    lucky = replace(episodes, rewards=episodes.rewards.clone())
    lucky.rewards[:4, 0] += 7.0
    found, same = (advantage.estimate(some, 0.9).advantages for some in (lucky, episodes))
    torch.testing.assert_close(found, same, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("baseline", ["group_mean", "leave_one_out", "none"])
@SEEDS
def test_global_normalization_gives_mean_0_and_variance_1(baseline, seed):
    episodes = random_episodes(seed)
    found = ReinforcePlusPlusAdvantage(baseline=baseline).estimate(episodes, 0.9).advantages[episodes.mask > 0.0]
    torch.testing.assert_close(found.mean().item(), 0.0, rtol=0.0, atol=1e-6)
    torch.testing.assert_close(found.var(correction=0).item(), 1.0, rtol=0.0, atol=1e-6)


@SEEDS
def test_normalized_leave_one_out_equals_group_mean_for_equal_group_sizes(seed):
    episodes = random_episodes(seed)
    first, second = (
        ReinforcePlusPlusAdvantage(baseline=baseline).estimate(episodes, 0.9).advantages
        for baseline in ("group_mean", "leave_one_out")
    )
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("advantage", EVERY, ids=repr)
@SEEDS
def test_masked_steps_change_nothing(advantage, seed):
    episodes = random_episodes(seed)
    behind = episodes.mask == 0.0
    other = replace(
        episodes, rewards=torch.where(behind, 5.0, episodes.rewards), values=torch.where(behind, -9.0, episodes.values)
    )
    found, same = (advantage.estimate(some, 0.9) for some in (other, episodes))
    assert torch.equal(found.advantages * episodes.mask, same.advantages * episodes.mask)
    assert not advantage.uses_critic or torch.equal(found.returns * episodes.mask, same.returns * episodes.mask)


@pytest.mark.parametrize("advantage", COMPARING, ids=repr)
@SEEDS
def test_advantages_ignore_episode_order_and_group_numbers(advantage, seed):
    episodes = random_episodes(seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    shuffled = Episodes(
        rewards=episodes.rewards[order],
        mask=episodes.mask[order],
        groups=10 - 3 * episodes.groups[order],
        values=episodes.values[order],
        final_values=episodes.final_values[order],
    )
    found, same = (advantage.estimate(some, 0.9).advantages for some in (shuffled, episodes))
    torch.testing.assert_close(found, same[order], rtol=1e-9, atol=1e-9)


@SEEDS
def test_normalization_leaves_the_critics_targets_unchanged(seed):
    episodes = random_episodes(seed)
    plain, scaled = (advantage.estimate(episodes, 0.9) for advantage in GAE)
    assert torch.equal(plain.returns, scaled.returns)
    torch.testing.assert_close(plain.returns * episodes.mask, (plain.advantages + episodes.values) * episodes.mask)


@pytest.mark.parametrize("advantage", EVERY, ids=repr)
def test_only_critic_based_advantages_have_returns(advantage):
    assert (advantage.estimate(random_episodes(0), 0.9).returns is not None) == advantage.uses_critic
