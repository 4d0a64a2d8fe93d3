from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.terminations import DrawdownTermination
from nvtrader_pipelines.policies.advantages import GaeAdvantage, GrpoAdvantage, ReinforcePlusPlusAdvantage
from nvtrader_pipelines.policies.agents import GroupedPpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError, pack, unpack
from nvtrader_pipelines.policies.backbones import MlpBackbone, SharedAssetBackbone
from nvtrader_pipelines.policies.learned import open_policy
from tests.markets import synthetic_panel
from tests.panels import eventful_panel, with_other_future
from tests.policies.small_learners import RESIDUAL_SPEC, SPEC, WINDOW, bits, card_of

PANEL = synthetic_panel(160, 3)
ADVANTAGES = (GaeAdvantage(), GrpoAdvantage(), ReinforcePlusPlusAdvantage())
EVERY_ADVANTAGE = pytest.mark.parametrize("advantage", ADVANTAGES, ids=lambda advantage: advantage.kind)
N_GROUPS, GROUP_SIZE = 3, 4


def agent_with(advantage=ADVANTAGES[0], **changes):
    small = {
        "total_timesteps": 600,
        "n_groups": N_GROUPS,
        "group_size": GROUP_SIZE,
        "backbone": MlpBackbone(hidden=(8,)),
    }
    return GroupedPpoAgent(advantage=advantage, **{**small, **changes})


def all_episodes(spec=SPEC, panel=PANEL, **changes):
    """Every step of a small training."""
    return agent_with(**changes).train(panel, spec, WINDOW, 0, TrainingHooks(sample_rate=1.0)).rollouts


@EVERY_ADVANTAGE
def test_short_episodes_at_the_market_end_play_beside_whole_ones(advantage):
    stretches, hooks = ((5, 130), (145, len(PANEL.sessions) - 1)), TrainingHooks(sample_rate=1.0)
    played = agent_with(advantage).train(PANEL, SPEC, stretches, 0, hooks).rollouts
    lengths = played.group_by("episode").agg(pl.len(), pl.col("session").min())
    short = pl.col("session") >= PANEL.sessions[145].item()
    assert lengths.filter(~short)["len"].unique().to_list() == [SPEC.episode_len]
    assert 0 < lengths.filter(short)["len"].to_numpy().max() < SPEC.episode_len


@pytest.mark.slow
def test_grouped_training_ignores_and_keeps_the_global_random_state():
    first = agent_with().train(PANEL, SPEC, WINDOW, 1)
    torch.rand(7)
    before = torch.get_rng_state()
    assert bits(agent_with().train(PANEL, SPEC, WINDOW, 1)) == bits(first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "spec"),
    [
        *((agent_with(advantage), SPEC) for advantage in ADVANTAGES),
        (agent_with(backbone=SharedAssetBackbone(), demean_returns=True), RESIDUAL_SPEC),
    ],
    ids=["gae", "grpo", "reinforce_plus_plus", "shared"],
)
def test_no_session_after_the_training_window_changes_a_trained_policy(agent, spec):
    panel, window = eventful_panel(), (5, 110)
    trained, other = (agent.train(market, spec, window, 0) for market in (panel, with_other_future(panel, 110)))
    assert bits(trained) == bits(other)
    assert trained.scaler == other.scaler


@pytest.mark.slow
@pytest.mark.parametrize(
    "advantage",
    [ADVANTAGES[0], *(pytest.param(advantage, marks=pytest.mark.nightly) for advantage in ADVANTAGES[1:])],
    ids=lambda advantage: advantage.kind,
)
def test_resumed_grouped_training_equals_an_uninterrupted_one(advantage):
    saved, seen = [], []
    agent = agent_with(advantage, total_timesteps=2400)
    whole = agent.train(PANEL, SPEC, WINDOW, 3, TrainingHooks(seen.append, saved.append, sample_rate=0.3))
    assert 7 <= len(saved) <= 10
    assert [point[:2] for point in seen] == whole.curve
    for content in (saved[0], saved[3], saved[-1]):
        resumed = agent.train(PANEL, SPEC, WINDOW, 3, TrainingHooks(resume_from=content, sample_rate=0.3))
        assert bits(resumed) == bits(whole)
        assert resumed.curve == whole.curve
        assert resumed.rollouts.equals(whole.rollouts)


