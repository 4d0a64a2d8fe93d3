import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import InvestorImitatorAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.reinforce import Reinforce
from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer
from nvtrader_pipelines.policies.vector_env import PortfolioVecEnv
from tests.markets import synthetic_panel
from tests.policies.agents.learners import environment
from tests.policies.small_learners import DISCRETE_SPEC, WINDOW, small

PANEL = synthetic_panel(160, 3)


def test_reinforce_weighs_each_choice_by_its_own_reward():
    env: PortfolioVecEnv = environment(PANEL, DISCRETE_SPEC)
    model = Reinforce(
        "MlpPolicy", env, learning_rate=1e-2, n_steps=16, gamma=0.0, gae_lambda=1.0, vf_coef=0.0, max_grad_norm=1e9,
        rollout_buffer_class=InPlaceRolloutBuffer, policy_kwargs={"optimizer_class": torch.optim.SGD,
        "optimizer_kwargs": {}}, seed=0, device="cpu",
    )  # fmt: skip
    before = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.learn(16 * env.num_envs)
    observations, actions, *_ = model.rollout_buffer.flat()
    rewards = torch.from_numpy(model.rollout_buffer.rewards).flatten()
    after = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.policy.load_state_dict(before)
    model.policy.zero_grad()
    log_probs = model.policy.get_distribution(observations).log_prob(actions.flatten())
    (-(rewards * log_probs).mean()).backward()
    for name, parameter in model.policy.named_parameters():
        step = torch.zeros_like(parameter) if parameter.grad is None else -1e-2 * parameter.grad
        torch.testing.assert_close(after[name], before[name] + step, rtol=1e-4, atol=1e-7)
    assert "value_net.weight" in after
    assert not after["value_net.weight"].any()


def test_training_of_the_imitator_records_log_probabilities_and_no_values():
    agent = small(InvestorImitatorAgent)
    rollouts = agent.train(PANEL, DISCRETE_SPEC, WINDOW, 0, TrainingHooks(sample_rate=1.0)).rollouts
    assert rollouts["value"].is_null().all()
    assert rollouts["log_prob"].is_not_null().all()


@pytest.mark.parametrize("settings", [{"gamma": 0.5}, {"backbone": {"kind": "mlp"}}])
def test_imitator_takes_neither_discount_nor_another_backbone(settings):
    document = {"name": "imitated", "environment": {"action": {"kind": "choice"}}}
    agent = {"kind": "investor_imitator"}
    assert ExperimentSpec.model_validate({**document, "agent": agent}).agent.backbone.kind == "investors"
    with pytest.raises(ValidationError):
        ExperimentSpec.model_validate({**document, "agent": {**agent, **settings}})
