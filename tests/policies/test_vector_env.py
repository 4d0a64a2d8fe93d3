from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from nvtrader_pipelines.envs.actions import ResidualAction, SimplexAction
from nvtrader_pipelines.envs.observations import LookbackObservation, PerAssetObservation
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.rewards import CvarExcess
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import DrawdownTermination, RiskBreachTermination, StopProperly
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv
from tests.contracts.families import defaults
from tests.panels import eventful_panel

EVERY_TERM = tuple(CvarExcess(limit=0.001) if term.kind == "cvar_excess" else term for term in defaults("reward_term"))
FILLS = ("next_open", "next_close", "same_close")
KINDS = list(product(FILLS, (SimplexAction(), ResidualAction()), (LookbackObservation(), PerAssetObservation())))
SEED, N = 11, 5


def every_term(fill="next_open", action=SimplexAction(), observation=LookbackObservation(), **knobs):  # noqa: B008 - frozen
    shape = {"lookback": 5, "episode_len": 20, "rebal_freq": 3, "vol_penalty": 0.0, **knobs}
    return EnvSpec(fill=fill, action=action, observation=observation, rewards=EVERY_TERM, **shape)


def vectorised(panel, spec, n=N, seed=SEED, **window):
    return PortfolioVecEnv(PortfolioSimulation(panel, spec, n, **window), seed)


def actions_of(env, n_steps=45, n=N):
    generator = np.random.default_rng(1)
    space = env.action_space
    return generator.uniform(space.low, space.high, (n_steps, n, *space.shape)).astype(np.float32)


def walk_scalar(panel, spec, seed, actions, **window):
    """What one scalar environment sees when it resets itself at the end of every episode, as SB3's do."""
    env = PortfolioEnv(panel, spec, **window)
    rows = [env.reset(seed=seed)[0]]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
        last = observation if ended else None
        rows.append((np.float32(reward), terminated, truncated, last, env.reset()[0] if ended else observation))
    return rows


def assert_same_walks(panel, spec, **window):
    env = vectorised(panel, spec, **window)
    actions = actions_of(env)
    first = env.reset()
    walks = [walk_scalar(panel, spec, SEED * N + i, actions[:, i], **window) for i in range(N)]
    np.testing.assert_array_equal(first, [walk[0] for walk in walks])
    n_ended = 0
    for step, action in enumerate(actions, start=1):
        observation, reward, done, infos = env.step(action)
        for i, walk in enumerate(walks):
            expected_reward, terminated, truncated, last, expected = walk[step]
            np.testing.assert_array_equal(observation[i], expected)
            assert reward[i] == expected_reward
            assert done[i] == (terminated or truncated)
            if done[i]:
                n_ended += 1
                np.testing.assert_array_equal(infos[i]["terminal_observation"], last)
                assert infos[i]["TimeLimit.truncated"] == (truncated and not terminated)
            else:
                assert infos[i] == {}
    return n_ended


@pytest.mark.slow
@pytest.mark.parametrize(("fill", "action", "observation"), KINDS)
def test_vector_env_equals_scalar_envs_with_consecutive_seeds(fill, action, observation):
    assert assert_same_walks(eventful_panel(), every_term(fill, action, observation)) == 2 * N


def test_vector_env_equals_scalar_envs_for_short_episodes_and_ruin():
    panel = eventful_panel()
    returns = panel.close_returns.copy()
    returns[80:84] = -0.99
    crash = replace(panel, close_returns=returns, overnight_returns=None, tradable=np.ones_like(panel.tradable))
    invested = every_term("next_close", ResidualAction(exposure_tilt=0.0), rebal_freq=3)
    assert assert_same_walks(crash, invested, first=50, last=130) > 2 * N


@pytest.mark.slow
def test_vector_env_equals_scalar_envs_at_terminations():
    rules = (DrawdownTermination(limit=0.03), RiskBreachTermination(max_weight=0.9, truncates=False))
    spec = every_term(terminations=rules, stop_properly=StopProperly())
    assert assert_same_walks(eventful_panel(), spec) > 4 * N