@pytest.mark.slow
@EVERY_ADVANTAGE
def test_hooks_do_not_change_grouped_training(advantage):
    agent = agent_with(advantage)
    hooks = TrainingHooks(report=lambda _: None, checkpoint=lambda _: None, sample_rate=0.5)
    plain, watched = agent.train(PANEL, SPEC, WINDOW, 1), agent.train(PANEL, SPEC, WINDOW, 1, hooks)
    assert bits(plain) == bits(watched)
    assert plain.curve == watched.curve
    assert plain.rollouts.is_empty()
    assert 0 < watched.rollouts["episode"].n_unique() < watched.rollouts["episode"].max() + 1


def checkpoint_of(agent):
    saved = []
    agent.train(PANEL, SPEC, WINDOW, 1, TrainingHooks(checkpoint=saved.append))
    return saved[0]


def foreign(content):
    arrays, facts = unpack(content)
    return pack(arrays, {**facts, "algorithm": "PPO"})


@pytest.mark.parametrize(
    "broken",
    [
        lambda content: content[:-40],
        lambda content: b"",
        foreign,
        lambda content: checkpoint_of(agent_with(backbone=MlpBackbone(hidden=(9,)))),
    ],
    ids=["cut off", "empty", "of another algorithm", "of another network"],
)
def test_damaged_or_foreign_checkpoint_raises(broken):
    hooks = TrainingHooks(resume_from=broken(checkpoint_of(agent_with())))
    with pytest.raises(CheckpointError):
        agent_with().train(PANEL, SPEC, WINDOW, 1, hooks)


@EVERY_ADVANTAGE
def test_episodes_of_a_group_share_their_start(advantage):
    starts = all_episodes(advantage=advantage).filter(pl.col("step") == 0).sort("episode")["session"].to_numpy()
    groups = starts.reshape(-1, GROUP_SIZE)
    assert (groups == groups[:, :1]).all()
    assert len(np.unique(groups[:, 0])) > len(groups) // 2


def test_episodes_of_a_group_take_different_actions():
    first = all_episodes().filter(pl.col("step") == 0).sort("episode")
    assert first["action"].n_unique() == len(first)
    assert first["observation_hash"].n_unique() == first["session"].n_unique()


@pytest.mark.slow
def test_training_plays_whole_episodes_up_to_its_timesteps():
    curve = agent_with().train(PANEL, SPEC, WINDOW, 0).curve
    a_round = N_GROUPS * GROUP_SIZE * SPEC.episode_len
    assert [timesteps for timesteps, _ in curve] == [a_round * k for k in (1, 2, 3)]
    assert all_episodes().group_by("episode").len()["len"].unique().to_list() == [SPEC.episode_len]


@pytest.mark.slow
@EVERY_ADVANTAGE
@pytest.mark.parametrize("truncates", [True, False])
def test_terminated_episode_is_masked_while_its_group_continues(advantage, truncates):
    rule = DrawdownTermination(limit=0.04, truncates=truncates)
    spec = SPEC.model_copy(update={"terminations": (rule,)})
    fit = agent_with(advantage).train(PANEL, spec, WINDOW, 0, TrainingHooks(sample_rate=1.0))
    steps = fit.rollouts.sort("episode", "step")
    lengths = steps.group_by("episode", maintain_order=True).len()["len"].to_numpy()
    assert lengths.min() < lengths.max() == spec.episode_len
    assert len(steps) == fit.curve[-1][0]
    ends = steps.group_by("episode", maintain_order=True).last()
    struck = ends["info"].str.json_path_match("$.termination").is_not_null().to_numpy()
    assert struck[lengths < spec.episode_len].all()
    assert (ends["truncated" if truncates else "terminated"].to_numpy()[struck]).all()
    assert steps.filter(pl.col("truncated") | pl.col("terminated")).height == len(ends)
    starts = steps.filter(pl.col("step") == 0)["session"].to_numpy()[: N_GROUPS * GROUP_SIZE]
    groups = starts.reshape(N_GROUPS, GROUP_SIZE)
    assert (groups == groups[:, :1]).all()


