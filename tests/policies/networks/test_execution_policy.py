import numpy as np
import pytest
import torch
from gymnasium import spaces

from nvtrader_pipelines.policies.networks.execution_policy import DistilledPolicy, DualHeadPolicy
from nvtrader_pipelines.policies.world_agents.execution_backbones import EteoDualHead, PdDualRnn

N_SEEN, N_AHEAD = 5, 2
ACTIONS = spaces.Box(np.float32(-1.0), np.float32(3.0), (1,))
BACKBONES = [EteoDualHead(hidden=(8,)), PdDualRnn(hidden_size=4)]
OBSERVATIONS = torch.from_numpy(np.random.default_rng(0).normal(size=(20, N_SEEN + N_AHEAD)).astype(np.float32))


def policy_of(kind, backbone, n_columns=N_SEEN + N_AHEAD, **settings):
    """Policy with random heads; by default they begin at 0."""
    space = spaces.Box(-np.inf, np.inf, (n_columns,))
    policy = kind(space, ACTIONS, lambda _: 1e-3, **backbone.settings(), **settings)
    for head in (policy.action_net, policy.std_net):
        torch.nn.init.normal_(head.weight)
    return policy


def normal_of(policy, observations):
    distribution = policy.get_distribution(observations).distribution
    return distribution.mean[:, 0], distribution.stddev[:, 0]


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone.kind)
def test_distilled_policy_returns_minus_the_divergence_of_two_normals(backbone):
    teacher, student = policy_of(DualHeadPolicy, backbone), policy_of(DistilledPolicy, backbone, n_seen=N_SEEN)
    student.teacher = (teacher,)
    actions = torch.linspace(-1.0, 3.0, 20)[:, None]
    values, log_probs, entropy = student.evaluate_actions(OBSERVATIONS, actions)
    (taught, spread), (mean, deviation) = normal_of(teacher, OBSERVATIONS), normal_of(student, OBSERVATIONS)
    divergence = torch.log(deviation / spread) + (spread**2 + (taught - mean) ** 2) / (2.0 * deviation**2) - 0.5
    torch.testing.assert_close(entropy, -divergence, rtol=1e-4, atol=1e-5)
    assert divergence.max() > 1e-3
    density = -0.5 * ((actions[:, 0] - mean) / deviation) ** 2 - deviation.log() - 0.5 * np.log(2.0 * np.pi)
    torch.testing.assert_close(log_probs, density, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(values, student.predict_values(OBSERVATIONS))
    entropy.sum().backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert not [name for name in student.state_dict() if "teacher" in name]


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone.kind)
def test_policy_reads_no_column_beyond_those_seen(backbone):
    teacher, student = policy_of(DualHeadPolicy, backbone), policy_of(DistilledPolicy, backbone, n_seen=N_SEEN)
    others = OBSERVATIONS.clone()
    others[:, N_SEEN:] += 1.0
    for policy, is_equal in ((student, True), (teacher, False)):
        before, after = (torch.stack(normal_of(policy, rows)) for rows in (OBSERVATIONS, others))
        assert torch.equal(before, after) == is_equal
    assert torch.equal(student.predict_values(OBSERVATIONS), student.predict_values(others))


@pytest.mark.parametrize("backbone", BACKBONES, ids=lambda backbone: backbone.kind)
@pytest.mark.parametrize("n_columns", [3, N_SEEN])  # of the order alone, and with moves
def test_new_policy_begins_in_the_middle_of_the_range(backbone, n_columns):
    policy = policy_of(DualHeadPolicy, backbone, n_columns)
    torch.nn.init.zeros_(policy.action_net.weight)
    torch.nn.init.zeros_(policy.std_net.weight)
    mean, deviation = normal_of(policy, OBSERVATIONS[:, :n_columns])
    torch.testing.assert_close(mean, torch.full((20,), 1.0))
    torch.testing.assert_close(deviation, torch.full((20,), 4.0 * backbone.initial_std))