@pytest.mark.slow
def test_twenty_names_are_bit_equal_too():
    from tests.markets import synthetic_panel

    for observation, action in ((LookbackObservation(), SimplexAction()), (PerAssetObservation(), ResidualAction())):
        spec = every_term("next_open", action, observation, lookback=20, rebal_freq=10)
        assert_same_walks(synthetic_panel(400, 20), spec)


def test_info_of_a_finished_episode_has_return_and_length():
    env = vectorised(eventful_panel(), every_term())
    env.reset()
    total = np.zeros(N)
    for action in actions_of(env, 20):
        _, reward, done, infos = env.step(action)
        total += reward
    assert done.all()
    assert [info["episode"]["l"] for info in infos] == [20] * N
    np.testing.assert_allclose([info["episode"]["r"] for info in infos], total, rtol=1e-5)


def test_portfolios_draw_separate_and_reproducible_starts():
    panel, spec = eventful_panel(), every_term()
    env = vectorised(panel, spec, n=12)
    first = env.reset()
    starts = env.simulation.accounts.t.copy()
    assert len(set(starts.tolist())) > 6
    assert not np.array_equal(env.reset(), first)
    env.seed(SEED)
    np.testing.assert_array_equal(env.reset(), first)
    assert env.seed(None) == [None] * 12


def test_sb3_trains_and_evaluates_on_the_vector_env():
    env = vectorised(eventful_panel(), every_term())
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=40, n_epochs=1, device="cpu", seed=0).learn(80)
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=N, return_episode_rewards=True)
    assert lengths == [20] * N
    assert np.isfinite(returns).all()


def test_vector_env_has_no_inner_environments():
    env = vectorised(eventful_panel(), every_term())
    assert env.get_attr("spec") == [env.simulation.spec] * N
    assert env.get_attr("render_mode", [0, 2]) == [None, None]
    assert env.env_is_wrapped(object) == [False] * N
    assert env.env_is_wrapped(Monitor, [1]) == [True]
    with pytest.raises(AttributeError, match="share one simulation"):
        env.set_attr("spec", None)
    with pytest.raises(AttributeError, match="no inner environments"):
        env.env_method("render")
    env.close()


def test_different_seeds_share_no_episode_start():
    env = vectorised(eventful_panel(), every_term())
    numbers = [set(env.seed(seed)) for seed in (0, 1, 2)]
    assert len(set.union(*numbers)) == 3 * N


def test_restored_vector_env_continues_as_the_saved_one():
    panel, spec = eventful_panel(), every_term()
    env, other = vectorised(panel, spec), vectorised(panel, spec, seed=SEED + 1)
    actions = actions_of(env, 60)
    env.reset()
    other.reset()
    for action in actions[:25]:  # past the end of the first episodes
        env.step(action)
    other.restore(*env.state())
    np.testing.assert_array_equal(other.observation, env.observation)
    for action in actions[25:]:
        for found, expected in zip(other.step(action)[:3], env.step(action)[:3], strict=True):
            np.testing.assert_array_equal(found, expected)
    assert [g.bit_generator.state for g in other._generators] == [g.bit_generator.state for g in env._generators]


def test_last_step_precedes_the_reset_of_finished_episodes():
    env = vectorised(eventful_panel(), every_term())
    seen = env.reset()
    for action in actions_of(env, 20):
        decided_at = env.simulation.accounts.t.copy()
        following, _, done, infos = env.step(action)
        played = env.last_step
        np.testing.assert_array_equal(played.observation, seen)
        np.testing.assert_array_equal(played.action, action)
        np.testing.assert_array_equal(played.t, decided_at)
        np.testing.assert_array_equal(played.done, done)
        seen = following
    assert done.all()
    assert (played.drawdown > 0.0).any()  # the portfolios' own is 0 again
    assert not env.simulation.accounts.drawdown.any()
    np.testing.assert_array_equal(played.step.observation, [info["terminal_observation"] for info in infos])
