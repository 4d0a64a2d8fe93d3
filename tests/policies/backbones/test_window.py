import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.observations import LookbackObservation, ObservationLayout, ObservationScaler
from nvtrader_pipelines.envs.observations.builder import AccountView
from nvtrader_pipelines.policies.backbones import MlpBackbone
from tests.markets import synthetic_panel
from tests.policies.backbones.networks import (
    LAYOUT,
    LOOKBACK,
    REST,
    WINDOWED,
    N,
    bits,
    extractor_of,
    name_of,
    observed,
    policy_of,
    trained,
)

EACH = pytest.mark.parametrize("backbone", WINDOWED, ids=name_of)


@EACH
def test_features_are_the_windows_encoding_and_then_the_rest_of_the_observation_as_it_is(backbone):
    extractor, observations = extractor_of(backbone), observed(7)
    features = extractor(observations)
    assert features.shape == (7, extractor.features_dim)
    assert features.dtype == torch.float32
    assert extractor.features_dim == extractor.encoder.n_features + REST
    assert torch.equal(features[:, -REST:], observations[:, -REST:])


@EACH
def test_a_change_in_any_session_of_any_name_changes_the_encoding(backbone):
    extractor, observation = extractor_of(backbone).double(), observed(1).double()
    changes = torch.eye(LOOKBACK * N, LAYOUT.length, dtype=torch.float64)
    moved = (extractor(observation + changes) - extractor(observation))[:, :-REST]
    assert (moved.abs().amax(dim=1) > 1e-9).all()


@EACH
def test_the_rest_of_the_observation_does_not_reach_the_encoding(backbone):
    extractor, observation = extractor_of(backbone), observed(2)
    other = torch.cat([observation[:, :-REST], observation[:, -REST:] + 1.0], dim=1)
    assert torch.equal(extractor(other)[:, :-REST], extractor(observation)[:, :-REST])


@EACH
@pytest.mark.parametrize("value", [0.0, 10.0, -10.0])
def test_a_window_without_returns_or_at_the_bounds_has_a_finite_encoding_and_gradient(backbone, value):
    policy = policy_of(backbone)
    values, log_prob, _ = policy.evaluate_actions(torch.full((2, LAYOUT.length), value), torch.zeros(2, N + 1))
    (values.sum() + log_prob.sum()).backward()
    assert torch.isfinite(values).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in policy.parameters())


@EACH
def test_an_observation_is_encoded_the_same_whatever_is_beside_it(backbone):
    extractor, observations = extractor_of(backbone), observed(6)
    together = extractor(observations)
    for i in range(6):
        torch.testing.assert_close(extractor(observations[i : i + 1])[0], together[i], rtol=1e-5, atol=1e-6)


@EACH
def test_acting_and_learning_see_the_same_network(backbone):
    policy, observations = policy_of(backbone), observed()
    policy.set_training_mode(True)
    learning = policy.get_distribution(observations).distribution.mean
    policy.set_training_mode(False)
    with torch.no_grad():
        acting = policy.get_distribution(observations).distribution.mean
    assert torch.equal(acting, learning)


@EACH
def test_every_parameter_learns_from_actor_and_critic_through_one_shared_encoder(backbone):
    policy = policy_of(backbone)
    assert policy.pi_features_extractor is policy.vf_features_extractor
    known = {id(p) for group in policy.optimizer.param_groups for p in group["params"]}
    assert known == {id(p) for p in policy.parameters()}
    values, log_prob, _ = policy.evaluate_actions(observed(), torch.ones(4, N + 1))
    for loss in (values.sum(), log_prob.sum()):
        policy.zero_grad()
        loss.backward(retain_graph=True)
        assert all(p.grad.abs().sum() > 0 for p in policy.features_extractor.parameters())
    (values.sum() + log_prob.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters())


@EACH
def test_an_extractor_is_built_the_same_from_the_same_torch_seed_and_another_from_another(backbone):
    first, again, other = (extractor_of(backbone, seed=seed).state_dict() for seed in (1, 1, 2))
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


@EACH
def test_a_short_training_moves_every_tensor_and_gives_the_same_finite_bytes_again(backbone):
    before, after = trained(backbone)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert all(not torch.equal(before[name], after[name]) for name in after)
    assert bits(trained(backbone)[1]) == bits(after)


def test_the_window_is_the_observations_own_with_the_last_return_of_each_name_last():
    panel = synthetic_panel(60, N)
    builder = LookbackObservation().start(panel, ObservationScaler(), LOOKBACK)
    observation = builder.observe(np.array([30]), AccountView(np.full((1, N + 1), 0.25), np.zeros(1)))
    extractor = extractor_of(WINDOWED[0], builder.layout)
    (window,) = extractor.window(torch.as_tensor(observation)).numpy()
    np.testing.assert_array_equal(window, np.log1p(panel.close_returns[31 - LOOKBACK : 31]).astype(np.float32))


@EACH
def test_an_observation_without_a_window_is_refused(backbone):
    assert backbone.needs_window
    with pytest.raises(ValueError, match="needs an observation that has one"):
        backbone.extractor(ObservationLayout(20, N, lookback=0))


def test_the_mlp_takes_any_observation_as_it_is():
    assert not MlpBackbone.needs_window
    assert MlpBackbone().extractor(ObservationLayout(20, N, lookback=0)) == {}
