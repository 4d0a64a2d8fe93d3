import numpy as np
import pytest
import torch

from nvtrader_pipelines.envs.choice import descriptors
from nvtrader_pipelines.policies.backbones import InvestorsBackbone, SarlLstmBackbone
from nvtrader_pipelines.policies.backbones.backbone import TrainingHistory
from nvtrader_pipelines.policies.networks.name_forecasts import pretrain
from tests.policies.backbones.networks import LAYOUT, LOOKBACK, N, bits, extractor_of, observed, policy_of

EACH = pytest.mark.parametrize("backbone", [SarlLstmBackbone(), InvestorsBackbone()], ids=lambda each: each.kind)


def returns_after(observations, seed=1):
    """Next returns whose sign is that of the last return in the window."""
    last = observations[:, (LOOKBACK - 1) * N : LOOKBACK * N].double()
    return 0.01 * last.sign() * (1.0 + torch.rand(last.shape, generator=torch.Generator().manual_seed(seed)))


def history(n=300):
    observations = observed(n)
    return TrainingHistory(observations, returns_after(observations))


@pytest.mark.slow
def test_lstm_forecasts_the_sign_that_the_window_shows():
    known, unseen = history(), observed(200, seed=9)
    policy = policy_of(SarlLstmBackbone(hidden_size=16))
    losses = pretrain(policy, known, 12, 32, 1e-2, 0)
    forecasts = policy.features_extractor.encoder.forecast(policy.features_extractor.window(unseen))[:, :, 0]
    assert losses[-1] < 0.2 < losses[0]
    assert ((forecasts > 0.5) == (returns_after(unseen) > 0.0)).double().mean() > 0.95
    assert ((forecasts > 0.0) & (forecasts < 1.0)).all()


@pytest.mark.slow
def test_rises_without_a_price_are_no_labels():
    known = history()
    gaps = known.next_returns.clone()
    gaps[::2] = torch.nan
    alone = TrainingHistory(known.observations[1::2], known.next_returns[1::2])
    encoder = extractor_of(SarlLstmBackbone()).encoder
    assert encoder.targets(known._replace(next_returns=gaps))[::2].isnan().all()
    trained = [policy_of(SarlLstmBackbone(epochs=1, batch_size=500)) for _ in range(2)]
    first, second = (
        pretrain(policy, part, 1, 500, 1e-3, 0)
        for policy, part in zip(trained, (known._replace(next_returns=gaps), alone), strict=True)
    )
    assert first == pytest.approx(second, rel=1e-6)


def test_investors_forecast_the_descriptors_of_the_coming_window():
    known = history(80)
    gaps = known.next_returns.clone()
    gaps[40] = torch.nan  # the end of a training window
    targets = extractor_of(InvestorsBackbone()).encoder.targets(known._replace(next_returns=gaps)).numpy()
    coming = descriptors(gaps.numpy()[20 : 20 + LOOKBACK], LOOKBACK)[:, -1]
    every = np.stack([descriptors(gaps.numpy(), LOOKBACK)[:, t] for t in range(80)], axis=1).reshape(5, -1)
    expected = (coming - np.nanmean(every, axis=1)[:, None]) / np.nanstd(every, axis=1)[:, None]
    np.testing.assert_allclose(targets[20], expected.T, rtol=1e-5)
    assert np.isnan(targets[41 - LOOKBACK : 41]).all()
    assert np.isnan(targets[-LOOKBACK + 1 :]).all()


def test_training_shorter_than_the_forecasts_is_refused():
    with pytest.raises(ValueError):
        InvestorsBackbone().prepare(policy_of(InvestorsBackbone()), history(LOOKBACK - 1), 0)


@EACH
def test_encoding_is_the_window_and_the_forecasts(backbone):
    extractor, observations = extractor_of(backbone), observed(6)
    encoding, window = extractor.encoder(extractor.window(observations)), extractor.window(observations)
    assert torch.equal(encoding[:, : LOOKBACK * N], window.flatten(1))
    expected = extractor.encoder.forecast(window).flatten(1)
    torch.testing.assert_close(encoding[:, LOOKBACK * N :], expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(extractor.encoder(window.flip(0)).flip(0), encoding)  # whatever the batch is
    assert extractor.features_dim == extractor(observations).shape[1] == LAYOUT.length + expected.shape[1]


@EACH
def test_loaded_tensors_forecast_anew(backbone):
    extractor, other, observations = extractor_of(backbone), extractor_of(backbone, seed=1), observed(3)
    extractor(observations)
    extractor.load_state_dict(other.state_dict())
    assert torch.equal(extractor(observations), other(observations))


@EACH
def test_pretraining_depends_on_its_seed_and_on_no_generator(backbone):
    trained = []
    for seed in (1, 1, 2):
        policy = policy_of(backbone)
        state = torch.get_rng_state()
        backbone.model_copy(update={"epochs": 1}).prepare(policy, history(100), seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(parameter.grad is None for parameter in policy.parameters())
        torch.rand(3)
        trained.append(bits(policy.state_dict()))
    assert trained[0] == trained[1] != trained[2]
    changed = {name for name, content in bits(policy_of(backbone).state_dict()).items() if trained[0][name] != content}
    assert changed == {name for name in trained[0] if ".encoder." in name}
