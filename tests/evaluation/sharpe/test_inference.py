from functools import cache
from math import erfc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import (
    SharpeMoments,
    effective_number_of_trials,
    expected_maximum_sharpe,
    minimum_track_record_length,
    probabilistic_sharpe_ratio,
    sharpe_moments,
    sharpe_p_value,
    sharpe_ratio_error,
)
from tests.evaluation.golden import cases, golden

TOPIC = "sharpe_inference"
ANNUAL, FULL, PSR = (cases(TOPIC, prefix) for prefix in ("dsr_paper", "dsr_full_precision", "psr_sr"))
MAXIMUM, LENGTH = cases(TOPIC, "expected_max"), cases(TOPIC, "minTRL")
OTHERS = ("minBTL_N45_SR1", "effective_trials", "series_psr", "series_dsr", "series_skfolio_quantstats")

returns_of = st.lists(st.floats(-0.2, 0.2), min_size=8, max_size=60).map(np.array).filter(lambda x: x.std() > 1e-3)


def case(name):
    found = cases(TOPIC)[name]
    return found["inputs"], found["expected"], found["abs_tol"]


def moments_of(inputs, sharpe, n_observations):
    return SharpeMoments(sharpe, n_observations, inputs.get("skew", 0.0), inputs.get("kurtosis", 3.0))


@cache
def series():
    return np.array(golden(TOPIC)["series"]["data"])


def test_every_vector_is_tested():
    known = {*ANNUAL, *FULL, *PSR, *MAXIMUM, *LENGTH, *OTHERS}
    assert known == set(cases(TOPIC))
    assert len(known) == 32


@pytest.mark.parametrize("name", ANNUAL)
def test_the_worked_example_of_2014_is_reproduced_as_printed(name):
    inputs, expected, tolerance = case(name)
    per_year = inputs["periods_per_year"]
    moments = moments_of(inputs, inputs["sr_annual"] / per_year**0.5, inputs["T"])
    variance = inputs["var_sr_annual"] / per_year
    assert deflated_sharpe_ratio(moments, inputs["N"], variance) == pytest.approx(expected["dsr"], abs=tolerance)
    maximum = expected_maximum_sharpe(inputs["N"], variance)
    assert maximum == pytest.approx(expected.get("sr0_nonannual", maximum), abs=tolerance)


def test_the_papers_numbers_by_name():
    inputs, *_ = case("dsr_paper_N100")
    moments = moments_of(inputs, 2.5 / 250**0.5, 1250)
    assert expected_maximum_sharpe(100, 0.5 / 250) == pytest.approx(0.1132, abs=5e-5)
    assert deflated_sharpe_ratio(moments, 100, 0.5 / 250) == pytest.approx(0.9004, abs=5e-5)
    assert deflated_sharpe_ratio(moments, 46, 0.5 / 250) == pytest.approx(0.9505, abs=5e-5)
    normal = SharpeMoments(2.5 / 250**0.5, 1250)
    assert deflated_sharpe_ratio(normal, 88, 0.5 / 250) == pytest.approx(0.9505, abs=5e-5)


@pytest.mark.parametrize("name", FULL)
def test_deflated_sharpe_ratios_equal_public_programs(name):
    inputs, expected, tolerance = case(name)
    moments, trials = moments_of(inputs, inputs["sr"], inputs["T"]), (inputs["N"], inputs["var_sr"])
    close = {"abs": tolerance}
    maximum = expected_maximum_sharpe(*trials)
    assert maximum == pytest.approx(expected["sr0"], **close)
    found = deflated_sharpe_ratio(moments, *trials)
    assert found == pytest.approx(expected["dsr_2014_SRhat_in_denominator_Tminus1"], **close)


@pytest.mark.parametrize("name", PSR)
def test_probabilistic_sharpe_ratio_equals_public_programs(name):
    inputs, expected, tolerance = case(name)
    moments, benchmark = moments_of(inputs, inputs["sr"], inputs["T"]), inputs["sr_benchmark"]
    found = {
        "psr_2012": probabilistic_sharpe_ratio(moments, benchmark),
        "sr_std_2012": sharpe_ratio_error(moments),
    }
    assert found == pytest.approx(expected, abs=tolerance)
    assert sharpe_p_value(moments, benchmark) == pytest.approx(1.0 - expected["psr_2012"], abs=tolerance)


