import itertools
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from nvtrader_pipelines.portfolio.scenarios import (
    BlockBootstrap,
    CommonRandomNumbers,
    Historical,
    KernelDensity,
    PlainKernelDensity,
    RepeatedNumbers,
    Scenarios,
    StationaryBootstrap,
)

SESSION = st.floats(-0.2, 0.2)


def fat_tailed_returns(n_sessions=250, n_names=4, seed=0):
    generator = np.random.default_rng(seed)
    common = 0.008 * generator.standard_t(4, (n_sessions, 1))
    return np.expm1(common + 0.01 * generator.standard_t(4, (n_sessions, n_names)))


def covariance(values):
    return np.cov(values, rowvar=False, ddof=0)


class EveryCase:
    """Combine every past session with every row of a design with mean 0 and covariance 1."""

    design = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])

    def __init__(self, n_sessions, horizon, repeats=1):
        sessions = list(itertools.product(range(n_sessions), repeat=horizon))
        cases = list(itertools.product(sessions, self.design, range(repeats)))
        self.uniforms = (np.array([chosen for chosen, _, _ in cases]).T + 0.5) / n_sessions
        self.normals = np.array([normals for _, normals, _ in cases])

    def random(self, size):
        assert size == self.uniforms.shape
        return self.uniforms

    def standard_normal(self, size):
        return self.normals[: size[0], : size[1]]


