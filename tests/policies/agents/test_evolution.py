import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.terminations import DrawdownTermination
from nvtrader_pipelines.policies.agents import ArsAgent, CmaEsAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError
from nvtrader_pipelines.policies.backbones import MlpBackbone
from tests.markets import synthetic_panel
from tests.policies.agents.test_grouped_ppo import PLANTED, planted_market
from tests.policies.small_learners import RESIDUAL_SPEC, WINDOW, small, spec_of

PANEL = synthetic_panel(160, 3)
AGENTS = [small(ArsAgent, backbone=MlpBackbone(hidden=())), small(CmaEsAgent)]
EVERY = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.kind)
STOPPED = (DrawdownTermination(limit=0.01, truncates=False),)


def fixed_training(agent, monkeypatch, spec):
    """Scores of a search that tries a pair of candidates twice and never moves, and the fit with every episode."""
    received = []

    def search(_, start, seed):
        other = start + np.random.default_rng(seed).normal(size=start.shape)
        while True:
            scores, _ = yield start, np.stack([start, other, start, other])
            received.append(scores)

    monkeypatch.setattr(type(agent), "search", search)
    fit = agent.train(PANEL, spec, WINDOW, 0, TrainingHooks(sample_rate=1.0))
    return received, fit


@EVERY
def test_score_is_the_mean_total_reward_of_the_candidates_episodes(agent, monkeypatch):
    spec = spec_of(agent).model_copy(update={"terminations": STOPPED})
    scores, fit = fixed_training(agent.model_copy(update={"total_timesteps": 1}), monkeypatch, spec)
    episodes = fit.rollouts.group_by("episode").agg(pl.col("reward").sum(), pl.len()).sort("episode")
    assert episodes["len"].min() < episodes["len"].max()
    assert len(fit.rollouts) == fit.curve[-1][0]
    np.testing.assert_allclose(scores[0], episodes["reward"].to_numpy().reshape(2, 4).mean(axis=0))


@EVERY
def test_equal_candidates_have_equal_scores_and_other_ones_others(agent, monkeypatch):
    scores, _ = fixed_training(agent, monkeypatch, spec_of(agent))
    assert len(scores) > 1
    for generation in scores:
        np.testing.assert_allclose(generation[:2], generation[2:], rtol=1e-6)
        assert abs(generation[0] - generation[1]) > 1e-3 * abs(generation[0])


@EVERY
def test_steps_of_a_search_have_no_value_and_no_log_probability(agent):
    steps = agent.train(PANEL, spec_of(agent), WINDOW, 0, TrainingHooks(sample_rate=1.0)).rollouts
    assert steps["value"].null_count() == steps["log_prob"].null_count() == len(steps) > 0


@pytest.mark.parametrize("agent", [ArsAgent(learning_rate=0.2), CmaEsAgent(sigma=0.5)], ids=lambda agent: agent.kind)
def test_search_finds_the_maximum_of_a_quadratic(agent):
    target = np.array([1.0, -2.0, 0.5])
    search = agent.search(np.zeros(3), 0)
    mean, candidates = next(search)
    for k in range(150):
        scores = -np.square(candidates - target).sum(axis=1)
        mean, candidates = search.send((scores, 1.0 - k / 150))
    np.testing.assert_allclose(mean, target, atol=0.05)


def test_random_search_steps_by_the_formula_of_mania_et_al():
    agent = ArsAgent(n_delta=3, n_top=2, learning_rate=0.1, final_learning_rate=0.5, delta_std=0.5)
    search = agent.search(np.zeros(2), 0)
    forward, backward = next(search)[1].reshape(2, 3, 2)
    np.testing.assert_allclose(forward, -backward)
    scores = np.array([1.0, 2.0, 0.0, 4.0, 1.0, 1.5])  # the last direction has the lowest better score
    deviation = np.std([1.0, 4.0, 2.0, 1.0])
    expected = 0.075 / (2 * deviation) * ((1.0 - 4.0) * forward[0] + (2.0 - 1.0) * forward[1]) / 0.5
    for received in (scores, np.ones(6)):  # equal scores change nothing
        mean, _ = search.send((received, 0.5))
        np.testing.assert_allclose(mean, expected)


def test_only_a_linear_policy_starts_at_zero():
    start = np.ones(2)
    for agent, expected in ((ArsAgent(), 0.0), (ArsAgent(backbone=MlpBackbone(hidden=(8,))), 1.0)):
        assert (next(agent.search(start, 0))[0] == expected).all()


def test_more_top_directions_than_directions_are_invalid():
    with pytest.raises(ValidationError):
        ArsAgent(n_delta=4, n_top=5)


@EVERY
def test_checkpoint_of_another_setting_raises(agent):
    saved, spec = [], spec_of(agent)
    agent.train(PANEL, spec, WINDOW, 0, TrainingHooks(checkpoint=saved.append))
    other = agent.model_copy(update={"final_learning_rate": 0.5})
    with pytest.raises(CheckpointError):
        other.train(PANEL, spec, WINDOW, 0, TrainingHooks(resume_from=saved[0]))


@pytest.mark.slow
@pytest.mark.parametrize("member", [ArsAgent, CmaEsAgent])
def test_a_planted_drift_is_learned_by_a_search(member):
    spec = PLANTED.model_copy(update={"observation": RESIDUAL_SPEC.observation}) if member is CmaEsAgent else PLANTED
    curve = member(total_timesteps=40_000).train(planted_market(), spec, WINDOW, 0).curve
    assert curve[-1][1] > 1.5 * curve[0][1]
