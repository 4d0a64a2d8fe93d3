from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.agents import CURVE_POINTS, PpoAgent, TrainingHooks, thin
from nvtrader_pipelines.policies.agents.demeaning import demeaned
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from tests.markets import synthetic_panel
from tests.panels import LATE, NEVER, eventful_panel, with_other_future
from tests.policies.small import AGENT, RESIDUAL_AGENT, RESIDUAL_SPEC, SPEC, WINDOW

BOTH = pytest.mark.parametrize(
    ("agent", "spec"), [(AGENT, SPEC), (RESIDUAL_AGENT, RESIDUAL_SPEC)], ids=["flat", "shared"]
)


def bits(fit):
    return {name: tensor.numpy().tobytes() for name, tensor in fit.tensors.items()}


@BOTH
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(agent, spec):
    panel = synthetic_panel(160, 3)
    first, second, other = (agent.train(panel, spec, WINDOW, seed) for seed in (1, 1, 2))
    assert bits(first) == bits(second)
    assert first.curve == second.curve
    assert bits(first) != bits(other)


@BOTH
def test_training_leaves_no_trace_of_what_came_before_it_in_the_process(agent, spec):
    panel = synthetic_panel(160, 3)
    first = agent.train(panel, spec, WINDOW, 1)
    torch.rand(100)
    AGENT.train(panel, SPEC, WINDOW, 9)
    assert bits(agent.train(panel, spec, WINDOW, 1)) == bits(first)


@BOTH
def test_no_session_after_the_training_window_changes_a_trained_policy(agent, spec):
    panel = eventful_panel()
    window = (5, 110)
    trained = agent.train(panel, spec, window, 0)
    other = agent.train(with_other_future(panel, 110), spec, window, 0)
    assert bits(trained) == bits(other)
    assert trained.scaler == other.scaler


def test_the_learning_curve_is_the_mean_reward_of_a_step_without_the_critics_guesses():
    panel = synthetic_panel(160, 3)
    rising = replace(panel, close_returns=np.full_like(panel.close_returns, np.expm1(0.01)))
    spec = EnvSpec(
        episode_len=20,
        rebal_freq=1,
        fill="same_close",
        action=ResidualAction(anchor=EqualWeightAnchor(), exposure_tilt=0.0),
        rewards=(LogGrowth(),),
        vol_penalty=0.0,
        turnover_cost_bps=0.0,
    )
    curve = AGENT.model_copy(update={"n_steps": 64}).train(rising, spec, WINDOW, 0).curve
    assert [timesteps for timesteps, _ in curve] == [512]
    assert [reward for _, reward in curve] == pytest.approx([0.01], rel=1e-6)


def test_points_of_the_curve_are_reported_as_they_come():
    seen = []
    fit = AGENT.train(synthetic_panel(160, 3), SPEC, WINDOW, 0, TrainingHooks(report=seen.append))
    assert seen == fit.curve


def test_a_long_curve_is_thinned_to_its_limit_with_both_ends():
    points = [(i, float(i)) for i in range(1000)]
    kept = thin(points, CURVE_POINTS)
    assert len(kept) == CURVE_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin(points[:7], CURVE_POINTS) == points[:7]


def test_training_leaves_nothing_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", None)
    AGENT.train(synthetic_panel(160, 3), SPEC, WINDOW, 0)
    ours = [
        path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")
    ]  # torch's, at first import
    assert ours == []


def test_minibatches_must_fill_the_rollout():
    with pytest.raises(ValidationError, match=r"n_envs \* n_steps = 4096 must be a multiple of batch_size = 1000"):
        PpoAgent(batch_size=1000)


@pytest.mark.parametrize(
    ("field", "value"), [("gamma", 1.0), ("learning_rate", 0.1), ("n_steps", 7), ("clip_range", 0.0)]
)
def test_hyperparameters_out_of_range_are_refused(field, value):
    with pytest.raises(ValidationError, match=field):
        PpoAgent.model_validate({field: value})


def test_demeaning_gives_every_name_the_common_mean_and_keeps_its_moves():
    panel = eventful_panel()
    first, last = 10, 140
    shifted = demeaned(panel, first, last)
    listed = panel.tradable[first : last + 1]
    growth, before = (np.log1p(market.close_returns[first : last + 1]) for market in (shifted, panel))
    own = [growth[listed[:, name], name].mean() for name in range(6) if name != NEVER]
    np.testing.assert_allclose(own, own[0], atol=1e-15)
    moved = (growth - before)[listed[:, LATE], LATE]
    np.testing.assert_allclose(moved, moved[0], atol=1e-15)


def test_demeaning_leaves_sessions_without_a_price_and_the_market_it_was_given_alone():
    panel = eventful_panel()
    before = panel.close_returns.copy()
    shifted = demeaned(panel, 10, 140)
    assert not shifted.close_returns[~panel.tradable].any()
    np.testing.assert_array_equal(panel.close_returns, before)
