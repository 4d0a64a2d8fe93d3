import pytest
import torch

from nvtrader_pipelines.envs.observations import PerAssetObservation
from tests.contracts.families import defaults
from tests.policies.backbones.networks import bits, environment, history, policy_of, trained
from tests.policies.small_learners import SPEC

BACKBONES = pytest.mark.parametrize("backbone", defaults("backbone"), ids=lambda backbone: backbone.kind)

N_STEPS = 128  # two updates


def spec_of(backbone):
    """Return an environment with an observation that the backbone reads."""
    return SPEC.model_copy(update={"observation": PerAssetObservation()}) if backbone.kind == "shared_asset" else SPEC


def layout_of(backbone):
    return environment(spec_of(backbone)).simulation.builder.layout


@BACKBONES
def test_network_is_reproducible_and_starts_with_given_deviation(backbone):
    layout = layout_of(backbone)
    first, again, other = (bits(policy_of(backbone, layout, seed).state_dict()) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    log_std = policy_of(backbone, layout, log_std=-1.25).log_std
    assert torch.equal(log_std, torch.full_like(log_std, -1.25))


@pytest.mark.slow
@BACKBONES
def test_training_is_finite_and_reproducible_by_seed(backbone):
    before, first = trained(backbone, spec_of(backbone), 3, N_STEPS)
    assert bits(first) != bits(before)
    assert all(torch.isfinite(tensor).all() for tensor in first.values())
    torch.rand(10)  # the state of torch's generator does not matter
    assert bits(trained(backbone, spec_of(backbone), 3, N_STEPS)[1]) == bits(first)
    assert bits(trained(backbone, spec_of(backbone), 4, N_STEPS)[1]) != bits(first)


@BACKBONES
def test_preparing_does_not_change_the_torch_generator(backbone):
    layout = layout_of(backbone)
    policy = policy_of(backbone, layout)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    backbone.prepare(policy, history(torch.zeros(20, layout.length)), 5)
    assert torch.equal(torch.get_rng_state(), before)
