import pytest
import torch

from nvtrader_pipelines.envs.observations import PerAssetObservation
from tests.contracts.families import defaults
from tests.policies.backbones.networks import bits, environment, policy_of, trained
from tests.policies.small_learners import SPEC

BACKBONES = pytest.mark.parametrize("backbone", defaults("backbone"), ids=lambda backbone: backbone.kind)


def spec_of(backbone):
    """An environment whose observation the backbone reads."""
    return SPEC.model_copy(update={"observation": PerAssetObservation()}) if backbone.kind == "shared_asset" else SPEC


def layout_of(backbone):
    return environment(spec_of(backbone)).simulation.builder.layout


@BACKBONES
def test_a_network_is_built_the_same_from_the_same_torch_seed_and_starts_with_the_given_deviation(backbone):
    layout = layout_of(backbone)
    first, again, other = (bits(policy_of(backbone, layout, seed).state_dict()) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    log_std = policy_of(backbone, layout, log_std=-1.25).log_std
    assert torch.equal(log_std, torch.full_like(log_std, -1.25))


@BACKBONES
def test_a_short_training_gives_finite_tensors_and_the_same_bytes_for_the_same_seed(backbone):
    before, first = trained(backbone, spec_of(backbone), seed=3)
    assert bits(first) != bits(before)
    assert all(torch.isfinite(tensor).all() for tensor in first.values())
    torch.rand(10)  # what ran before does not matter
    assert bits(trained(backbone, spec_of(backbone), seed=3)[1]) == bits(first)
    assert bits(trained(backbone, spec_of(backbone), seed=4)[1]) != bits(first)


@BACKBONES
def test_preparing_leaves_torchs_generator_as_it_was(backbone):
    layout = layout_of(backbone)
    policy = policy_of(backbone, layout)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    backbone.prepare(policy, torch.zeros(20, layout.length), 5)
    assert torch.equal(torch.get_rng_state(), before)
