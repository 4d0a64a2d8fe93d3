import numpy as np
import torch
from gymnasium.spaces import Box

from nvtrader_pipelines.policies.replay.priority_buffer import PriorityBuffer

ERRORS = np.array([[0.5, 2.0], [1.0, 0.25], [4.0, 0.0]])  # three rows of two portfolios


def buffer(alpha=0.6, beta=0.4, n_rows=3):
    space = Box(-np.inf, np.inf, (1,), np.float32)
    made = PriorityBuffer(8, space, space, n_envs=2, alpha=alpha, beta=beta)
    for row in range(n_rows):
        place = np.array([[2.0 * row], [2.0 * row + 1.0]])
        timeouts = [{"TimeLimit.truncated": bool(row)}, {}]
        made.add(place, place + 10.0, place + 20.0, np.array([row, -row]), np.array([True, row == 1]), timeouts)
    return made


def prioritized(**settings):
    made = buffer(**settings)
    made.drawn = np.arange(6)
    made.update_priorities(torch.as_tensor(ERRORS.reshape(-1, 1)))
    return made


def test_probabilities_and_weights_equal_those_by_hand():
    np.random.seed(0)  # noqa: NPY002 - the generator that SB3 seeds
    made = prioritized()
    made.sample(20_000)
    scaled = (ERRORS.ravel() + 1e-6) ** 0.6
    expected = scaled / scaled.sum()
    np.testing.assert_allclose(made.probabilities, expected[made.drawn])
    np.testing.assert_allclose(np.bincount(made.drawn, minlength=6) / 20_000, expected, atol=0.01)
    for remaining, beta in ((1.0, 0.4), (0.5, 0.7), (0.0, 1.0), (-0.1, 1.0)):
        weights = (6.0 * expected[made.drawn]) ** -beta
        np.testing.assert_allclose(made.weights(remaining).numpy()[:, 0], weights / weights.max(), rtol=1e-6)


def test_new_steps_have_the_maximum_priority_so_far():
    made = prioritized()
    assert made.priorities[:3].tolist() == (ERRORS + 1e-6).tolist()
    made.drawn = np.arange(6)
    made.update_priorities(torch.full((6, 1), -0.5))
    for _ in range(2):  # the second replaces the oldest row
        made.add(*(np.zeros((2, 1)) for _ in range(3)), np.zeros(2), np.zeros(2), [{}, {}])
    np.testing.assert_allclose(made.priorities, [[4.0, 4.0], [0.5, 0.5], [0.5, 0.5], [4.0, 4.0]], atol=2e-6)


def test_samples_are_the_stored_steps_and_a_timeout_is_no_end():
    made = buffer(alpha=0.0)
    samples = made.sample(500)
    place = torch.as_tensor(made.drawn, dtype=torch.float32)[:, None]
    assert set(made.drawn) == set(range(6))  # no empty row, though its priority to the power of 0 is 1
    assert torch.equal(samples.observations, place)
    assert torch.equal(samples.next_observations, place + 10.0)
    assert torch.equal(samples.actions, place + 20.0)
    assert samples.rewards[:, 0].tolist() == np.array([0, 0, 1, -1, 2, -2])[made.drawn].tolist()
    assert samples.dones[:, 0].tolist() == np.array([1, 0, 0, 1, 0, 0])[made.drawn].tolist()
    assert torch.equal(made.weights(0.3), torch.ones(500, 1))