@pytest.mark.parametrize("name", MAXIMUM)
def test_the_expected_maximum_is_gumbels_and_a_little_above_the_exact_one(name):
    inputs, expected, tolerance = case(name)
    found = expected_maximum_sharpe(inputs["N"], 1.0)
    assert found == pytest.approx(expected["approx_gumbel"], abs=tolerance)
    assert 0.0 < found / expected.get("exact_quadrature", found / 1.001) - 1.0 < 0.03


@pytest.mark.parametrize("name", LENGTH)
def test_minimum_track_records_are_the_printed_ones(name):
    inputs, expected, tolerance = case(name)
    moments = moments_of(inputs, inputs["sr"], 100)
    found = minimum_track_record_length(moments, inputs["sr_benchmark"], inputs["prob"])
    assert found / inputs["periods_per_year"] == pytest.approx(expected["years"], abs=tolerance)
    assert found / inputs["periods_per_year"] == pytest.approx(
        expected.get("years_printed", expected["years"]), abs=0.005
    )
    assert found == pytest.approx(expected.get("obs_2012", found), abs=1e-9)


def test_minimum_track_records_by_name():
    per_month, per_day, per_week = 12**0.5, 250**0.5, 52**0.5
    assert minimum_track_record_length(SharpeMoments(2 / per_day, 9), 1 / per_day) / 250 == pytest.approx(
        2.73, abs=5e-3
    )
    assert minimum_track_record_length(SharpeMoments(2 / per_week, 9), 1 / per_week) / 52 == pytest.approx(
        2.83, abs=5e-3
    )
    monthly = SharpeMoments(2 / per_month, 9)
    assert minimum_track_record_length(monthly, 1 / per_month) / 12 == pytest.approx(3.24, abs=5e-3)
    skewed = SharpeMoments(2 / per_month, 9, -0.72, 5.78)
    assert minimum_track_record_length(skewed, 1 / per_month) / 12 == pytest.approx(4.99, abs=5e-3)


def test_minimum_backtest_length_of_45_trials_exceeds_five_years():
    inputs, expected, tolerance = case("minBTL_N45_SR1")
    found = (expected_maximum_sharpe(inputs["N"], 1.0) / inputs["sharpe_is_annual"]) ** 2
    assert found == pytest.approx(expected["years"], abs=tolerance)
    assert found < expected["upper_bound"] == pytest.approx(2.0 * np.log(inputs["N"]), abs=tolerance)


def test_a_hundred_trials_correlated_by_a_fifth_are_worth_eighty():
    inputs, expected, _ = case("effective_trials")
    assert effective_number_of_trials(inputs["M"], inputs["avg_corr"]) == expected["N_hat"]


def test_moments_of_a_series_are_the_biased_ones():
    inputs, expected, tolerance = case("series_psr")
    column = series()[:, inputs["column"]]
    biased = sharpe_moments(column)
    found = {
        "sr_ddof1": biased.sharpe,
        "skew_biased": biased.skewness,
        "kurt_biased": biased.kurtosis,
        "psr_biased_moments": probabilistic_sharpe_ratio(biased),
    }
    assert found == pytest.approx({name: expected[name] for name in found}, abs=tolerance)


def test_deflated_sharpe_ratio_among_eight_series():
    inputs, expected, tolerance = case("series_dsr")
    sharpe = np.array([sharpe_moments(column).sharpe for column in series().T])
    assert sharpe.std(ddof=1) == pytest.approx(expected["trials_sr_std_ddof1"], abs=tolerance)
    assert sharpe.std(ddof=0) == pytest.approx(expected["trials_sr_std_ddof0"], abs=tolerance)
    trials = (inputs["N"], float(sharpe.var(ddof=1)))
    assert expected_maximum_sharpe(*trials) == pytest.approx(expected["sr0_ddof1"], abs=tolerance)
    found = deflated_sharpe_ratio(sharpe_moments(series()[:, inputs["column"]]), *trials)
    assert found == pytest.approx(expected["dsr_biased_moments"], abs=tolerance)


def test_a_series_in_skfolio():
    inputs, expected, tolerance = case("series_skfolio_quantstats")
    column = series()[:, inputs["column_psr"]]
    sharpe = np.array([sharpe_moments(each).sharpe for each in series().T])
    trials = (len(sharpe), float(sharpe.var(ddof=1)))
    found = {
        "skfolio_psr": probabilistic_sharpe_ratio(sharpe_moments(column)),
        "skfolio_psr_bench0p05": probabilistic_sharpe_ratio(sharpe_moments(column), 0.05),
        "skfolio_dsr": deflated_sharpe_ratio(sharpe_moments(series()[:, inputs["column_dsr"]]), *trials),
        "skfolio_expected_max_N8": expected_maximum_sharpe(*trials),
        "skfolio_expected_max_N1": expected_maximum_sharpe(1, trials[1]),
    }
    assert found == pytest.approx({name: expected[name] for name in found}, abs=tolerance)


