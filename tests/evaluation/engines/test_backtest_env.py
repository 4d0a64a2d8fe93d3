"""The environment on engines' accounts keeps the contracts of Gymnasium and SB3, and the money of `PortfolioEnv`."""

import warnings
from functools import partial

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.envs.actions import SimplexAction
from nvtrader_pipelines.envs.observations import RegimeObservation
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines import BacktestEngine, EventDriven, Walk
from nvtrader_pipelines.evaluation.engines.backtest_env import RLBacktestEnv
from tests.evaluation.engines.markets import hand_made
from tests.markets import synthetic_panel, with_values
from tests.panels import eventful_panel

SPEC = EnvSpec(lookback=5, episode_len=20, rebal_freq=2, rewards=(LogGrowth(),), vol_penalty=0.0)
ENGINES = [*(member() for member in members(BacktestEngine)), EventDriven(timing="next_open", whole_shares=True)]
IDS = ["vectorized", "walk", "event_driven", "whole shares"]
CHECKS = [partial(gymnasium_check_env, skip_render_check=True), sb3_check_env]


def episode(env, seed, n_steps=45):
    """Rows of (observation, reward, terminated, truncated, info) of some episodes, a reset's without the middle."""
    generator = np.random.default_rng(0)
    rows = [env.reset(seed=seed)]
    for _ in range(n_steps):
        rows.append(env.step(generator.uniform(-5, 5, env.action_space.shape).astype(np.float32)))
        if rows[-1][2] or rows[-1][3]:
            rows.append(env.reset())
    return rows


@pytest.mark.parametrize("check", CHECKS, ids=["gymnasium", "sb3"])
@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_checker_passes_on_every_engine(engine, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized)")  # boxes in natural units
        check(RLBacktestEnv(eventful_panel(), SPEC, engine))


@pytest.mark.parametrize(
    ("spec", "window"),
    [(SPEC, (0, None)), (SPEC.model_copy(update={"observation": RegimeObservation()}), (30, 69))],
    ids=["whole panel", "regime, short window"],
)
def test_episode_on_walk_equals_that_of_portfolio_env(spec, window):
    panel, (first, last) = synthetic_panel(90, 4), window
    env = RLBacktestEnv(panel, spec, Walk(), first=first, last=last)
    expected = PortfolioEnv(panel, spec, first=first, last=last)
    assert (env.observation_space, env.action_space) == (expected.observation_space, expected.action_space)
    for row, other in zip(episode(env, 3), episode(expected, 3), strict=True):
        np.testing.assert_allclose(row[0], other[0], rtol=1e-6, atol=1e-7)
        assert row[1:-1] == pytest.approx(other[1:-1], abs=1e-12)
        assert row[-1]["session"] == other[-1]["session"]
        for name in {*row[-1]} - {"session"}:
            np.testing.assert_allclose(row[-1][name], other[-1][name], rtol=0.0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_episodes_of_a_seed_are_equal_and_sum_to_their_growth(engine):
    env = RLBacktestEnv(eventful_panel(), SPEC, engine)
    rows = episode(env, 1)
    for row, other in zip(rows, episode(RLBacktestEnv(eventful_panel(), SPEC, engine), 1), strict=True):
        np.testing.assert_equal(row, other)
    (ended, *_) = [i for i, row in enumerate(rows) if row[2:4] == (False, True)]
    assert ended == SPEC.episode_len
    assert sum(row[1] for row in rows[1 : ended + 1]) == pytest.approx(np.log(rows[ended][-1]["equity"]), abs=1e-12)
    assert any(row[-1]["session"] != rows[0][-1]["session"] for row in rows if len(row) == 2)


def test_ruin_terminates_the_episode():
    panel = with_values(hand_made(*[[(100, 100, 100, 100)]] * 30), "close_returns", 1, 1e-7 - 1.0)
    spec = SPEC.model_copy(update={"rebal_freq": 1, "action": SimplexAction(bound=20.0), "turnover_cost_bps": 0.0})
    env = RLBacktestEnv(panel, spec, EventDriven(timing="next_open"), last=20)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(np.array([20.0, -20.0], dtype=np.float32))
    assert (terminated, truncated) == (True, False)
    assert (info["equity"], reward) == pytest.approx((1e-7, np.log(1e-7)), rel=1e-6)


def test_engine_that_cannot_run_the_environment_is_refused_at_once():
    with pytest.raises(ValueError, match="same_close"):
        RLBacktestEnv(eventful_panel(), SPEC.model_copy(update={"fill": "same_close"}))
