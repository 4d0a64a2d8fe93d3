import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.evaluation.statistics import STATISTICS, annual_volatility, cagr, max_drawdown, sharpe_ratio

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "performance_metrics" / "performance_metrics.json").read_text()
)
some_returns = arrays(
    np.float64, st.integers(2, 60), elements=st.integers(-500, 500).map(lambda basis_points: basis_points * 1e-4)
)


@pytest.mark.parametrize("name", ["AAPL", "EW20"])
@pytest.mark.parametrize("statistic", list(STATISTICS))
def test_statistics_equal_four_libraries_on_real_returns(name, statistic):
    case = GOLDEN["series"][name]
    found = STATISTICS[statistic](np.array(case["returns"]))
    assert found == pytest.approx(case["expected"][statistic], rel=1e-12)


@pytest.mark.parametrize("case", GOLDEN["small"], ids=lambda case: case["id"])
def test_statistics_equal_the_libraries_on_short_series(case):
    returns = np.array(case["returns"])
    for statistic, expected in case["expected"].items():
        assert STATISTICS[statistic](returns) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@given(returns=some_returns)
def test_max_drawdown_is_the_worst_loss_between_any_two_moments(returns):
    wealth = np.concatenate([[1.0], np.cumprod(1.0 + returns)])
    worst = max(1.0 - wealth[j] / wealth[i] for i in range(len(wealth)) for j in range(i, len(wealth)))
    assert max_drawdown(returns) == pytest.approx(worst, abs=1e-12)


@given(returns=some_returns)
def test_constant_growth_at_the_cagr_ends_at_the_same_wealth(returns):
    years = len(returns) / 252
    assert years * np.log1p(cagr(returns)) == pytest.approx(np.log1p(returns).sum(), abs=1e-6)


@given(returns=some_returns, scale=st.floats(0.01, 100.0))
def test_sharpe_ratio_does_not_depend_on_scale(returns, scale):
    assert sharpe_ratio(returns * scale) == pytest.approx(sharpe_ratio(returns), rel=1e-6)


@pytest.mark.parametrize("constant", [0.0, 0.001, -0.3])
def test_sharpe_ratio_of_returns_that_never_vary_is_zero(constant):
    assert sharpe_ratio(np.full(50, constant)) == 0.0


def test_a_year_of_other_periods_scales_sharpe_and_volatility_by_its_root():
    returns = np.array([0.01, -0.02, 0.03, 0.005])
    assert sharpe_ratio(returns, 12) == pytest.approx(sharpe_ratio(returns) * np.sqrt(12 / 252))
    assert annual_volatility(returns, 12) == pytest.approx(annual_volatility(returns) * np.sqrt(12 / 252))


@pytest.mark.parametrize("statistic", list(STATISTICS))
def test_missing_returns_are_refused(statistic):
    with pytest.raises(ValueError, match="finite"):
        STATISTICS[statistic](np.array([0.01, np.nan, 0.02]))
    with pytest.raises(ValueError, match="at least"):
        STATISTICS[statistic](np.array([]))
