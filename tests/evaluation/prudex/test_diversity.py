import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from nvtrader_pipelines.evaluation.prudex.diversity import average_correlation, effective_bets, embed, weight_entropy
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

N = 5
UNIFORM = np.full((1, N), 1.0 / N)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)
weights = generators.map(lambda generator: generator.dirichlet(np.ones(N), 4))
draws = generators.map(lambda generator: generator.normal(size=(30, N)) @ generator.normal(size=(N, N)))


@given(weights=weights)
def test_entropy_is_scale_free_and_at_most_log_n(weights):
    found = weight_entropy(weights)
    assert found == pytest.approx([entropy(row) for row in weights])  # scipy scales to sum 1
    assert ((found >= 0.0) & (found <= np.log(N) + 1e-12)).all()


def test_entropy_is_maximal_for_equal_weight_and_zero_for_one_name():
    assert weight_entropy(np.vstack([UNIFORM, np.eye(N)[:1], np.zeros((1, N))])) == pytest.approx([np.log(N), 0.0, 0.0])


def test_short_positions_count_by_their_size():
    assert weight_entropy(np.array([[0.5, -0.5]])) == pytest.approx(np.log(2.0))


@given(weights=weights, returns=draws)
def test_average_correlation_is_weighted_by_products_of_weights(weights, returns):
    correlation = np.corrcoef(returns, rowvar=False)
    expected = []
    for row in weights:
        pairs = [(row[i] * row[j], correlation[i, j]) for i in range(N) for j in range(N) if i != j]
        expected.append(np.average([rho for _, rho in pairs], weights=[size for size, _ in pairs]))
    assert average_correlation(weights, correlation) == pytest.approx(np.mean(expected), abs=1e-9)


def test_long_and_short_of_one_asset_have_correlation_minus_one():
    assert average_correlation(np.array([[0.5, -0.5]]), np.ones((2, 2))) == pytest.approx(-1.0)


def test_average_correlation_skips_decisions_with_fewer_than_two_names():
    correlation = np.array([[1.0, 0.4], [0.4, 1.0]])
    assert average_correlation(np.array([[1.0, 0.0], [0.5, 0.5]]), correlation) == pytest.approx(0.4)
    with pytest.raises(UndefinedStatisticError):
        average_correlation(np.array([[1.0, 0.0], [0.0, 0.0]]), correlation)


@given(returns=draws, weights=weights)
def test_the_variances_that_bets_share_sum_to_that_of_the_portfolio(returns, weights):
    covariance = np.cov(returns, rowvar=False)
    variances, portfolios = np.linalg.eigh(covariance)
    bets = variances * (weights @ portfolios) ** 2
    total = np.einsum("ti,ij,tj->t", weights, covariance, weights)
    assert bets.sum(axis=1) == pytest.approx(total)
    assert effective_bets(weights, covariance) == pytest.approx(np.exp(entropy(np.maximum(bets, 0.0), axis=1)).mean())


def test_effective_bets_of_independent_and_identical_names():
    assert effective_bets(UNIFORM, np.eye(N)) == pytest.approx(N)
    assert effective_bets(UNIFORM, np.ones((N, N))) == pytest.approx(1.0)


def test_cash_alone_is_no_bet():
    assert effective_bets(np.vstack([UNIFORM, np.zeros((1, N))]), np.eye(N)) == pytest.approx(N)
    with pytest.raises(UndefinedStatisticError):
        effective_bets(np.zeros((3, N)), np.eye(N))


@pytest.mark.parametrize("statistic", [average_correlation, effective_bets])
@pytest.mark.parametrize(
    ("held", "matrix"),
    [
        (np.full((2, N), np.nan), np.eye(N)),
        (np.ones((2, N)), np.eye(N + 1)),
        (np.ones((2, N)), np.full((N, N), np.nan)),
        (np.ones(N), np.eye(N)),
        (np.ones((0, N)), np.eye(N)),
    ],
)
def test_what_does_not_fit_is_refused(statistic, held, matrix):
    with pytest.raises(ValueError):
        statistic(held, matrix)


@pytest.fixture(scope="module")
def two_ways():
    """Actions of two kinds, far apart."""
    generator = np.random.default_rng(0)
    kinds = np.repeat([0, 1], 40)
    centers = np.array([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9]])
    return kinds, centers[kinds] + generator.normal(0.0, 0.01, (80, 3))


def test_actions_alike_are_neighbours_in_the_plane(two_ways):
    kinds, actions = two_ways
    found = embed(actions)
    distances = np.linalg.norm(found.points[:, None] - found.points[None, :], axis=2) + 1e9 * np.eye(len(actions))
    assert (kinds[distances.argmin(axis=1)] == kinds).all()
    assert 0.8 < found.trustworthiness <= 1.0


@pytest.mark.slow
def test_a_sample_is_seeded_and_the_same_seed_gives_the_same_bytes(two_ways):
    first, again, other = (embed(two_ways[1], seed, n_embedded=20) for seed in (3, 3, 4))
    assert first.points.tobytes() == again.points.tobytes()
    assert len(np.unique(first.rows)) == 20
    assert not np.array_equal(first.rows, other.rows)


@pytest.mark.parametrize("actions", [np.zeros((0, 1)), np.random.default_rng(0).random((7, 3)), np.ones((50, 3))])
def test_too_few_actions_or_all_the_same_have_no_picture(actions):
    with pytest.raises(UndefinedStatisticError):
        embed(actions)
