import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.portfolio.mean_cvar.tail import cvar_gradient, tail_of
from tests.portfolio.mean_cvar.cases import cvar, drawn

LOSSES = arrays(float, st.integers(1, 60), elements=st.integers(-5, 5).map(lambda loss: loss / 100))  # many ties


@given(losses=LOSSES, share=st.floats(0.001, 0.999))
def test_tail_mean_equals_the_mean_of_sorted_losses(losses, share):
    size = max(1.0, share * len(losses))
    assert tail_of(losses, size).cvar == pytest.approx(cvar(losses, 1.0 - size / len(losses)), abs=1e-12)


@given(losses=LOSSES, share=st.floats(0.001, 0.999))
def test_tail_shares_sum_to_the_tail_size(losses, share):
    size = max(1.0, share * len(losses))
    tail = tail_of(losses, size)
    assert len(tail.beyond) + tail.boundary_share * len(tail.at_boundary) == pytest.approx(size, rel=1e-8)
    assert 0.0 <= tail.boundary_share <= 1.0 + 1e-9
    assert (losses[tail.beyond] > tail.value_at_risk).all()
    assert (losses <= tail.value_at_risk).mean() >= 1.0 - size / len(losses) - 1e-9  # its lower quantile


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), level=st.floats(0.01, 0.98), digits=st.sampled_from([2, 9]))
def test_gradient_is_a_supporting_plane_of_the_cvar(seed, level, digits):
    returns = drawn(60, 4, seed).round(digits)
    here, there = np.random.default_rng(seed).normal(size=(2, 4))
    size = (1.0 - level) * 60
    gradient = cvar_gradient(returns, tail_of(-returns @ here, size), size)
    assert gradient @ here == pytest.approx(cvar(-returns @ here, level), abs=1e-12)
    assert gradient @ there <= cvar(-returns @ there, level) + 1e-12


def test_order_of_tied_scenarios_does_not_matter():
    returns = drawn(40, 3).round(2)
    size, weights = 3.3, np.full(3, 1 / 3)
    first = cvar_gradient(returns, tail_of(-returns @ weights, size), size)
    backwards = returns[::-1]
    np.testing.assert_allclose(cvar_gradient(backwards, tail_of(-backwards @ weights, size), size), first, atol=1e-15)


def test_tail_size_above_an_integer_by_rounding_counts_as_integer():
    assert (1.0 - 0.95) * 2000 > 100.0
    tail = tail_of(np.arange(2000.0), (1.0 - 0.95) * 2000)
    assert len(tail.beyond) == 100
    assert len(tail.at_boundary) == 0
