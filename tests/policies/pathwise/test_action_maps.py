import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.actions import (
    Action,
    LeveredSimplexAction,
    LongShortAction,
    ResidualAction,
    SimplexAction,
)
from nvtrader_pipelines.policies.agents.pathwise import DIFFERENTIABLE
from nvtrader_pipelines.policies.pathwise.action_maps import start_map
from tests.contracts.families import members
from tests.panels import eventful_panel

PANEL = eventful_panel()
ACTIONS = [SimplexAction(), ResidualAction(tilt=2.0), LeveredSimplexAction(base=0.5), LongShortAction(gross=1.5)]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.kind)
def test_map_equals_that_of_the_environment_and_has_its_gradient(action):
    generator, n_names = np.random.default_rng(0), len(PANEL.symbols)
    t = generator.integers(60, len(PANEL.sessions), 40)
    actions = generator.normal(0.0, 2.0 * action.bound, (40, action.size(n_names).length))
    mapped = start_map(action, PANEL)(torch.tensor(actions), torch.tensor(t)).numpy()
    np.testing.assert_allclose(mapped, action.start(PANEL)(actions, t), rtol=0.0, atol=1e-14)
    within = torch.tensor(actions[:3] / (4.0 * action.bound), requires_grad=True)
    assert torch.autograd.gradcheck(lambda raw: start_map(action, PANEL)(raw, torch.tensor(t[:3])), (within,))


def test_action_without_a_gradient_is_refused():
    assert {action.kind for action in ACTIONS} == {*DIFFERENTIABLE}
    for action in (member() for member in members(Action) if member().kind not in DIFFERENTIABLE):
        with pytest.raises(ValueError, match="gradient"):
            start_map(action, PANEL)
