import pytest
import torch
from safetensors.torch import save

from nvtrader_pipelines.policies.agents import Agent, GroupedPpoAgent, Learner, PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.checkpoints import CheckpointError
from nvtrader_pipelines.policies.agents.off_policy import ReplayLearner
from nvtrader_pipelines.policies.agents.on_policy import EntropyAnnealing, WeightedLosses
from nvtrader_pipelines.policies.backbones import Backbone, SharedAssetBackbone
from nvtrader_pipelines.policies.fit import Start
from tests.contracts.families import members
from tests.markets import synthetic_panel
from tests.policies.small_learners import RESIDUAL_SPEC, SPEC, TUNERS, WINDOW, bits, small, spec_of

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)
TINY = {"total_timesteps": 640, "n_top": 1}
LEARNERS = [member for member in members(Agent) if issubclass(member, Learner) and member not in TUNERS]
RESUMABLE = [member for member in LEARNERS if not issubclass(member, ReplayLearner)]
OTHERS = [member for member in LEARNERS if issubclass(member, ReplayLearner)]
ANNEALED = [member for member in RESUMABLE if issubclass(member, WeightedLosses)]


def tiny(member, **settings):
    """A member with as little to do as it knows how to."""
    return small(member, **{name: value for name, value in TINY.items() if name in member.model_fields}, **settings)


def assert_resumes(agent, spec=None, start=None):
    spec = spec or spec_of(agent)
    saved, saved_later = [], []
    hooks = TrainingHooks(checkpoint=saved.append, sample_rate=0.5, start=start)
    whole = agent.train(PANEL, spec, WINDOW, 0, hooks)
    assert len(saved) >= 3
    torch.rand(7)
    hooks = TrainingHooks(checkpoint=saved_later.append, resume_from=saved[1], sample_rate=0.5, start=start)
    rest = agent.train(PANEL, spec, WINDOW, 0, hooks)
    assert saved_later == saved[2:]
    assert rest.curve == whole.curve
    assert rest.rollouts.equals(whole.rollouts)
    assert bits(rest) == bits(whole)


@pytest.mark.parametrize("member", RESUMABLE)
def test_resumable_agent_resumes_bit_for_bit(member):
    agent = tiny(member)
    assert_resumes(agent, spec_of(agent))


@pytest.mark.parametrize("member", [PpoAgent, GroupedPpoAgent])
def test_training_from_a_start_is_resumed_bit_for_bit(member):
    before = tiny(member).train(PANEL, SPEC, WINDOW, 1)
    assert_resumes(tiny(member, start="0" * 16), start=Start(before.scaler, save(before.tensors), ""))


@pytest.mark.parametrize(
    "member", [ANNEALED[0], *(pytest.param(member, marks=pytest.mark.nightly) for member in ANNEALED[1:])]
)
def test_annealed_entropy_is_resumed_bit_for_bit(member):
    assert_resumes(tiny(member, ent_coef=EntropyAnnealing(start=0.5, end=0.0)))


@pytest.mark.nightly
@pytest.mark.parametrize("backbone", members(Backbone))
def test_every_backbone_is_resumed_bit_for_bit(backbone):
    spec = RESIDUAL_SPEC if backbone is SharedAssetBackbone else SPEC.model_copy(update={"lookback": 20})
    assert_resumes(tiny(PpoAgent, backbone=backbone()), spec)


@pytest.mark.parametrize("member", OTHERS)
def test_non_resumable_agent_raises_for_a_checkpoint(member):
    with pytest.raises(CheckpointError):
        tiny(member).train(PANEL, spec_of(member()), WINDOW, 0, TrainingHooks(resume_from=b"any"))
