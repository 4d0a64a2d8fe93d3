import warnings
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from pydantic import ValidationError
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.observations import (
    LookbackObservation,
    ObservationScaler,
    PerAssetObservation,
    RegimeObservation,
)
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.envs.rewards import BenchmarkRelative, LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import DrawdownTermination, RiskBreachTermination, StopProperly
from nvtrader_pipelines.portfolio.costs import VolatilitySpread
from tests.panels import eventful_panel

NAME = "nvtrader/PortfolioCVaR-v0"
SHORT = EnvSpec(lookback=5, episode_len=20, rebal_freq=2)
REGIME = SHORT.model_copy(update={"observation": RegimeObservation()})
RESIDUAL = EnvSpec(
    episode_len=20,
    rebal_freq=2,
    observation=PerAssetObservation(),
    action=ResidualAction(),
    rewards=(BenchmarkRelative(),),
    vol_penalty=0.0,
    costs=(VolatilitySpread(),),
    terminations=(DrawdownTermination(limit=0.05),),
    stop_properly=StopProperly(),
)
# Advice that the environment ignores on purpose: both boxes are in natural units.
ADVICE = {
    "gymnasium": {
        "A Box observation space minimum value is -infinity",
        "A Box observation space maximum value is infinity",
        "For Box action spaces, we recommend using a symmetric and normalized space",
    },
    "sb3": {"We recommend you to use a symmetric and normalized Box action space"},
}


