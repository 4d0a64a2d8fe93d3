import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.policies.agents import A2cAgent
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC, WINDOW, small

PANEL = synthetic_panel(160, 3)


@pytest.mark.slow
def test_every_update_setting_changes_the_tensors():
    settings = [
        {},
        {"n_steps": 8},
        {"normalize_advantage": True},
        {"use_rms_prop": True},
        {"use_rms_prop": True, "rms_prop_eps": 1e-2},
        {"gae_lambda": 0.5},
    ]
    agents = [small(A2cAgent).model_copy(update=update) for update in settings]
    heads = [agent.train(PANEL, SPEC, WINDOW, 0).tensors["action_net.weight"] for agent in agents]
    assert len({head.numpy().tobytes() for head in heads}) == len(settings)


def test_one_step_is_the_shortest_rollout():
    agent = small(A2cAgent).model_copy(update={"n_steps": 1})
    assert torch.isfinite(agent.train(PANEL, SPEC, WINDOW, 0).tensors["log_std"]).all()
    with pytest.raises(ValidationError):
        A2cAgent(n_steps=0)