@pytest.mark.slow
def test_values_are_recorded_only_with_a_critic():
    for advantage in ADVANTAGES:
        steps = all_episodes(advantage=advantage)
        assert steps["value"].null_count() == (0 if advantage.uses_critic else len(steps))
        assert steps["log_prob"].is_finite().all()


@pytest.mark.slow
@EVERY_ADVANTAGE
def test_policy_without_a_critic_has_no_value(advantage):
    agent = agent_with(advantage)
    fit = agent.train(PANEL, SPEC, WINDOW, 0)
    policy = open_policy(card_of(PANEL, fit, SPEC, agent), fit.tensors, PANEL)
    decision = policy.decide(PANEL, 60, opening_account(3))
    assert decision.target is not None
    assert decision.target.sum() == pytest.approx(1.0)
    assert (decision.value is not None) == advantage.uses_critic
    assert decision.log_prob is not None


@EVERY_ADVANTAGE
def test_critic_learns_only_if_the_advantage_uses_it(advantage):
    first, last = (agent_with(advantage, total_timesteps=n).train(PANEL, SPEC, WINDOW, 0) for n in (1, 600))
    moved = {name for name, tensor in first.tensors.items() if not torch.equal(tensor, last.tensors[name])}
    critic = {name for name in first.tensors if name.startswith(("value_net", "mlp_extractor.value_net"))}
    assert moved == set(first.tensors) - (set() if advantage.uses_critic else critic)


@pytest.mark.parametrize("advantage", [GrpoAdvantage(), ReinforcePlusPlusAdvantage(baseline="leave_one_out")])
def test_an_advantage_that_compares_needs_groups(advantage):
    with pytest.raises(ValidationError):
        agent_with(advantage, group_size=1)


@pytest.mark.slow
@pytest.mark.parametrize("advantage", [GaeAdvantage(), ReinforcePlusPlusAdvantage(baseline="none")])
def test_advantage_without_comparison_allows_groups_of_one(advantage):
    fit = agent_with(advantage, group_size=1).train(PANEL, SPEC, WINDOW, 0)
    assert all(tensor.isfinite().all() for tensor in fit.tensors.values())


PLANTED = EnvSpec(
    lookback=5,
    episode_len=20,
    rebal_freq=1,
    fill="same_close",
    rewards=(LogGrowth(weight=100.0),),
    vol_penalty=0.0,
    turnover_cost_bps=0.0,
)


def planted_market():
    """Three names of which the first gains 0.4 % a session."""
    moves = np.random.default_rng(0).normal(0.0, 0.005, (160, 3))
    moves[:, 0] += 0.004
    return replace(synthetic_panel(160, 3, opens=False), close_returns=moves)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "advantage",
    [
        ADVANTAGES[0],
        *(pytest.param(advantage, marks=pytest.mark.nightly) for advantage in ADVANTAGES[1:]),
        pytest.param(GrpoAdvantage(leave_one_out=True), marks=pytest.mark.nightly),
        pytest.param(ReinforcePlusPlusAdvantage(baseline="leave_one_out"), marks=pytest.mark.nightly),
    ],
    ids=repr,
)
def test_a_planted_drift_is_learned(advantage, seed):
    learner = agent_with(
        advantage, total_timesteps=9600, n_groups=4, group_size=4, gamma=0.5, learning_rate=5e-3, log_std_init=0.0
    )
    idler = learner.model_copy(update={"learning_rate": 1e-5})  # plays the same starts
    learned, idled = (agent.train(planted_market(), PLANTED, WINDOW, seed).curve for agent in (learner, idler))
    late = [(mine[1], theirs[1]) for mine, theirs in zip(learned, idled, strict=True)][-6:]
    mine, theirs = np.mean(late, axis=0)
    assert mine > 1.5 * theirs