def without_advice(checker, check, env):
    """Run a checker and assert that its warnings are exactly the known advice."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(env)
    messages = [str(warning.message) for warning in caught]
    unknown = [text for text in messages if not any(advice in text for advice in ADVICE[checker])]
    assert unknown == []
    assert all(any(advice in text for text in messages) for advice in ADVICE[checker])


def episode(env, seed, n_steps=30):
    generator = np.random.default_rng(0)
    observation, info = env.reset(seed=seed)
    collected = [observation]
    for _ in range(n_steps):
        action = generator.uniform(-5, 5, env.action_space.shape).astype(np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        collected += [observation, reward, info["weights"], info["equity"]]
        if terminated or truncated:
            collected.append(env.reset()[0])
    return b"".join(np.asarray(value).tobytes() for value in collected)


@pytest.mark.parametrize("spec", [SHORT, REGIME, RESIDUAL], ids=["simplex", "regime", "residual"])
def test_gymnasium_checker_passes(spec):
    check = partial(gymnasium_check_env, skip_render_check=True)
    without_advice("gymnasium", check, PortfolioEnv(eventful_panel(), spec))


@pytest.mark.parametrize("spec", [SHORT, REGIME, RESIDUAL], ids=["simplex", "regime", "residual"])
def test_stable_baselines3_checker_passes(spec):
    without_advice("sb3", sb3_check_env, PortfolioEnv(eventful_panel(), spec))


def test_episodes_are_reproducible_by_seed():
    panel = eventful_panel()
    assert episode(PortfolioEnv(panel, SHORT), 3) == episode(PortfolioEnv(panel, SHORT), 3)
    env = PortfolioEnv(panel, SHORT)
    assert episode(env, 3) != episode(env, 4)
    assert episode(env, 3) == episode(PortfolioEnv(panel, SHORT), 3)


def test_info_has_weights_costs_and_reward_terms():
    env = PortfolioEnv(eventful_panel(), SHORT)
    _, start = env.reset(seed=0)
    _, reward, _, _, info = env.step(np.zeros(7, dtype=np.float32))
    assert start["equity"] == 1.0
    assert np.datetime64(info["session"]) > np.datetime64(start["session"])
    assert sum(info["reward_terms"].values()) == pytest.approx(reward, abs=1e-15)
    assert info["equity"] == pytest.approx(np.prod(info["session_growth"]))
    for weights in ("target_weights", "executed_weights", "weights"):
        assert info[weights].sum() == pytest.approx(1.0, abs=1e-12)
    bought = 1.0 - info["executed_weights"][-1]  # all of it paid for with cash
    assert (info["turnover"], info["cost"]) == pytest.approx((bought, 0.001 * bought))


def test_info_has_termination_and_stop_properly_term():
    spec = EnvSpec(
        episode_len=20,
        rewards=(LogGrowth(),),
        vol_penalty=0.0,
        terminations=(RiskBreachTermination(max_weight=0.9, max_cvar=None),),
        stop_properly=StopProperly(),
    )
    env = PortfolioEnv(eventful_panel(), spec)
    env.reset(seed=0)
    rest, concentrated = (np.array([edge] + [-5.0] * 5 + [-edge], dtype=np.float32) for edge in (-5.0, 5.0))
    *_, terminated, truncated, info = env.step(rest)
    assert (terminated, truncated, info["termination"]) == (False, False, None)
    before = info["reward_terms"]["log_growth"]
    _, reward, terminated, truncated, info = env.step(concentrated)
    assert (terminated, truncated, info["termination"]) == (False, True, "risk_breach")
    earned = before + info["reward_terms"]["log_growth"]
    assert info["reward_terms"]["stop_properly"] == pytest.approx(-0.8 * abs(earned), rel=1e-9)
    assert reward == pytest.approx(sum(info["reward_terms"].values()), abs=1e-15)


def test_make_accepts_panel_spec_and_parameters():
    panel = eventful_panel()
    env = gymnasium.make(NAME, panel=panel, spec=SHORT, rebal_freq=4, turnover_cost_bps=5.0)
    spec = env.unwrapped.simulation.spec
    assert (spec.lookback, spec.episode_len, spec.rebal_freq, spec.turnover_cost_bps) == (5, 20, 4, 5.0)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    assert env.step(env.action_space.sample())[1] < 1.0


@pytest.mark.slow
def test_make_uses_the_sample_market_by_default():
    env = gymnasium.make(NAME)
    observation, info = env.reset(seed=0)
    assert env.unwrapped.simulation.panel.source == "sample"
    assert env.action_space.shape == (21,)
    assert env.observation_space.contains(observation)
    assert "1990" <= info["session"] <= "2023"
    steps = [env.step(np.zeros(21, dtype=np.float32)) for _ in range(52)]
    assert [bool(step[3]) for step in steps] == [False] * 51 + [True]
    assert np.isfinite([step[1] for step in steps]).all()


def test_environment_uses_the_given_window_and_scaler():
    panel = eventful_panel()
    scaler = LookbackObservation().fit(panel, 0, 50)
    env = PortfolioEnv(panel, SHORT, first=60, last=101, scaler=scaler)
    starts = {env.reset(seed=seed)[1]["session"] for seed in range(40)}
    assert starts == {str(panel.sessions[60]), str(panel.sessions[61])}
    unscaled = PortfolioEnv(panel, SHORT, first=60, last=101, scaler=ObservationScaler())
    assert not np.array_equal(env.reset(seed=0)[0], unscaled.reset(seed=0)[0])


@pytest.mark.parametrize(
    ("knob", "value"), [("lookback", 4), ("rebal_freq", 11), ("vol_penalty", -0.1), ("leverage", 2)]
)
def test_parameter_out_of_range_or_unknown_is_refused(knob, value):
    with pytest.raises(ValidationError):
        PortfolioEnv(eventful_panel(), **{knob: value})


def test_action_of_wrong_length_is_refused():
    env = PortfolioEnv(eventful_panel(), SHORT)
    env.reset(seed=0)
    with pytest.raises(ValueError):
        env.step(np.zeros(6, dtype=np.float32))


def test_nan_action_is_refused():
    panel = eventful_panel()
    env = PortfolioEnv(replace(panel, eligible=panel.tradable), SHORT)
    env.reset(seed=0)
    with pytest.raises(ValueError):
        env.step(np.full(7, np.nan, dtype=np.float32))
