import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.actions import ResidualAction
from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import DEFAULT_HOOKS, DifferentiableGrpoAgent
from nvtrader_pipelines.policies.agents.checkpoints import strip_prefix, unpack
from nvtrader_pipelines.policies.backbones import MlpBackbone, RecurrentBackbone
from nvtrader_pipelines.policies.pathwise.grpo import GrpoTraining, group_advantages
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC, WINDOW, bits
from tests.policies.test_controls import FOLD, market
from tests.policies.test_controls import SPEC as PLANTED

PANEL = synthetic_panel(160, 3)
AGENT = DifferentiableGrpoAgent(
    total_timesteps=96, n_groups=4, n_steps=2, drawdown_lambda=0.5, backbone=MlpBackbone(hidden=(8,))
)
CHANGES = {
    "objective": "sharpe",
    "group_size": 2,
    "muon_learning_rate": 1e-2,
    "weight_decay": 0.1,
    "risk_aversion": 5.0,
    "drawdown_lambda": 50.0,
    "entropy_coef": 0.5,
    "kl_coef": 5.0,
    "ema_decay": 0.5,
    "pathwise_weight": 1.0,
}


def training_of(agent):
    panel, (first, last) = PANEL, WINDOW
    return GrpoTraining(agent, PortfolioSimulation(panel, SPEC, 1, first=first, last=last), 0, DEFAULT_HOOKS)


def networks_of(training):
    """Parameters of the policy and of its reference, by name."""
    arrays, _ = unpack(training.save())
    return strip_prefix("policy", arrays), strip_prefix("reference", arrays)


def test_advantages_are_standardized_within_each_group():
    outcomes = torch.tensor(np.random.default_rng(0).normal(size=12))
    groups = outcomes.reshape(3, 4)
    deviation = groups.std(dim=1, keepdim=True)  # ddof 1
    expected = (groups - groups.mean(dim=1, keepdim=True)) / (deviation + 1e-6)
    np.testing.assert_allclose(group_advantages(outcomes, 4), expected.flatten(), rtol=1e-12)


def test_reference_begins_as_the_policy_and_follows_it_by_the_decay():
    training = training_of(AGENT)
    start, reference = networks_of(training)
    assert all(torch.equal(start[name], reference[name]) for name in start)
    training.update()
    policy, reference = networks_of(training)
    for name, tensor in reference.items():
        torch.testing.assert_close(tensor, 0.95 * start[name] + 0.05 * policy[name])
    assert any(not torch.equal(start[name], policy[name]) for name in start)


def test_muon_moves_the_matrices_of_the_gru_and_adamw_the_rest():
    backbone = RecurrentBackbone(hidden=(), hidden_size=8, n_layers=2)
    training = training_of(AGENT.model_copy(update={"backbone": backbone}))
    names = {parameter: name.rpartition(".")[2] for name, parameter in training.policy.named_parameters()}
    moved = {
        kind: [names[parameter] for group in optimizer.param_groups for parameter in group["params"]]
        for kind, optimizer in training._optimizers.items()
    }
    assert sorted(moved["muon"]) == ["weight_hh_l0", "weight_hh_l1", "weight_ih_l0", "weight_ih_l1"]
    assert sorted(moved["muon"] + moved["adamw"]) == sorted(names.values())


@pytest.mark.slow
def test_every_field_changes_the_trained_policy():
    base = bits(AGENT.train(PANEL, SPEC, WINDOW, 0))
    for field, value in CHANGES.items():
        assert bits(AGENT.model_copy(update={field: value}).train(PANEL, SPEC, WINDOW, 0)) != base, field


@pytest.mark.parametrize(
    ("environment", "agent", "field"),
    [
        ({"action": ResidualAction()}, {}, "environment.action"),
        ({"rebal_freq": 1}, {"objective": "sharpe"}, "agent.objective"),
    ],
)
def test_other_action_and_sharpe_ratio_of_one_session_are_refused(environment, agent, field):
    spec = SPEC.model_copy(update=environment)
    with pytest.raises(ValueError, match=f"{field}: "):
        DifferentiableGrpoAgent(**agent).require_experiment(
            ExperimentSpec.model_construct(environment=spec, seeds=(0, 1, 2)), "agent"
        )


@pytest.mark.slow
@pytest.mark.parametrize("pathwise_weight", [0.0, 10.0])
def test_growth_rises_given_tomorrows_return(pathwise_weight):
    settings = {"total_timesteps": 25_600, "learning_rate": 1e-2, "backbone": MlpBackbone(hidden=(32,))}
    agent = DifferentiableGrpoAgent(pathwise_weight=pathwise_weight, **settings)
    curve = agent.train(market(), PLANTED, (FOLD.train_first, FOLD.train_last), 0).curve
    rewards = [reward for _, reward in curve]
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10]) + 2e-3
