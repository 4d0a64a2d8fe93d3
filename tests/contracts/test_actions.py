import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.envs.actions import ActionSize
from tests.contracts.families import defaults
from tests.panels import cut, eventful_panel, with_other_future

PANEL = eventful_panel()
ACTIONS = pytest.mark.parametrize("action", defaults("action"), ids=lambda action: action.kind)


@ACTIONS
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.0, 0.1, 3.0, 1e3]))
def test_targets_are_on_the_simplex_of_eligible_names(action, seed, scale):
    generator = np.random.default_rng(seed)
    t = generator.integers(0, len(PANEL.sessions), 20)
    weights = action.start(PANEL)(generator.normal(0.0, 1.0, (20, 7)) * scale, t)
    assert weights.dtype == np.float64
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert not weights[:, :-1][~PANEL.eligible[t]].any()


@ACTIONS
def test_action_beyond_the_box_is_clipped(action):
    size = action.size(6)
    beyond = np.random.default_rng(0).normal(0.0, 10.0 * size.bound, (20, size.length))
    target, t = action.start(PANEL), np.arange(60, 80)
    np.testing.assert_array_equal(target(beyond, t), target(np.clip(beyond, -size.bound, size.bound), t))


@ACTIONS
def test_float32_and_float64_actions_give_equal_targets(action):
    raw = np.random.default_rng(0).normal(0.0, 1.0, (20, 7)).astype(np.float32)
    target, t = action.start(PANEL), np.arange(60, 80)
    np.testing.assert_array_equal(target(raw, t), target(raw.astype(np.float64), t))


@ACTIONS
def test_action_has_one_number_per_name_and_one_for_cash(action):
    size = action.size(6)
    assert isinstance(size, ActionSize)
    assert (size.length, size.bound > 0.0) == (7, True)


@ACTIONS
@pytest.mark.parametrize("t", [31, 49, 63, 110])
def test_targets_do_not_look_ahead(action, t):
    past = np.arange(t + 1)
    raw = np.random.default_rng(0).normal(0.0, 1.0, (t + 1, 7))
    known = action.start(PANEL)(raw, past)
    for other in (with_other_future(PANEL, t), cut(PANEL, t)):
        np.testing.assert_array_equal(action.start(other)(raw, past), known)
