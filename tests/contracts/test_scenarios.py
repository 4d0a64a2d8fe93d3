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


def shrink(spec, **changes):
    fields = {"n_scenarios": 500, **changes}
    return spec.model_copy(update={name: value for name, value in fields.items() if name in type(spec).model_fields})


@SCENARIOS
@given(
    past=arrays(float, st.tuples(st.integers(2, 40), st.integers(1, 6)), elements=st.floats(-0.9, 2.0)),
    horizon=st.sampled_from([1, 2, 7]),
)
def test_scenarios_are_finite_simple_returns_of_every_name(spec, past, horizon):
    drawn = shrink(spec, horizon=min(horizon, len(past))).draw(past, np.random.default_rng(0))
    n_scenarios = 500 if hasattr(spec, "n_scenarios") else len(past) - min(horizon, len(past)) + 1
    assert drawn.shape == (n_scenarios, past.shape[1])
    assert drawn.dtype == np.float64
    assert drawn.flags.c_contiguous
    assert np.isfinite(drawn).all()
    assert (drawn >= -1.0).all()


@pytest.mark.slow
@SCENARIOS
@pytest.mark.parametrize("horizon", [1, 5])
@pytest.mark.parametrize("numbers", [np.random.default_rng, CommonRandomNumbers])
def test_scenarios_are_reproducible_and_leave_the_past_unchanged(spec, horizon, numbers):
    past, spec = PAST.copy(), shrink(spec, horizon=horizon)
    past.flags.writeable = False
    assert spec.draw(past, numbers(1)).tobytes() == spec.draw(past, numbers(1)).tobytes()
    if spec.kind != "historical":
        assert (spec.draw(past, numbers(1)) != spec.draw(past, numbers(2))).any()


@pytest.mark.slow
@SCENARIOS
def test_generator_advances_and_common_random_numbers_repeat(spec):
    generator, common = np.random.default_rng(1), CommonRandomNumbers(1)
    if spec.kind != "historical":
        assert (shrink(spec).draw(PAST, generator) != shrink(spec).draw(PAST, generator)).any()
    np.testing.assert_array_equal(shrink(spec).draw(PAST, common), shrink(spec).draw(PAST, common))


@RESAMPLED
def test_scenarios_without_kernel_are_past_returns(spec):
    drawn = shrink(spec, horizon=1).draw(PAST, np.random.default_rng(0))
    assert np.abs(drawn[:, None, :] - PAST[None]).max(axis=2).min(axis=1).max() < 1e-15


@SCENARIOS
@pytest.mark.parametrize(
    "past",
    [
        np.zeros(5),
        np.zeros((1, 3)),
        np.zeros((5, 0)),
        np.array([[0.0, 0.1], [0.0, np.nan], [np.inf, 0.0]]),
        np.array([[0.0, 0.1], [0.0, 0.1], [-1.5, 0.0]]),
        np.array([[0.0, 0.1], [0.0, -1.0], [0.0, 0.0]]),
    ],
)
def test_past_without_log_returns_is_refused(spec, past):
    with pytest.raises(ValueError):
        spec.draw(past, np.random.default_rng(0))


@RESAMPLED
def test_scenarios_without_kernel_do_not_depend_on_name_order(spec):
    drawn = shrink(spec).draw(PAST, np.random.default_rng(0))
    np.testing.assert_array_equal(shrink(spec).draw(PAST[:, ::-1], np.random.default_rng(0)), drawn[:, ::-1])
