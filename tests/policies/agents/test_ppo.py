from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.rewards import LogGrowth
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.policies.agents import PpoAgent, RecurrentPpoAgent
from nvtrader_pipelines.portfolio.anchors import EqualWeightAnchor
from tests.markets import synthetic_panel
from tests.policies.small_learners import AGENT, WINDOW


def test_learning_curve_excludes_the_critics_bootstrap():
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


@pytest.mark.parametrize("member", [PpoAgent, RecurrentPpoAgent])
def test_minibatches_must_fill_the_rollout(member):
    with pytest.raises(ValidationError):
        member(n_steps=64, batch_size=1000)


@pytest.mark.parametrize(
    ("field", "value"), [("n_steps", 7), ("clip_range", 0.0), ("batch_size", 1), ("n_epochs", 0), ("gae_lambda", 1.1)]
)
def test_hyperparameters_out_of_range_are_invalid(field, value):
    with pytest.raises(ValidationError):
        PpoAgent.model_validate({field: value})