@pytest.mark.parametrize("name", ["AAPL", "EW20"])
def test_real_returns_in_skfolio(name):
    real = golden("performance_metrics")["series"][name]
    returns, skfolio = np.array(real["returns"]), real["libraries"]["skfolio"]
    biased = sharpe_moments(returns)
    assert (biased.skewness, biased.kurtosis) == pytest.approx((skfolio["skew"], skfolio["kurtosis_raw"]), rel=1e-11)
    assert probabilistic_sharpe_ratio(biased) == pytest.approx(skfolio["psr"], rel=1e-11)


def test_a_tiny_p_value_keeps_its_digits():
    moments = SharpeMoments(1.0, 200)
    ratio = 1.0 / sharpe_ratio_error(moments)
    assert sharpe_p_value(moments) == pytest.approx(erfc(ratio / 2**0.5) / 2.0, rel=1e-9)
    assert 0.0 < sharpe_p_value(moments) < 1e-20


def test_one_trial_or_trials_alike_deflate_nothing():
    moments = SharpeMoments(0.1, 500)
    assert expected_maximum_sharpe(1, 0.01) == expected_maximum_sharpe(50, 0.0) == 0.0
    assert deflated_sharpe_ratio(moments, 1, 0.01) == probabilistic_sharpe_ratio(moments)


@given(returns=returns_of, n_trials=st.integers(2, 1000), variance=st.floats(1e-6, 1.0))
def test_more_trials_and_more_varied_ones_deflate_more(returns, n_trials, variance):
    moments = sharpe_moments(returns)
    found = deflated_sharpe_ratio(moments, n_trials, variance)
    assert 0.0 <= found <= probabilistic_sharpe_ratio(moments) <= 1.0
    assert deflated_sharpe_ratio(moments, n_trials + 1, variance) <= found + 1e-15
    assert deflated_sharpe_ratio(moments, n_trials, 2.0 * variance) <= found + 1e-15


@given(returns=returns_of, scale=st.floats(0.01, 100.0))
def test_what_follows_from_returns_does_not_depend_on_their_unit(returns, scale):
    found, scaled = sharpe_moments(returns), sharpe_moments(scale * returns)
    assert probabilistic_sharpe_ratio(scaled) == pytest.approx(probabilistic_sharpe_ratio(found), abs=1e-9)


@given(sharpe=st.floats(0.01, 1.0), skewness=st.floats(-1.0, 1.0), benchmark=st.floats(-0.5, 0.005))
def test_after_the_minimum_track_record_the_probability_is_the_level(sharpe, skewness, benchmark):
    moments = SharpeMoments(sharpe, 100, skewness, 6.0)
    n = minimum_track_record_length(moments, benchmark, 0.9)
    error = sharpe_ratio_error(moments) * (99.0 / (n - 1.0)) ** 0.5
    assert norm.cdf((sharpe - benchmark) / error) == pytest.approx(0.9, abs=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sharpe_moments(np.full(9, 0.001)),
        lambda: sharpe_moments(np.array([0.1, 0.2, 0.3])),
        lambda: sharpe_moments(np.zeros((5, 2))),
        lambda: sharpe_moments(np.array([0.1, np.nan, 0.3, 0.4])),
        lambda: SharpeMoments(0.1, 100, 2.0, 4.0),
        lambda: SharpeMoments(np.nan, 100),
        lambda: SharpeMoments(0.1, 1),
        lambda: sharpe_ratio_error(SharpeMoments(1.0, 100, 2.0, 5.0)),
        lambda: expected_maximum_sharpe(0, 0.1),
        lambda: expected_maximum_sharpe(5, -0.1),
        lambda: expected_maximum_sharpe(5, np.nan),
        lambda: minimum_track_record_length(SharpeMoments(0.1, 9), 0.1),
        lambda: minimum_track_record_length(SharpeMoments(0.1, 9), 0.0, 1.0),
        lambda: effective_number_of_trials(0, 0.1),
        lambda: effective_number_of_trials(3, 1.1),
        lambda: probabilistic_sharpe_ratio(SharpeMoments(0.1, 9), np.nan),
        lambda: sharpe_p_value(SharpeMoments(0.1, 9), np.inf),
        lambda: minimum_track_record_length(SharpeMoments(0.1, 9), np.nan),
    ],
)
def test_what_cannot_be_computed_is_refused(call):
    with pytest.raises(ValueError):
        call()
