import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from nvtrader_pipelines.evaluation.sharpe.error import gmm_standard_error, iid_standard_error, newey_west_lags
from nvtrader_pipelines.evaluation.sharpe.inference import sharpe_moments, sharpe_ratio_error
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio
from tests.evaluation.golden import golden

GOLDEN = golden("performance_metrics")
SERIES = {name: (np.array(case["returns"]), case["lo_2002"]) for name, case in GOLDEN["series"].items()}
LO = GOLDEN["lo_2002"]
LAGS = (0, 3, 8, 20)


def mertens_standard_error(returns):
    """The error of `sharpe_ratio_error`, over T instead of T - 1."""
    return sharpe_ratio_error(sharpe_moments(returns)) * np.sqrt(1.0 - 1.0 / len(returns))


def test_lo_2002_table_1():
    table = LO["iid_se_table1"]
    found = [[iid_standard_error(sharpe, n_periods) for n_periods in table["T"]] for sharpe in table["SR"]]
    np.testing.assert_allclose(found, table["values"], rtol=1e-14)


@pytest.mark.parametrize("series", SERIES)
def test_standard_errors_of_real_returns(series):
    returns, expected = SERIES[series]
    sharpe = sharpe_ratio(returns, 1)
    assert sharpe == pytest.approx(expected["sr_daily"], rel=1e-12)
    assert iid_standard_error(sharpe, len(returns)) == pytest.approx(expected["se_iid_T"], rel=1e-12)
    assert mertens_standard_error(returns) == pytest.approx(expected["se_mertens_T"], rel=1e-12)
    for n_lags in LAGS:
        assert gmm_standard_error(returns, n_lags) == pytest.approx(expected[f"se_gmm_NW_lag{n_lags}"], rel=1e-12)


def test_the_error_with_lags_is_that_of_a_regression_on_a_constant():
    returns, _ = SERIES["AAPL"]
    standard = (returns - returns.mean()) / returns.std()
    influence = standard - returns.mean() / returns.std() / 2.0 * (standard**2 - 1.0)
    oracle = OLS(influence, np.ones(len(returns))).fit(cov_type="HAC", cov_kwds={"maxlags": 8}).bse[0]
    assert gmm_standard_error(returns, 8) == pytest.approx(oracle, rel=1e-10)


def test_with_no_lags_the_error_is_that_of_mertens_with_a_ratio_of_ddof_0():
    returns, _ = SERIES["AAPL"]
    own, others = gmm_standard_error(returns, 0), mertens_standard_error(returns)
    assert own == pytest.approx(others, rel=1e-5)
    assert own != others


def test_lags_default_to_the_rule_of_newey_and_west():
    returns, expected = SERIES["EW20"]
    assert newey_west_lags(100) == 4
    assert newey_west_lags(len(returns)) == 8
    assert gmm_standard_error(returns) == pytest.approx(expected["se_gmm_NW_lag8"], rel=1e-12)


def test_gmm_intervals_have_nominal_coverage_under_autocorrelation():
    generator = np.random.default_rng(0)
    shocks = generator.normal(0.0, 1.0, (400, 1050))
    returns = np.empty_like(shocks)
    returns[:, 0] = shocks[:, 0]
    for t in range(1, shocks.shape[1]):
        returns[:, t] = 0.4 * returns[:, t - 1] + shocks[:, t]
    drifting = 0.1 + returns[:, 50:]
    true = 0.1 * np.sqrt(1.0 - 0.4**2)
    off = np.array([abs(sharpe_ratio(row, 1) - true) for row in drifting])
    covered = np.mean(off < 1.96 * np.array([gmm_standard_error(row) for row in drifting]))
    naive = np.mean(off < 1.96 * iid_standard_error(true, drifting.shape[1]))
    assert 0.90 < covered < 0.97
    assert naive < 0.85


def test_gmm_standard_error_constant_returns_is_undefined():
    with pytest.raises(UndefinedStatisticError):
        gmm_standard_error(np.full(50, 0.01))


@pytest.mark.parametrize(
    ("returns", "n_lags"),
    [([0.01, np.nan, 0.02], None), ([0.01], None), ([0.01, -0.02, 0.03], 3), ([0.01, -0.02, 0.03], -1)],
)
def test_gmm_standard_error_of_bad_returns_or_lags_raises(returns, n_lags):
    with pytest.raises(ValueError):
        gmm_standard_error(np.array(returns), n_lags)


def test_two_returns_have_an_error_that_is_a_number():
    assert gmm_standard_error(np.array([0.01, -0.02])) > 0.0


def test_a_ratio_of_no_periods_has_no_error():
    with pytest.raises(ValueError):
        iid_standard_error(0.1, 0)
    with pytest.raises(ValueError):
        iid_standard_error(np.nan, 10)
