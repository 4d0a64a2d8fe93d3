"""Paired differences of two accounts against a resampling of the statistics themselves."""

from functools import partial

import numpy as np
import pytest
from arch.bootstrap import StationaryBootstrap

from nvtrader_pipelines.evaluation.account_statistics import exposure
from nvtrader_pipelines.evaluation.active import market_model
from nvtrader_pipelines.evaluation.intervals import BOOTSTRAP_SEED, SharpeIntervals
from nvtrader_pipelines.evaluation.statistics import annual_volatility, expected_shortfall, sharpe_ratio
from scripts.readme_results.differences import STATISTICS, paired_differences

ANNUAL = [partial(statistic, periods_per_year=252) for statistic in (sharpe_ratio, annual_volatility)]
MEASURES = dict(zip(STATISTICS, (*ANNUAL, expected_shortfall, exposure), strict=True))
N = 505  # whose worst 5 % are no whole number of sessions


@pytest.fixture(scope="module")
def accounts():
    generator = np.random.default_rng(4)
    market = generator.standard_t(4, N) * 0.008 + 0.0004
    other = 0.8 * market + generator.normal(0.0, 0.002, N)
    return np.column_stack([market, other]), generator.uniform(0.0, 0.2, (N, 2))


def test_intervals_equal_a_bootstrap_of_the_statistics_by_arch(accounts):
    found = paired_differences(*accounts, SharpeIntervals(n_draws=300))
    bootstrap = StationaryBootstrap(21, *accounts, seed=np.random.default_rng(BOOTSTRAP_SEED))

    def differences(net, cash):
        columns = {name: cash if name == "exposure" else net for name in STATISTICS}
        return np.array([MEASURES[name](each[:, 0]) - MEASURES[name](each[:, 1]) for name, each in columns.items()])

    draws = bootstrap.apply(differences, 300)
    for i, name in enumerate(STATISTICS):
        interval = getattr(found, name)
        assert (interval.low, interval.high) == pytest.approx(np.quantile(draws[:, i], (0.025, 0.975)), rel=1e-9)
        assert interval.point == pytest.approx(differences(*accounts)[i], rel=1e-12)


def test_sharpe_difference_is_that_of_the_verdict(accounts):
    found = paired_differences(*accounts).sharpe
    assert (found.low, found.high) == SharpeIntervals().draw(accounts[0], 252).difference(0, 1)


def test_information_ratio_and_alpha_are_those_of_the_active_return(accounts):
    own, other = accounts[0].T
    found = paired_differences(*accounts)
    assert found.information_ratio == sharpe_ratio(own - other, 252)
    assert found.model == market_model(own, other, 252)
