import numpy as np

from nvtrader_pipelines.envs.observations.builder import observation_hash


def test_the_hash_of_an_observation_follows_its_content_and_fits_a_signed_long():
    observation = np.arange(5, dtype=np.float32)
    changed = observation.copy()
    changed[2] = np.nextafter(changed[2], np.float32(9))
    assert observation_hash(observation) == observation_hash(observation.copy())
    assert observation_hash(observation) != observation_hash(changed)
    assert -(2**63) <= observation_hash(observation) < 2**63


def test_the_hash_of_an_observation_is_the_same_for_a_view():
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    assert observation_hash(table[:, 0]) == observation_hash(table[:, 0].copy())
