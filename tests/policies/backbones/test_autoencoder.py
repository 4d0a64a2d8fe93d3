import pytest
import torch
from stable_baselines3 import SAC, TD3

from nvtrader_pipelines.policies.backbones import AutoencoderBackbone
from nvtrader_pipelines.policies.networks.autoencoder_network import reconstruct
from nvtrader_pipelines.policies.networks.window_network import WindowExtractor
from tests.policies.backbones.networks import (
    LOOKBACK,
    REST,
    N,
    bits,
    environment,
    extractor_of,
    history,
    observed,
    policy_of,
    trained,
)

FROZEN, FREE = AutoencoderBackbone(), AutoencoderBackbone(frozen=False)
EITHER = pytest.mark.parametrize("backbone", [FROZEN, FREE], ids=["frozen", "free"])


def prepared(backbone=FROZEN, seed=0, observations=None):
    policy = policy_of(backbone)
    backbone.prepare(policy, history(observed(200) if observations is None else observations), seed)
    return policy


def learned(encoder, windows, backbone):
    settings = backbone.model_dump(include={"epochs", "batch_size", "learning_rate"})
    return reconstruct(encoder, windows, seed=0, **settings)


def encoders(policy):
    return [module.encoder for module in policy.modules() if isinstance(module, WindowExtractor)]


@EITHER
def test_the_reconstructions_error_falls(backbone):
    encoder, windows = extractor_of(backbone).encoder, observed(300)[:, :-REST].unflatten(1, (LOOKBACK, N))
    errors = learned(encoder, windows, backbone)
    assert len(errors) == backbone.epochs + 1
    assert errors[-1] < 0.8 * errors[0]
    assert errors[-1] < errors[len(errors) // 2] < errors[0]


@pytest.mark.slow
def test_autoencoder_reconstructs_two_factor_windows_from_a_small_code():
    generator = torch.Generator().manual_seed(0)
    factors, loadings = torch.randn(400, 2, generator=generator), torch.randn(2, LOOKBACK * N, generator=generator)
    windows = (factors @ loadings).unflatten(1, (LOOKBACK, N))
    backbone = AutoencoderBackbone(code_size=4, epochs=60)
    errors = learned(extractor_of(backbone).encoder, windows, backbone)
    assert errors[-1] < 0.05 * float(windows.var())


@pytest.mark.slow
@EITHER
def test_pretraining_depends_on_the_seed(backbone):
    first, again, other = (bits(prepared(backbone, seed).state_dict()) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@EITHER
def test_pretraining_changes_the_encoder_only(backbone):
    before, after = bits(policy_of(backbone).state_dict()), bits(prepared(backbone).state_dict())
    assert before.keys() == after.keys()
    for name in before:
        assert (before[name] != after[name]) == (".encoder." in name)


@EITHER
def test_pretraining_leaves_no_gradient_and_the_generator_unchanged(backbone):
    policy = policy_of(backbone)
    torch.manual_seed(7)
    torch.rand(3)
    before = torch.get_rng_state()
    backbone.prepare(policy, history(observed(50)), 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in policy.parameters())


@EITHER
def test_only_an_unfrozen_encoder_learns(backbone):
    policy = prepared(backbone)
    values, log_prob, _ = policy.evaluate_actions(observed(), torch.ones(4, N + 1))
    (values.sum() + log_prob.sum()).backward()
    own = {id(parameter) for encoder in encoders(policy) for parameter in encoder.parameters()}
    for parameter in policy.parameters():
        learns = parameter.requires_grad and parameter.grad is not None and bool(parameter.grad.any())
        assert learns == (not backbone.frozen or id(parameter) not in own)


def test_only_the_windows_are_learned():
    observations = observed(100)
    other = torch.cat([observations[:, :-REST], 0.0 * observations[:, -REST:]], dim=1)
    first, second = (prepared(observations=x).state_dict() for x in (observations, other))
    assert bits(first) == bits(second)


@pytest.mark.slow
def test_training_leaves_a_frozen_encoder_unchanged():
    before, after = trained(FROZEN)
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]) == (".encoder." in name)


@pytest.mark.parametrize("algorithm", [SAC, TD3], ids=["sac", "td3"])
def test_separate_extractors_start_with_equal_encoders(algorithm):
    env = environment()
    layout = env.simulation.builder.layout
    kwargs = {"net_arch": [8], **FROZEN.extractor(layout)}
    model = algorithm(
        "MlpPolicy",
        env,
        learning_starts=8,
        buffer_size=200,
        batch_size=8,
        train_freq=8,
        seed=0,
        device="cpu",
        policy_kwargs=kwargs,
    )
    FROZEN.prepare(model.policy, history(observed(60, layout)), 0)
    first, *others = [bits(encoder.state_dict()) for encoder in encoders(model.policy)]
    assert len(others) >= 2
    assert all(other == first for other in others)
    model.learn(64)
    (actor,), (critic,), (target,) = map(encoders, (model.actor, model.critic, model.critic_target))
    assert bits(actor.state_dict()) == bits(critic.state_dict()) == first
    torch.testing.assert_close(target.state_dict(), critic.state_dict())  # SB3 averages the two, which rounds
    assert all(torch.isfinite(tensor).all() for tensor in model.policy.state_dict().values())


def test_codes_lie_within_one():
    assert extractor_of(FROZEN).encoder(1e3 * observed()[:, :-REST].unflatten(1, (LOOKBACK, N))).abs().max() <= 1.0
