"""Paired differences of two accounts against a resampling of the statistics themselves."""

from functools import partial

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.account_statistics import exposure
from nvtrader_pipelines.evaluation.alpha import market_model, residual_returns
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import annual_volatility, expected_shortfall, sharpe_ratio
from scripts.readme_results.differences import STATISTICS, paired_differences

pytestmark = pytest.mark.slow

ANNUAL = [partial(statistic, periods_per_year=252) for statistic in (sharpe_ratio, annual_volatility)]
MEASURES = dict(zip(STATISTICS, (*ANNUAL, expected_shortfall, exposure), strict=True))
N = 505  # whose worst 5 % are no whole number of sessions


@pytest.fixture(scope="module")
def accounts():
    generator = np.random.default_rng(4)
    market = generator.standard_t(4, N) * 0.008 + 0.0004
    other = 0.8 * market + generator.normal(0.0, 0.002, N)
    return np.column_stack([market, other]), generator.uniform(0.0, 0.2, (N, 2))


def test_intervals_are_those_of_the_statistics_of_each_draw(accounts):
    found = paired_differences(*accounts, SharpeIntervals(n_draws=300))
    net, cash = accounts
    draws = []
    for counts in np.concatenate(list(SharpeIntervals(n_draws=300).counts(N))).astype(int):
        drawn = {name: np.repeat(cash if name == "exposure" else net, counts, axis=0) for name in STATISTICS}
        draws.append([MEASURES[name](each[:, 0]) - MEASURES[name](each[:, 1]) for name, each in drawn.items()])
    for i, name in enumerate(STATISTICS):
        interval = getattr(found, name)
        bounds = np.quantile([draw[i] for draw in draws], (0.025, 0.975))
        assert (interval.low, interval.high) == pytest.approx(bounds, rel=1e-9)


def test_sharpe_difference_is_that_of_the_verdict(accounts):
    found = paired_differences(*accounts).sharpe
    assert (found.low, found.high) == SharpeIntervals().draw(accounts[0], 252).difference(0, 1)


def test_information_ratio_and_alpha_are_those_of_the_residual_return(accounts):
    own, other = accounts[0].T
    found = paired_differences(*accounts)
    assert found.information_ratio == sharpe_ratio(residual_returns(own, other), 252)
    assert found.model == market_model(own, other, 252)
