import pytest

from nvtrader_pipelines.policies.agents import PpoAgent, TrainingHooks
from nvtrader_pipelines.policies.agents.on_policy import EntropyAnnealing, WeightedLosses
from tests.markets import synthetic_panel
from tests.policies.small_learners import LEARNERS, WINDOW, bits, small, spec_of

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)
ANNEALED = [type(agent) for agent in LEARNERS.values() if isinstance(agent, WeightedLosses)]
EVERY = pytest.mark.parametrize("member", ANNEALED)


def test_entropy_coefficient_falls_linearly_from_start_to_end():
    agent = PpoAgent.model_validate({"ent_coef": {"start": 0.03, "end": 0.01}})
    remaining = (1.0, 0.5, 0.0, -0.1)  # the last rollout may overshoot
    assert [agent.entropy_coefficient(share) for share in remaining] == pytest.approx([0.03, 0.02, 0.01, 0.01])


@EVERY
def test_updates_use_the_annealed_entropy_coefficient(member):
    points = []
    agent = small(member, total_timesteps=768, ent_coef=EntropyAnnealing(start=0.3, end=0.0))
    agent.train(PANEL, spec_of(agent), WINDOW, 0, TrainingHooks(points.append))
    scheduled = [0.3 * max(0.0, 1.0 - point.timesteps / 768) for point in points[:-1]]
    assert len(scheduled) > 1
    assert [point.scalars["train/ent_coef"] for point in points[1:]] == pytest.approx(scheduled)


@EVERY
def test_constant_annealing_trains_as_its_number(member):
    choices = 0.1, EntropyAnnealing(start=0.1, end=0.1), EntropyAnnealing(start=0.1, end=0.0)
    constant, same, falling = (
        bits(small(member, ent_coef=choice).train(PANEL, spec_of(small(member)), WINDOW, 0)) for choice in choices
    )
    assert constant == same
    assert constant != falling
