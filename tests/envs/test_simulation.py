from dataclasses import replace

import numpy as np
import pytest

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from tests.panels import eventful_panel, with_other_future

SPEC = EnvSpec(lookback=5, episode_len=20, rebal_freq=3)


def begun(simulation, seed=0):
    n = len(simulation.steps)
    simulation.reset(range(n), [np.random.default_rng(seed + i) for i in range(n)])
    return simulation


def walked(panel, spec=SPEC, n=4, n_steps=20, **window):
    simulation = begun(PortfolioSimulation(panel, spec, n, **window))
    actions = np.random.default_rng(5).normal(0, 2, (n_steps, n, len(panel.symbols) + 1))
    return simulation, [simulation.step(action) for action in actions]


def test_an_episode_is_truncated_after_its_decisions():
    _, steps = walked(eventful_panel())
    assert [bool(step.truncated.any()) for step in steps] == [False] * 19 + [True]
    assert steps[-1].truncated.all()
    assert not any(step.terminated.any() for step in steps)


def test_an_episode_is_truncated_where_the_window_does_not_hold_another_step():
    simulation, steps = walked(eventful_panel(), n_steps=7, first=10, last=33)
    assert simulation.accounts.t.tolist() == [31] * 4
    assert [bool(step.truncated.all()) for step in steps] == [False] * 6 + [True]


def test_episodes_start_anywhere_that_leaves_room_for_a_whole_one_and_nowhere_else():
    simulation = PortfolioSimulation(eventful_panel(), SPEC, 2000, first=30, last=100)
    generator = np.random.default_rng(0)
    simulation.reset(range(2000), [generator] * 2000)
    assert set(simulation.accounts.t.tolist()) == set(range(30, 41))


def test_an_account_that_has_lost_its_equity_is_terminated_and_not_truncated():
    panel = eventful_panel()
    crash = replace(panel, close_returns=np.full_like(panel.close_returns, -0.9), overnight_returns=None)
    invested = ResidualAction(anchor=EqualWeightAnchor())
    spec = EnvSpec(episode_len=20, rebal_freq=10, rewards=(LogGrowth(),), action=invested)
    step = begun(PortfolioSimulation(crash, spec, 1)).step(np.zeros((1, 7)))
    assert step.terminated.tolist() == [True]
    assert step.truncated.tolist() == [False]
    assert np.isfinite(step.reward).all()


@pytest.mark.parametrize(("first", "last"), [(-1, 50), (0, 160), (50, 52), (60, 50)])
def test_a_window_that_does_not_hold_one_step_is_refused(first, last):
    with pytest.raises(ValueError, match="an episode needs 3 sessions after its first decision"):
        PortfolioSimulation(eventful_panel(), SPEC, 1, first=first, last=last)


def test_no_session_after_the_window_is_used_in_training():
    panel = eventful_panel()
    window = {"first": 12, "last": 90}
    _, steps = walked(panel, **window)
    _, others = walked(with_other_future(panel, 90), **window)
    for step, other in zip(steps, others, strict=True):
        np.testing.assert_array_equal(step.observation, other.observation)
        np.testing.assert_array_equal(step.reward, other.reward)


def test_the_spaces_have_the_sizes_of_observations_and_actions():
    simulation = begun(PortfolioSimulation(eventful_panel(), SPEC, 2))
    assert observation_space(simulation).contains(simulation.observe()[0])
    assert action_space(simulation).shape == (7,)
    assert action_space(simulation).high.tolist() == [5.0] * 7
