import numpy as np
import pytest

from nvtrader_pipelines.evaluation.alpha import market_model, residual_returns
from nvtrader_pipelines.evaluation.statistics import varies


def pair(n=600, seed=0):
    generator = np.random.default_rng(seed)
    reference = generator.normal(0.0004, 0.01, n)
    return 0.0002 + 1.1 * reference + generator.normal(0.0, 0.002, n), reference


def test_alpha_and_beta_are_those_of_least_squares():
    returns, reference = pair()
    beta, alpha = np.polyfit(reference, returns, 1)
    found = market_model(returns, reference, 252)
    assert (found.alpha_per_year, found.beta) == pytest.approx((252 * alpha, beta), abs=1e-9)


def test_the_t_statistic_is_newey_and_wests():
    """By hand: Bartlett weights over floor(4 (n/100)^(2/9)) lags, no small-sample correction."""
    returns, reference = pair()
    found = market_model(returns, reference, 252)
    assert found.n_lags == int(4 * 6 ** (2 / 9)) == 5
    regressors = np.column_stack([np.ones(600), reference])
    bread = np.linalg.inv(regressors.T @ regressors)
    coefficients = bread @ regressors.T @ returns
    scores = regressors * (returns - regressors @ coefficients)[:, None]
    meat = scores.T @ scores
    for lag in range(1, 6):
        shared = scores[lag:].T @ scores[:-lag]
        meat += (1.0 - lag / 6.0) * (shared + shared.T)
    error = np.sqrt((bread @ meat @ bread)[0, 0])
    assert found.alpha_t == pytest.approx(coefficients[0] / error, rel=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0, 1.3])
@pytest.mark.parametrize("fee", [0.0, 1e-4])
def test_without_a_residual_alpha_has_no_t_statistic(beta, fee):
    _, reference = pair(250)
    found = market_model(beta * reference - fee, reference, 252)
    assert found.alpha_t is None
    assert (found.alpha_per_year, found.beta) == pytest.approx((-252 * fee, beta), abs=1e-9)


@pytest.mark.parametrize(
    "twin",
    [
        lambda reference: (1.0 + reference) * 1.0 - 1.0,
        lambda reference: reference * (1.0 + 1.5e-8),  # weights kept as float32
        lambda reference: reference - 1e-5,
        lambda reference: 0.9 * reference,
        lambda reference: 1.5 * reference,
    ],
    ids=["rounding", "float32", "a fee", "cash", "leverage"],
)
def test_residual_returns_of_multiples_or_fees_are_constant(twin):
    returns, reference = pair(250)
    residual = residual_returns(twin(reference), reference)
    assert not varies(residual)
    alpha = market_model(twin(reference), reference, 252).alpha_per_year / 252
    assert residual.mean() == pytest.approx(alpha, abs=1e-12)
    both = np.column_stack([twin(reference), returns])
    columns = residual_returns(both, np.column_stack([reference, reference]))
    assert varies(columns).tolist() == [False, True]
    np.testing.assert_allclose(columns[:, 1], residual_returns(returns, reference), rtol=0.0, atol=1e-17)


def test_residual_returns_are_those_of_least_squares_with_alpha():
    returns, reference = pair(250)
    nearly = reference + 1e-4 * (returns - reference)  # small, but more than rounding
    for series in (returns, nearly):
        beta, _ = np.polyfit(reference, series, 1)
        np.testing.assert_allclose(residual_returns(series, reference), series - beta * reference, atol=1e-15)


def test_residual_returns_of_single_precision_exposure_are_constant():
    _, reference = pair(250)
    single = reference.astype(np.float32)
    assert not varies(residual_returns(1.5 * single, single))


def test_residual_returns_over_a_constant_reference_are_active():
    returns, _ = pair(250)
    np.testing.assert_array_equal(residual_returns(returns, np.full(250, 1e-4)), returns - 1e-4)


@pytest.mark.parametrize(
    ("returns", "reference"),
    [
        (np.zeros(5), np.zeros(6)),
        (np.array([0.1, np.nan, 0.1, 0.2]), np.zeros(4)),
        (np.zeros(3), np.zeros(3)),
        (np.zeros((5, 2)), np.zeros((5, 2))),
        (np.arange(5.0), np.full(5, 0.01)),
    ],
)
def test_what_has_no_alpha_is_refused(returns, reference):
    with pytest.raises(ValueError):
        market_model(returns, reference, 252)
