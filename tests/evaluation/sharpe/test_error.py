import json
from pathlib import Path

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from nvtrader_pipelines.evaluation.sharpe.error import (
    aggregated_sharpe_ratio,
    aggregation_factor,
    autocorrelations,
    gmm_standard_error,
    iid_standard_error,
    mertens_standard_error,
    newey_west_lags,
)
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError, sharpe_ratio

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "performance_metrics" / "performance_metrics.json").read_text()
)
SERIES = {name: (np.array(case["returns"]), case["lo_2002"]) for name, case in GOLDEN["series"].items()}
LO = GOLDEN["lo_2002"]
CELLS = [
    (int(percent), LO["q"][i], printed, LO["full_precision"][percent][i])
    for percent, row in LO["table"].items()
    for i, printed in enumerate(row)
]
LAGS = (0, 3, 8, 20)


@pytest.mark.parametrize(("percent", "n_periods", "printed", "computed"), CELLS)
def test_lo_2002_table_2(percent, n_periods, printed, computed):
    found = aggregation_factor((percent / 100.0) ** np.arange(1.0, n_periods), n_periods)
    assert found == pytest.approx(computed, rel=1e-12)
    assert round(found, 2) == printed


def test_lo_2002_table_2_has_60_cells():
    assert len(CELLS) == 60


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


@pytest.mark.parametrize("series", SERIES)
def test_aggregation_of_real_returns(series):
    returns, expected = SERIES[series]
    np.testing.assert_allclose(autocorrelations(returns, 5), expected["acf_1_to_5"], rtol=1e-10)
    for q in (5, 21, 63, 252):
        factor = aggregation_factor(autocorrelations(returns, q - 1), q)
        assert factor == pytest.approx(expected["eta"][str(q)], rel=1e-11)
        assert aggregated_sharpe_ratio(returns, q, q - 1) == pytest.approx(expected["sr_q"][str(q)], rel=1e-11)
        assert aggregation_factor(np.zeros(0), q) == pytest.approx(expected["sqrt_q"][str(q)], rel=1e-14)


@pytest.mark.parametrize("series", SERIES)
def test_a_library_that_leaves_out_the_last_lag_is_a_truncation_at_it(series):
    returns, expected = SERIES[series]
    for q, factor in expected["pypbo_factor_with_off_by_one"].items():
        assert aggregation_factor(autocorrelations(returns, int(q) - 2), int(q)) == pytest.approx(factor, rel=1e-11)


def test_truncation_keeps_noise_out_of_an_annual_ratio():
    returns, _ = SERIES["EW20"]
    independent, whole = sharpe_ratio(returns), aggregated_sharpe_ratio(returns, 252, 251)
    assert abs(aggregated_sharpe_ratio(returns) / independent - 1.0) < 0.5 * abs(whole / independent - 1.0)


def test_lags_that_are_not_given_count_as_zero_and_those_from_q_on_have_no_part():
    few = np.array([0.3, 0.1])
    assert aggregation_factor(np.append(few, np.zeros(9)), 12) == aggregation_factor(few, 12)
    assert aggregation_factor(np.array([0.3, 0.9, -0.9]), 2) == aggregation_factor(np.array([0.3]), 2)


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


def test_errors_cover_the_true_ratio_of_autocorrelated_returns_as_often_as_they_say():
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


@pytest.mark.parametrize(
    "statistic", [mertens_standard_error, gmm_standard_error, lambda returns: autocorrelations(returns, 1)]
)
class TestBadReturns:
    def test_that_never_vary(self, statistic):
        with pytest.raises(UndefinedStatisticError, match=r"returns that vary, but all 50 are 0\.01"):
            statistic(np.full(50, 0.01))

    def test_that_are_missing(self, statistic):
        with pytest.raises(ValueError, match="finite"):
            statistic(np.array([0.01, np.nan, 0.02]))

    def test_that_are_too_few(self, statistic):
        with pytest.raises(ValueError, match="at least 2"):
            statistic(np.array([0.01]))


def test_more_lags_than_returns_are_refused():
    returns = np.array([0.01, -0.02, 0.03])
    for statistic in (gmm_standard_error, autocorrelations):
        with pytest.raises(ValueError, match="3 lags need at least 4 returns"):
            statistic(returns, 3)


def test_lags_are_not_negative():
    for statistic in (gmm_standard_error, autocorrelations):
        with pytest.raises(ValueError, match="a number of lags is 0 or more, but is -1"):
            statistic(np.array([0.01, -0.02, 0.03]), -1)


def test_two_returns_have_an_error_that_is_a_number():
    assert gmm_standard_error(np.array([0.01, -0.02])) > 0.0


def test_autocorrelations_that_leave_no_variance_are_refused():
    with pytest.raises(UndefinedStatisticError, match="give fewer lags"):
        aggregation_factor(np.array([-0.9]), 12)


def test_what_is_no_autocorrelation_is_refused():
    for wrong in (np.array([1.5]), np.array([np.nan])):
        with pytest.raises(ValueError, match="within"):
            aggregation_factor(wrong, 12)
    with pytest.raises(ValueError, match="one period or more"):
        aggregation_factor(np.array([0.1]), 0)


def test_a_ratio_of_no_periods_has_no_error():
    with pytest.raises(ValueError, match="some periods"):
        iid_standard_error(0.1, 0)
    with pytest.raises(ValueError, match="finite ratio"):
        iid_standard_error(np.nan, 10)
