import numpy as np
import pytest
import torch
from gymnasium import spaces

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.agents import DifferentiableGrpoAgent
from nvtrader_pipelines.policies.backbones import MlpBackbone
from tests.evaluation.golden import golden

GOLDEN = golden("dpo_preference")["dirichlet_policy"]
OBSERVATION = torch.ones(2, 4)


def policy_of(concentrations):
    """A policy that gives every observation the same concentrations, all above 1.1."""
    box, actions = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Box(-5.0, 5.0, (3,), np.float32)
    agent = DifferentiableGrpoAgent(backbone=MlpBackbone(hidden=()))
    policy = agent.network(ObservationLayout(4, 2, 0), box, actions)
    with torch.no_grad():
        policy.action_net.weight.zero_()
        policy.action_net.bias.copy_((torch.tensor(concentrations, dtype=torch.float64) - 1.1).expm1().log())
    return policy


def test_log_probability_is_that_of_softplus_and_1_1():
    distribution = policy_of(GOLDEN["alpha"]).distribution(OBSERVATION)
    weights = torch.tensor([GOLDEN["w_chosen"], GOLDEN["w_rejected"]], dtype=torch.float64)
    expected = [GOLDEN["logp_chosen"], GOLDEN["logp_rejected"]]
    assert distribution.log_prob(weights).tolist() == pytest.approx(expected, abs=1e-5)


def test_softmax_of_the_action_is_the_mean_of_the_distribution():
    concentrations = np.array([1.2, 3.0, 40.0])
    logits = policy_of(concentrations)._predict(OBSERVATION, deterministic=True)[0].detach().numpy()
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), concentrations / concentrations.sum(), rtol=1e-5)
    assert [logits.min(), logits.max()] == pytest.approx(np.log(40.0 / 1.2) * np.array([-0.5, 0.5]), rel=1e-5)
