import pytest
from stable_baselines3.common.buffers import RolloutBuffer

from nvtrader_pipelines.policies.agents.rollouts import InPlaceRolloutBuffer
from tests.markets import synthetic_panel
from tests.policies.agents.learners import a2c, bits, ppo, trained

pytestmark = pytest.mark.slow

PANEL = synthetic_panel(160, 3)


@pytest.mark.slow
@pytest.mark.parametrize("make", [ppo, a2c])
def test_training_equals_one_on_the_library_buffer(make):
    def on(buffer):
        return trained(lambda env, seed: make(env, seed, rollout_buffer_class=buffer), PANEL)

    (ours, log), (theirs, library_log) = on(InPlaceRolloutBuffer), on(RolloutBuffer)
    assert type(ours.rollout_buffer) is InPlaceRolloutBuffer
    assert bits(ours) == bits(theirs)
    assert log.points == library_log.points


def test_buffer_allocates_once():
    model, _ = trained(lambda env, seed: ppo(env, seed, rollout_buffer_class=InPlaceRolloutBuffer), PANEL)
    buffer = model.rollout_buffer
    before = [buffer.observations.ctypes.data, buffer.actions.ctypes.data]
    buffer.reset()
    assert (buffer.pos, buffer.full) == (0, False)
    assert [buffer.observations.ctypes.data, buffer.actions.ctypes.data] == before
