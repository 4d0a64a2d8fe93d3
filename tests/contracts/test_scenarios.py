import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.portfolio.scenarios import CommonRandomNumbers
from tests.contracts.families import defaults

SCENARIOS = pytest.mark.parametrize("spec", defaults("scenarios"), ids=lambda spec: spec.kind)
RESAMPLED = pytest.mark.parametrize(
    "spec", [spec for spec in defaults("scenarios") if not hasattr(spec, "bandwidth")], ids=lambda spec: spec.kind
)
PAST = np.random.default_rng(0).normal(0.0, 0.01, (60, 3))


def small(spec, **changes):
    fields = {"n_scenarios": 500, **changes}
    return spec.model_copy(update={name: value for name, value in fields.items() if name in type(spec).model_fields})


@SCENARIOS
@given(
    past=arrays(float, st.tuples(st.integers(2, 40), st.integers(1, 6)), elements=st.floats(-0.9, 2.0)),
    horizon=st.sampled_from([1, 2, 7]),
)
def test_scenarios_are_finite_simple_returns_of_every_name(spec, past, horizon):
    drawn = small(spec, horizon=min(horizon, len(past))).draw(past, np.random.default_rng(0))
    n_scenarios = 500 if hasattr(spec, "n_scenarios") else len(past) - min(horizon, len(past)) + 1
    assert drawn.shape == (n_scenarios, past.shape[1])
    assert drawn.dtype == np.float64
    assert drawn.flags.c_contiguous
    assert np.isfinite(drawn).all()
    assert (drawn >= -1.0).all()


@SCENARIOS
@pytest.mark.parametrize("horizon", [1, 5])
@pytest.mark.parametrize("numbers", [np.random.default_rng, CommonRandomNumbers])
def test_the_same_seed_gives_the_same_bytes_and_leaves_the_past_as_it_was(spec, horizon, numbers):
    past, spec = PAST.copy(), small(spec, horizon=horizon)
    past.flags.writeable = False
    assert spec.draw(past, numbers(1)).tobytes() == spec.draw(past, numbers(1)).tobytes()
    if spec.kind != "historical":
        assert (spec.draw(past, numbers(1)) != spec.draw(past, numbers(2))).any()


@SCENARIOS
def test_a_generator_goes_on_and_common_random_numbers_repeat(spec):
    generator, common = np.random.default_rng(1), CommonRandomNumbers(1)
    if spec.kind != "historical":
        assert (small(spec).draw(PAST, generator) != small(spec).draw(PAST, generator)).any()
    np.testing.assert_array_equal(small(spec).draw(PAST, common), small(spec).draw(PAST, common))


@RESAMPLED
def test_without_a_kernel_scenarios_of_one_session_are_past_returns(spec):
    drawn = small(spec, horizon=1).draw(PAST, np.random.default_rng(0))
    assert np.abs(drawn[:, None, :] - PAST[None]).max(axis=2).min(axis=1).max() < 1e-15


@SCENARIOS
@pytest.mark.parametrize(
    ("past", "message"),
    [
        (np.zeros(5), r"at least two sessions and one name, but got shape \(5,\)"),
        (np.zeros((1, 3)), r"got shape \(1, 3\)"),
        (np.zeros((5, 0)), r"got shape \(5, 0\)"),
        (np.array([[0.0, 0.1], [0.0, np.nan], [np.inf, 0.0]]), "2 of 6 are not, the first at session 1 of name 1"),
        (np.array([[0.0, 0.1], [0.0, 0.1], [-1.5, 0.0]]), "that of session 2 of name 0 is -1.5"),
        (np.array([[0.0, 0.1], [0.0, -1.0], [0.0, 0.0]]), "that of session 1 of name 1 is -1;"),
    ],
)
def test_a_past_without_log_returns_is_refused_with_its_place(spec, past, message):
    with pytest.raises(ValueError, match=message):
        spec.draw(past, np.random.default_rng(0))


@RESAMPLED
def test_without_a_kernel_names_do_not_depend_on_their_order(spec):
    drawn = small(spec).draw(PAST, np.random.default_rng(0))
    np.testing.assert_array_equal(small(spec).draw(PAST[:, ::-1], np.random.default_rng(0)), drawn[:, ::-1])