@pytest.mark.slow
@given(
    past=arrays(float, (5, 3), elements=SESSION),
    bandwidth=st.floats(1e-3, 10.0) | st.just("scott"),
    horizon=st.sampled_from([1, 3]),
)
def test_kernel_density_preserves_mean_and_covariance(past, bandwidth, horizon):
    cases = EveryCase(5, horizon, repeats=25 if horizon == 1 else 1)
    spec = KernelDensity(n_scenarios=500, horizon=horizon, bandwidth=bandwidth)
    drawn = np.log1p(spec.draw(past, cases))
    logs = np.log1p(past)
    np.testing.assert_allclose(drawn.mean(axis=0), horizon * logs.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(covariance(drawn), horizon * covariance(logs), rtol=1e-9, atol=1e-14)


@pytest.mark.slow
@given(past=arrays(float, (5, 3), elements=SESSION), bandwidth=st.floats(1e-3, 10.0))
def test_plain_kernel_density_adds_the_kernels_variance(past, bandwidth):
    drawn = np.log1p(PlainKernelDensity(n_scenarios=500, bandwidth=bandwidth).draw(past, EveryCase(5, 1, 25)))
    logs = np.log1p(past)
    expected = covariance(logs) + bandwidth**2 * np.cov(logs, rowvar=False)
    np.testing.assert_allclose(drawn.mean(axis=0), logs.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(covariance(drawn), expected, rtol=1e-9, atol=1e-14)


def test_plain_kernel_density_equals_scipys():
    past = np.log1p(fat_tailed_returns(n_sessions=5, n_names=3))
    density = stats.gaussian_kde(past.T)
    assert density.factor == pytest.approx(5 ** (-1 / 7))
    drawn = np.log1p(PlainKernelDensity(n_scenarios=500).draw(np.expm1(past), EveryCase(5, 1, 25)))
    kernel = drawn[:100] - past[0]  # the cases of the first session
    np.testing.assert_allclose(covariance(kernel), density.covariance, rtol=1e-9)


def test_plain_kernel_density_draws_are_distributed_as_scipys():
    past = fat_tailed_returns()
    ours = np.log1p(PlainKernelDensity(n_scenarios=20_000).draw(past, np.random.default_rng(1)))
    theirs = stats.gaussian_kde(np.log1p(past).T).resample(20_000, seed=2).T
    for direction in (np.eye(4)[0], np.full(4, 0.25), np.array([1.0, -1.0, 0.0, 0.0])):
        assert stats.ks_2samp(ours @ direction, theirs @ direction).pvalue > 0.01


def test_random_draws_preserve_mean_and_covariance_within_error():
    past = np.log1p(fat_tailed_returns())
    drawn = np.log1p(KernelDensity(n_scenarios=50_000).draw(np.expm1(past), np.random.default_rng(3)))
    error = past.std(axis=0) / np.sqrt(50_000)
    assert (np.abs(drawn.mean(axis=0) - past.mean(axis=0)) < 4.0 * error).all()
    np.testing.assert_allclose(covariance(drawn), covariance(past), rtol=0.05)


@pytest.mark.parametrize("member", [KernelDensity, PlainKernelDensity])
def test_horizon_is_distributed_as_independent_sessions(member):
    past, generator = fat_tailed_returns(), np.random.default_rng(4)
    over_horizon = np.log1p(member(n_scenarios=20_000, horizon=5).draw(past, generator))
    session = member(n_scenarios=20_000)
    summed = sum(np.log1p(session.draw(past, generator)) for _ in range(5))
    np.testing.assert_allclose(over_horizon.mean(axis=0), summed.mean(axis=0), atol=5.0 * 0.04 / np.sqrt(20_000))
    np.testing.assert_allclose(covariance(over_horizon), covariance(summed), rtol=0.08)
    for direction in (np.eye(4)[0], np.full(4, 0.25)):
        assert stats.ks_2samp(over_horizon @ direction, summed @ direction).pvalue > 0.01


def test_narrow_kernel_draws_past_sessions():
    past = fat_tailed_returns(n_sessions=20)
    for member in (KernelDensity, PlainKernelDensity):
        drawn = member(n_scenarios=500, bandwidth=1e-9).draw(past, np.random.default_rng(0))
        nearest = np.abs(drawn[:, None, :] - past[None]).max(axis=2).min(axis=1)
        assert nearest.max() < 1e-8


@pytest.mark.parametrize("member", [KernelDensity, PlainKernelDensity])
def test_singular_covariance_is_accepted(member):
    past = fat_tailed_returns()
    past = np.column_stack([past, past[:, 0], np.zeros(250)])
    drawn = member(n_scenarios=1000, horizon=3).draw(past, np.random.default_rng(0))
    np.testing.assert_allclose(drawn[:, 4], drawn[:, 0], atol=1e-12)
    np.testing.assert_allclose(drawn[:, 5], 0.0, atol=1e-14)


@pytest.mark.parametrize("n_sessions", [2, 10, 30])
def test_more_names_than_sessions_are_accepted(n_sessions):
    past = fat_tailed_returns(n_sessions, n_names=30)
    drawn = np.log1p(KernelDensity(n_scenarios=2000).draw(past, np.random.default_rng(0)))
    logs = np.log1p(past)
    spanned = np.linalg.svd(logs - logs.mean(axis=0), full_matrices=False)[2][: n_sessions - 1]
    deviations = drawn - logs.mean(axis=0)
    np.testing.assert_allclose(deviations @ spanned.T @ spanned, deviations, atol=1e-10)
    assert np.linalg.matrix_rank(deviations) == n_sessions - 1


@given(
    past=arrays(float, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=SESSION), horizon=st.integers(1, 12)
)
def test_historical_gives_every_stretch_once_in_order(past, horizon):
    spec = Historical(horizon=horizon)
    if horizon > len(past):
        with pytest.raises(ValueError):
            spec.draw(past, np.random.default_rng(0))
        return
    expected = [(1.0 + past[start : start + horizon]).prod(axis=0) - 1.0 for start in range(len(past) - horizon + 1)]
    np.testing.assert_allclose(spec.draw(past, np.random.default_rng(0)), expected, atol=1e-12)


def test_blocks_are_equally_likely_stretches_of_the_past():
    past = fat_tailed_returns(n_sessions=24)
    stretches = Historical(horizon=5).draw(past, np.random.default_rng(0))
    drawn = BlockBootstrap(n_scenarios=20_000, horizon=5).draw(past, np.random.default_rng(0))
    counts = Counter(map(bytes, drawn))
    assert set(counts) == set(map(bytes, stretches))
    assert stats.chisquare(list(counts.values())).pvalue > 0.01


def test_horizon_longer_than_the_past_is_refused():
    with pytest.raises(ValueError):
        BlockBootstrap(horizon=21).draw(fat_tailed_returns(n_sessions=20), np.random.default_rng(0))


@pytest.mark.slow
def test_stationary_bootstrap_compounds_its_sessions():
    past, spec = fat_tailed_returns(n_sessions=30), StationaryBootstrap(n_scenarios=9000, horizon=7, mean_block=3.0)
    sessions = spec.sessions(30, np.random.default_rng(5))
    assert sessions.shape == (7, 9000)
    np.testing.assert_allclose(
        spec.draw(past, np.random.default_rng(5)), (1.0 + past[sessions]).prod(axis=0) - 1.0, atol=1e-12
    )


def test_stationary_blocks_are_circular_and_geometric():
    sessions = StationaryBootstrap(n_scenarios=5000, horizon=60, mean_block=4.0).sessions(
        1000, np.random.default_rng(6)
    )
    continues = sessions[1:] == (sessions[:-1] + 1) % 1000  # a jump lands there one time in a thousand
    assert (continues & (sessions[1:] == 0)).any()
    first_jump = np.where(continues.all(axis=0), 60, continues.argmin(axis=0) + 1)
    expected = [0.25 * 0.75 ** (length - 1) for length in range(1, 12)]
    found = [(first_jump == length).mean() for length in range(1, 12)]
    np.testing.assert_allclose(found, expected, atol=4.0 * np.sqrt(0.25 * 0.75 / 5000))
    assert 1.0 / (1.0 - continues.mean()) == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("mean_block", [1.0, 5.0])
def test_stationary_bootstrap_draws_sessions_uniformly(mean_block):
    spec = StationaryBootstrap(n_scenarios=20_000, horizon=8, mean_block=mean_block)
    for sessions in spec.sessions(25, np.random.default_rng(7)):
        assert stats.chisquare(np.bincount(sessions, minlength=25)).pvalue > 1e-3


def test_blocks_of_one_session_are_independent():
    sessions = StationaryBootstrap(n_scenarios=50_000, horizon=2, mean_block=1.0).sessions(6, np.random.default_rng(8))
    assert stats.chi2_contingency(np.histogram2d(*sessions, bins=6)[0]).pvalue > 0.01


def test_common_random_numbers_depend_on_seed_and_size_alone():
    used, fresh = CommonRandomNumbers(1), CommonRandomNumbers(1)
    for size in ((3, 2), (4, 2)):
        used.random(size), used.standard_normal(size)
    for name in ("random", "standard_normal"):
        np.testing.assert_array_equal(getattr(used, name)((3, 2)), getattr(fresh, name)((3, 2)))
        assert (getattr(CommonRandomNumbers(2), name)((3, 2)) != getattr(fresh, name)((3, 2))).all()


def test_common_uniforms_and_normals_are_independent():
    numbers, size = CommonRandomNumbers(1), (100, 50)
    own = np.random.default_rng((1, 0, *size)).standard_normal(size)
    assert (numbers.standard_normal(size) != own).all()
    assert abs(np.corrcoef(numbers.random(size).ravel(), np.abs(numbers.standard_normal(size)).ravel())[0, 1]) < 0.05


def test_common_random_numbers_are_drawn_once_and_read_only():
    numbers = CommonRandomNumbers(1)
    assert numbers.standard_normal((3, 2)) is numbers.standard_normal((3, 2))
    assert numbers.random((3, 2)) is numbers.random((3, 2))
    with pytest.raises(ValueError):
        numbers.random((3, 2))[0] = 0.0


def test_common_random_numbers_are_equal_in_another_process():
    numbers = CommonRandomNumbers(1)
    there = pickle.loads(pickle.dumps(numbers))
    np.testing.assert_array_equal(there.standard_normal((3, 2)), numbers.standard_normal((3, 2)))


def test_windows_of_other_lengths_have_the_same_common_noise():
    numbers, past = CommonRandomNumbers(3), np.repeat(np.arange(100)[:, None] / 1000.0, 2, axis=1)
    spec = PlainKernelDensity(n_scenarios=1000, bandwidth=1e-9)
    longer, shorter = spec.draw(past, numbers), spec.draw(past[::2], numbers)
    np.testing.assert_allclose(longer, shorter, atol=0.0011)


def test_sliding_windows_have_nearly_the_same_common_noise():
    numbers, past = CommonRandomNumbers(5), fat_tailed_returns(n_sessions=200)
    noise = []
    for start in range(10):
        window = past[start : start + 190]
        spec = PlainKernelDensity(n_scenarios=1000)
        smoothed = np.log1p(spec.draw(window, numbers))
        noise.append(smoothed - np.log1p(spec.model_copy(update={"bandwidth": 1e-9}).draw(window, numbers)))
    for before, after in itertools.pairwise(noise):
        for name in range(past.shape[1]):
            assert np.corrcoef(before[:, name], after[:, name])[0, 1] > 0.99


def test_scenarios_do_not_depend_on_memory_layout():
    past, spec = fat_tailed_returns(), KernelDensity(horizon=5)
    drawn = [spec.draw(order(past), np.random.default_rng(0)) for order in (np.ascontiguousarray, np.asfortranarray)]
    assert drawn[0].tobytes() == drawn[1].tobytes()


def test_trials_share_scenarios_by_common_random_numbers():
    numbers, windows = CommonRandomNumbers(4), [fat_tailed_returns(seed=seed) for seed in range(3)]
    first_trial = [KernelDensity(horizon=20).draw(past, numbers) for past in windows]
    second_trial = [KernelDensity(horizon=20).draw(past, numbers) for past in windows]
    for first, second in zip(first_trial, second_trial, strict=True):
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, 11.0, float("nan"), "silverman", True])
def test_bandwidth_must_be_scott_or_positive(bandwidth):
    with pytest.raises(ValidationError):
        KernelDensity(bandwidth=bandwidth)


def test_default_scenarios_are_a_kernel_density():
    found = TypeAdapter(Scenarios).validate_python({"kind": "kde", "bandwidth": "1e-2", "n_scenarios": 10_000.0})
    assert found == KernelDensity(bandwidth=0.01, n_scenarios=10_000)


@pytest.mark.parametrize("seed", [0, 3])
def test_repeated_numbers_draw_as_a_new_generator_each_time(seed):
    past = fat_tailed_returns()
    for spec in (KernelDensity(n_scenarios=500, horizon=5), KernelDensity(n_scenarios=600, horizon=2)):
        expected = spec.draw(past, np.random.default_rng(seed))
        for _ in range(2):
            np.testing.assert_array_equal(spec.draw(past, RepeatedNumbers(seed)), expected)
