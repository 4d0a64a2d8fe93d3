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
def test_features_are_the_encoding_followed_by_the_rest_of_the_observation(backbone):
    extractor, observations = extractor_of(backbone), observed(7)
    features = extractor(observations)
    assert features.shape == (7, extractor.features_dim)
    assert features.dtype == torch.float32
    assert extractor.features_dim == extractor.encoder.n_features + REST
    assert torch.equal(features[:, -REST:], observations[:, -REST:])


@EACH
def test_encoding_depends_on_every_session_of_every_name(backbone):
    extractor, observation = extractor_of(backbone).double(), observed(1).double()
    changes = torch.eye(LOOKBACK * N, LAYOUT.length, dtype=torch.float64)
    moved = (extractor(observation + changes) - extractor(observation))[:, :-REST]
    assert (moved.abs().amax(dim=1) > 1e-9).all()


@EACH
def test_encoding_depends_on_the_window_only(backbone):
    extractor, observation = extractor_of(backbone), observed(2)
    other = torch.cat([observation[:, :-REST], observation[:, -REST:] + 1.0], dim=1)
    assert torch.equal(extractor(other)[:, :-REST], extractor(observation)[:, :-REST])


@EACH
@pytest.mark.parametrize("value", [0.0, 10.0, -10.0])
def test_encoding_and_gradient_are_finite_at_extreme_windows(backbone, value):
    policy = policy_of(backbone)
    values, log_prob, _ = policy.evaluate_actions(torch.full((2, LAYOUT.length), value), torch.zeros(2, N + 1))
    (values.sum() + log_prob.sum()).backward()
    assert torch.isfinite(values).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in policy.parameters())


@EACH
def test_encoding_does_not_depend_on_the_batch(backbone):
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
def test_shared_encoder_gets_gradients_from_actor_and_critic(backbone):
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
def test_extractor_weights_depend_on_the_torch_seed_only(backbone):
    first, again, other = (extractor_of(backbone, seed=seed).state_dict() for seed in (1, 1, 2))
    assert bits(first) == bits(again)
    assert bits(first) != bits(other)


@pytest.mark.slow
@EACH
def test_short_training_changes_every_tensor(backbone):
    before, after = trained(backbone)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    assert all(not torch.equal(before[name], after[name]) for name in after)


def test_window_ends_with_the_last_return_of_each_name():
    panel = synthetic_panel(60, N)
    builder = LookbackObservation().start(panel, ObservationScaler(), LOOKBACK)
    observation = builder.observe(np.array([30]), AccountView(np.full((1, N + 1), 0.25), np.zeros(1)))
    extractor = extractor_of(WINDOWED[0], builder.layout)
    (window,) = extractor.window(torch.as_tensor(observation)).numpy()
    np.testing.assert_array_equal(window, np.log1p(panel.close_returns[31 - LOOKBACK : 31]).astype(np.float32))


@EACH
def test_observation_without_a_window_raises(backbone):
    assert backbone.needs_window
    with pytest.raises(ValueError):
        backbone.extractor(ObservationLayout(20, N, lookback=0))


def test_the_mlp_takes_any_observation_as_it_is():
    assert not MlpBackbone.needs_window
    assert MlpBackbone().extractor(ObservationLayout(20, N, lookback=0)) == {}
