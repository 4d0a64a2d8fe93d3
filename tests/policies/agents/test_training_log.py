import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.observations.builder import observation_hashes
from nvtrader_pipelines.envs.portfolio_env import PortfolioEnv
from nvtrader_pipelines.policies.agents import CURVE_POINTS, TrainingHooks
from nvtrader_pipelines.policies.agents.training_log import TrainingLog
from nvtrader_pipelines.policies.rollout_tables import STEP
from tests.markets import synthetic_panel
from tests.policies.agents.learners import (
    EVERYTHING,
    TOTAL,
    N,
    a2c,
    environment,
    ppo,
    recurrent_ppo,
    sac,
    trained,
)
from tests.policies.small_learners import SPEC, WINDOW

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)
EVERY = pytest.mark.parametrize("make", [ppo, a2c, recurrent_ppo, sac])
ON_POLICY = pytest.mark.parametrize("make", [ppo, a2c, recurrent_ppo])
ALL = TrainingHooks(sample_rate=1.0)


def episodes(rollouts):
    return [rows for _, rows in rollouts.group_by("episode", maintain_order=True)]


def total_of(make):
    return 240 if make is sac else TOTAL


@cache
def recorded(make):
    """Every step of a small training, once for all tests that read it."""
    return trained(make, PANEL, ALL, total=total_of(make))[1].rollouts


def assert_can_be_played_again(rollouts, spec):
    env = PortfolioEnv(PANEL, spec, first=WINDOW[0], last=WINDOW[1])
    accounts = env.simulation.accounts
    for rows in episodes(rollouts):
        env.reset(seed=0)
        accounts.open([0], [PANEL.index_of(np.datetime64(rows["session"][0]))])
        observation = env.simulation.observe()[0]
        for row in rows.iter_rows(named=True):
            assert row["observation_hash"] == observation_hashes(observation[None])[0]
            assert row["session"] == PANEL.sessions[accounts.t[0]].item()
            assert row["fill_session"] == PANEL.sessions[accounts.t[0] + 1].item()
            observation, reward, terminated, truncated, info = env.step(np.float32(row["action"]))
            assert (row["reward"], row["terminated"], row["truncated"]) == (reward, terminated, truncated)
            assert [row[name] for name in ("equity", "drawdown", "turnover")] == [
                info[name] for name in ("equity", "drawdown", "turnover")
            ]
            assert json.loads(row["info"]) == {name: info[name] for name in ("reward_terms", "termination")}
        assert terminated or truncated


@EVERY
def test_recorded_episode_can_be_replayed(make):
    assert_can_be_played_again(recorded(make), SPEC)


def test_recorded_info_has_reward_terms_and_termination():
    _, log = trained(a2c, PANEL, ALL, spec=EVERYTHING)
    assert_can_be_played_again(log.rollouts, EVERYTHING)
    info = [json.loads(text) for text in log.rollouts["info"]]
    assert set(info[0]["reward_terms"]) == {term.kind for term in EVERYTHING.rewards} | {"stop_properly"}
    ended = log.rollouts["terminated"] | log.rollouts["truncated"]
    struck = [end for end, told in zip(ended, info, strict=True) if told["termination"] is not None]
    assert struck == [True] * len(struck)
    assert {told["termination"] for told in info} == {None, "drawdown", "margin_call", "risk_breach"}


@EVERY
def test_recorded_episodes_are_whole_and_numbered_by_start(make):
    rollouts = recorded(make)
    assert rollouts.schema == pl.Schema(STEP)
    n_ended = total_of(make) // N // SPEC.episode_len * N
    assert sorted(rollouts["episode"].unique().to_list()) == list(range(n_ended))
    for rows in episodes(rollouts):
        assert rows["step"].to_list() == list(range(SPEC.episode_len))
        assert rows["truncated"].to_list() == [False] * (SPEC.episode_len - 1) + [True]


def test_sampler_records_the_stated_share_of_whole_episodes():
    total = 2 * TOTAL
    rates = (1.0, 0.3)
    everything, sample = (trained(a2c, PANEL, TrainingHooks(sample_rate=rate), total=total)[1] for rate in rates)
    numbers = sample.rollouts["episode"].unique()
    assert sample.rollouts.sort("episode", "step").equals(
        everything.rollouts.filter(pl.col("episode").is_in(numbers.implode())).sort("episode", "step")
    )
    assert 0.3 * 0.8 < len(numbers) / everything.rollouts["episode"].n_unique() < 0.3 * 1.2


def test_another_seed_samples_other_episodes():
    half = TrainingHooks(sample_rate=0.5)
    first, second = (trained(ppo, PANEL, half, seed=seed)[1].rollouts["episode"].unique() for seed in (0, 1))
    assert set(first) != set(second)


@ON_POLICY
def test_recorded_values_and_log_probs_are_the_learners(make):
    steps = {ppo: 16, a2c: 8, recurrent_ppo: 16}[make]
    short = SPEC.model_copy(update={"episode_len": steps})  # one rollout holds one episode of each portfolio
    model, log = trained(make, PANEL, ALL, total=steps * N, spec=short)
    for number, rows in enumerate(episodes(log.rollouts.sort("episode", "step"))):
        column = slice(number * steps, (number + 1) * steps)  # the buffer lies flat by portfolio once it was used
        np.testing.assert_array_equal(rows["value"], model.rollout_buffer.values.reshape(-1)[column])
        np.testing.assert_array_equal(rows["log_prob"], model.rollout_buffer.log_probs.reshape(-1)[column])


def test_off_policy_samples_have_no_values_or_log_probs():
    rollouts = recorded(sac)
    assert rollouts["value"].is_null().all()
    assert rollouts["log_prob"].is_null().all()


def test_learning_curve_points_are_means_since_the_previous_point():
    env = environment(PANEL, n=2)
    seen = []
    total = 2 * 1000
    log = TrainingLog(TrainingHooks(report=seen.append), env.simulation, total, seed=0)
    env.reset()
    rewards = []
    generator = np.random.default_rng(0)
    for step in range(1, 1001):
        env.step(generator.uniform(-1.0, 1.0, (2, 4)).astype(np.float32))
        rewards.append(env.last_step.step.reward.mean())
        log.step(env.last_step)
        log.end_rollout(2 * step)
    assert [timesteps for timesteps, _ in log.points] == list(range(10, 2001, 10))
    assert len(log.points) == CURVE_POINTS
    means = np.array(rewards).reshape(CURVE_POINTS, -1).mean(axis=1)
    np.testing.assert_allclose([reward for _, reward in log.points], means, rtol=1e-12)
    assert [point[:2] for point in seen] == log.points
