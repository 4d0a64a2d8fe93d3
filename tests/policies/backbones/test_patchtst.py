import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.observations import ObservationLayout
from nvtrader_pipelines.policies.backbones import PatchTstBackbone
from tests.policies.backbones.networks import LOOKBACK, N, extractor_of, observed

SMALL = PatchTstBackbone(patch_length=4, stride=3, name_features=5)


def built(backbone=SMALL, lookback=LOOKBACK):
    return extractor_of(backbone, ObservationLayout(lookback * N + 5, N, lookback)).encoder


def windows(lookback=LOOKBACK, n=4):
    return observed(n, ObservationLayout(lookback * N, N, lookback)).unflatten(1, (lookback, N))


def test_encodings_follow_the_order_of_names():
    encoder, window, order = built(), windows(), [2, 0, 1]
    encodings = encoder(window).unflatten(1, (N, 5))
    torch.testing.assert_close(encoder(window[:, :, order]).unflatten(1, (N, 5)), encodings[:, order])


def test_a_name_does_not_hear_of_the_others():
    encoder, window = built(), windows()
    other = window.clone()
    other[:, :, 1:] += 1.0
    before, after = (encoder(x).unflatten(1, (N, 5)) for x in (window, other))
    torch.testing.assert_close(after[:, 0], before[:, 0])
    assert not torch.isclose(after[:, 1:], before[:, 1:]).all(dim=-1).any()


def test_encoder_size_is_independent_of_the_number_of_names():
    sizes = [sum(p.numel() for p in extractor_of(SMALL, ObservationLayout(12 * n, n, 12)).parameters()) for n in (1, 9)]
    assert sizes[0] == sizes[1]


@given(
    lookback=st.integers(5, 60),
    patch=st.integers(1, 20).flatmap(lambda length: st.tuples(st.just(length), st.integers(1, length))),
)
def test_patches_cover_every_session_in_order_up_to_the_close(lookback, patch):
    length, stride = patch
    window = windows(lookback, 2)
    patches = built(PatchTstBackbone(patch_length=length, stride=stride), lookback).patches(window)
    patches = patches.unflatten(0, (2, N)).transpose(2, 3)  # (n, name, session in patch, patch)
    n_patches = patches.shape[-1]
    for k in range(n_patches):
        end = lookback - (n_patches - 1 - k) * stride
        begin = max(end - length, 0)
        torch.testing.assert_close(patches[:, :, length - (end - begin) :, k], window[:, begin:end].transpose(1, 2))
        assert not patches[:, :, : length - (end - begin), k].any()  # before the window: no return
    first = lookback - (n_patches - 1) * stride - length
    assert -stride < first <= 0 or n_patches == 1  # the oldest session is read, by no more patches than it takes


def test_the_order_of_the_patches_matters():
    encoder = built(PatchTstBackbone(patch_length=4, stride=4))
    window = windows()
    swapped = torch.cat([window[:, 4:8], window[:, :4], window[:, 8:]], dim=1)
    assert not torch.allclose(encoder(swapped), encoder(window), atol=1e-4)


@pytest.mark.parametrize("fields", [{"patch_length": 5, "stride": 6}, {"n_heads": 3}])
def test_stride_above_patch_length_or_uneven_heads_are_invalid(fields):
    with pytest.raises(ValidationError):
        PatchTstBackbone(**fields)
