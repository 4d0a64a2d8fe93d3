import numpy as np
import pytest
import torch
from pydantic import ValidationError

from nvtrader_pipelines.envs.simulation import PortfolioSimulation
from nvtrader_pipelines.envs.spaces import action_space, observation_space
from nvtrader_pipelines.policies.agents import RecurrentPpoAgent
from tests.markets import synthetic_panel
from tests.policies.small_learners import SPEC, WINDOW, small

PANEL = synthetic_panel(160, 3)
AGENT = small(RecurrentPpoAgent)


def network(agent=AGENT):
    simulation = PortfolioSimulation(PANEL, SPEC, 1)
    net = agent.network(simulation.builder.layout, observation_space(simulation), action_space(simulation))
    net.set_training_mode(False)
    return net, torch.as_tensor(simulation.observe())


def walk(agent, net, observations):
    """The agent's answers to one observation after the other."""
    state, outputs = None, []
    with torch.no_grad():
        for observation in observations:
            outputs.append(agent.act(net, observation, state))
            state = outputs[-1].state
    return outputs


@pytest.mark.parametrize("n_lstm_layers", [1, 2])
def test_recurrent_actions_match_the_library_with_carried_state(n_lstm_layers):
    agent = small(RecurrentPpoAgent, n_lstm_layers=n_lstm_layers)
    net, observation = network(agent)
    observations = [observation + k for k in range(4)]
    state = None
    for seen, output in zip(observations, walk(agent, net, observations), strict=True):
        action, state = net.predict(seen.numpy(), state, episode_start=np.array([False]), deterministic=True)
        np.testing.assert_array_equal(np.clip(output.action, -5.0, 5.0), action[0])


def test_recurrent_action_depends_on_earlier_observations():
    net, observation = network()
    (_, after_one), (_, after_other) = (walk(AGENT, net, [seen, observation]) for seen in (observation, -observation))
    assert after_one.action.tobytes() != after_other.action.tobytes()
    assert after_one.value != after_other.value
    assert walk(AGENT, net, [observation])[0].action.tobytes() != after_one.action.tobytes()


def test_memory_is_as_large_as_asked_for():
    net, _ = network(small(RecurrentPpoAgent, n_lstm_layers=2, lstm_hidden_size=5))
    assert net.lstm_actor.hidden_size == net.lstm_critic.hidden_size == 5
    assert net.lstm_actor.num_layers == net.lstm_critic.num_layers == 2
    assert not net.shared_lstm


@pytest.mark.parametrize("field", ["lstm_hidden_size", "n_lstm_layers"])
def test_a_memory_of_nothing_is_refused(field):
    with pytest.raises(ValidationError):
        RecurrentPpoAgent.model_validate({field: 0})


@pytest.mark.slow
def test_training_learns_both_memories():
    start = AGENT.model_copy(update={"learning_rate": 1e-12}).train(PANEL, SPEC, WINDOW, 0).tensors
    trained = AGENT.train(PANEL, SPEC, WINDOW, 0).tensors
    for part in ("lstm_actor", "lstm_critic"):
        names = [name for name in trained if name.startswith(part)]
        assert names
        assert not any(torch.equal(trained[name], start[name]) for name in names)
