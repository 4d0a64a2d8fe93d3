import math
from fractions import Fraction
from functools import partial
from itertools import accumulate
from operator import mul

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nvtrader_pipelines.evaluation.statistics import (
    ANNUALIZED,
    STATISTICS,
    UndefinedStatisticError,
    annual_volatility,
    cagr,
    calmar_ratio,
    drawdown_duration,
    expected_shortfall,
    hit_rate,
    max_drawdown,
    omega_ratio,
    sharpe_ratio,
    sortino_ratio,
    statistics_of,
    tail_ratio,
    total_return,
    value_at_risk,
)
from tests.evaluation.golden import golden

GOLDEN = golden("performance_metrics")
SERIES = {name: np.array(case["returns"]) for name, case in GOLDEN["series"].items()}
SMALL = {case["id"]: (np.array(case["returns"]), case["expected"]) for case in GOLDEN["small"]}
EVERY = STATISTICS | {name: partial(STATISTICS[name], periods_per_year=252) for name in ANNUALIZED}
TAKEN = {  # name in the table of values taken: the same from our statistics
    "sharpe_ann": EVERY["sharpe"],
    "sortino_ann": EVERY["sortino"],
    "annual_return_geometric": EVERY["cagr"],
    "annual_return_arithmetic": lambda returns: sharpe_ratio(returns, 252) * annual_volatility(returns, 252),
    "annual_vol": EVERY["volatility"],
    "max_drawdown": lambda returns: -max_drawdown(returns),
    "calmar": EVERY["calmar"],
    "var95_loss": value_at_risk,
    "cvar95_loss_RU": expected_shortfall,
    "omega0": omega_ratio,
    "tail_ratio": tail_ratio,
}
COMMON = {
    "sharpe": EVERY["sharpe"],
    "sortino": EVERY["sortino"],
    "calmar": EVERY["calmar"],
    "max_drawdown": TAKEN["max_drawdown"],
    "omega0": omega_ratio,
    "omega_annual5pct": lambda returns: omega_ratio(returns - (1.05 ** (1 / 252) - 1.0)),
    "tail_ratio": tail_ratio,
    "annual_vol": EVERY["volatility"],
}
AGREEING = {  # what each library computes by the convention taken, and by which of our statistics
    "empyrical": {
        **COMMON,
        "annual_return": EVERY["cagr"],
        "downside_risk": lambda returns: TAKEN["annual_return_arithmetic"](returns) / sortino_ratio(returns, 252),
        "sharpe_rf_daily_1bp": lambda returns: sharpe_ratio(returns - 1e-4, 252),
    },
    "quantstats": {**COMMON, "cagr": EVERY["cagr"]},
    "ffn": {"sharpe_252": EVERY["sharpe"], "sortino_252": EVERY["sortino"], "max_drawdown": TAKEN["max_drawdown"]},
    "skfolio": {
        "sharpe_per_period": lambda returns: sharpe_ratio(returns, 1),
        "annualized_sharpe_default": EVERY["sharpe"],
        "std": lambda returns: annual_volatility(returns, 1),
        "annualized_std": EVERY["volatility"],
        "annualized_mean": TAKEN["annual_return_arithmetic"],
        "cvar95": expected_shortfall,
        "var95": value_at_risk,
        "max_drawdown_compounded": max_drawdown,
        "semi_deviation_mar0_biased": lambda returns: returns.mean() / sortino_ratio(returns, 1),
    },
    "recommended": TAKEN,
}
OF_A_SHORT_SERIES = {
    "max_drawdown_from_start": TAKEN["max_drawdown"],
    "sharpe252": EVERY["sharpe"],
    "sortino252": EVERY["sortino"],
    "calmar": EVERY["calmar"],
    "cvar_skfolio": expected_shortfall,
    "var_skfolio": value_at_risk,
    "omega": omega_ratio,
}
CONVENTIONS = [(library, name) for library, own in AGREEING.items() for name in own]
some_returns = arrays(
    np.float64, st.integers(2, 60), elements=st.integers(-500, 500).map(lambda basis_points: basis_points * 1e-4)
)


@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize(("library", "name"), CONVENTIONS, ids=lambda part: part)
def test_statistics_equal_four_libraries_on_real_returns(series, library, name):
    expected = GOLDEN["series"][series]["libraries"][library][name]
    assert AGREEING[library][name](SERIES[series]) == pytest.approx(expected, rel=1e-11)


def test_every_value_taken_has_a_statistic():
    assert all(case["libraries"]["recommended"].keys() == TAKEN.keys() for case in GOLDEN["series"].values())


@pytest.mark.parametrize("case", SMALL)
@pytest.mark.parametrize("name", OF_A_SHORT_SERIES)
def test_statistics_equal_the_libraries_on_short_series(case, name):
    returns, expected = SMALL[case]
    if isinstance(expected[name], str):  # a ratio to a loss where nothing was lost: inf or nan
        with pytest.raises(UndefinedStatisticError):
            OF_A_SHORT_SERIES[name](returns)
    else:
        assert OF_A_SHORT_SERIES[name](returns) == pytest.approx(expected[name], rel=1e-11, abs=1e-15)


@given(returns=some_returns, level=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_expected_shortfall_minimizes_rockafellar_uryasev(returns, level):
    losses = -returns
    objective = [loss + np.maximum(losses - loss, 0.0).mean() / (1.0 - level) for loss in losses]
    assert expected_shortfall(returns, level) == pytest.approx(min(objective), abs=1e-12)


@given(returns=some_returns, level=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_value_at_risk_is_the_order_statistic_at_the_level(returns, level):
    reached = [loss for loss in -returns if np.mean(-returns <= loss) >= level - 1e-12]
    assert value_at_risk(returns, level) == min(reached)


@given(returns=some_returns)
def test_omega_less_one_is_the_mean_over_the_mean_loss(returns):
    assume((returns < 0.0).any())
    lost = -np.minimum(returns, 0.0).mean()
    assert omega_ratio(returns) - 1.0 == pytest.approx(returns.mean() / lost, abs=1e-9)


@given(returns=some_returns)
def test_total_return_compounds_what_cagr_spreads_over_the_years(returns):
    assert total_return(returns) == pytest.approx(math.prod(1.0 + returns) - 1.0, abs=1e-12)


@given(returns=some_returns)
def test_drawdown_duration_is_the_longest_time_below_any_earlier_wealth(returns):
    wealth = list(accumulate((1 + Fraction(round(each * 1e4), 10_000) for each in returns), mul, initial=Fraction(1)))
    longest = held = 0
    for i in range(1, len(wealth)):
        held = held + 1 if wealth[i] < max(wealth[:i]) else 0
        longest = max(longest, held)
    assert drawdown_duration(returns) == longest


def test_a_recovery_but_for_rounding_is_one():
    lost = np.linspace(0.01, 0.6, 60)
    returns = np.column_stack([-lost, 1.0 / (1.0 - lost) - 1.0]).ravel()
    assert (np.cumprod(1.0 + returns)[1::2] < 1.0).any()
    assert drawdown_duration(returns) == 1
    assert drawdown_duration(np.array([-0.1, 1.0 / 0.9 - 1.0 - 1e-9, 0.0])) == 3


def test_hit_rate_counts_sessions_without_a_return_as_misses():
    assert hit_rate(np.array([0.01, 0.0, -0.01, 0.02])) == 0.5


@given(returns=some_returns)
def test_max_drawdown_is_the_worst_loss_between_any_two_moments(returns):
    wealth = np.concatenate([[1.0], np.cumprod(1.0 + returns)])
    worst = max(1.0 - wealth[j] / wealth[i] for i in range(len(wealth)) for j in range(i, len(wealth)))
    assert max_drawdown(returns) == pytest.approx(worst, abs=1e-12)


@given(returns=some_returns)
def test_constant_growth_at_the_cagr_ends_at_the_same_wealth(returns):
    years = len(returns) / 252
    assert years * np.log1p(cagr(returns, 252)) == pytest.approx(np.log1p(returns).sum(), abs=1e-6)


@given(returns=some_returns, scale=st.floats(0.01, 100.0))
def test_sharpe_ratio_does_not_depend_on_scale(returns, scale):
    assert sharpe_ratio(returns * scale, 252) == pytest.approx(sharpe_ratio(returns, 252), rel=1e-6)


def test_a_year_of_other_periods_scales_sharpe_and_volatility_by_its_root():
    returns = np.array([0.01, -0.02, 0.03, 0.005])
    assert sharpe_ratio(returns, 12) == pytest.approx(sharpe_ratio(returns, 252) * np.sqrt(12 / 252))
    assert annual_volatility(returns, 12) == pytest.approx(annual_volatility(returns, 252) * np.sqrt(12 / 252))


@pytest.mark.parametrize("statistic", list(STATISTICS))
def test_missing_no_and_two_axes_of_returns_are_refused(statistic):
    for returns in (np.array([0.01, np.nan, 0.02]), np.array([]), np.full((3, 2), 0.01)):
        with pytest.raises(ValueError):
            EVERY[statistic](returns)


@pytest.mark.parametrize("statistic", ["volatility", "sharpe"])
def test_one_return_has_no_spread(statistic):
    with pytest.raises(ValueError):
        EVERY[statistic](np.array([0.01]))


@pytest.mark.parametrize("statistic", ["sortino", "calmar", "omega", "tail_ratio"])
def test_a_ratio_to_nothing_is_refused_for_an_account_that_stays_in_cash(statistic):
    with pytest.raises(UndefinedStatisticError):
        EVERY[statistic](np.zeros(50))


@pytest.mark.parametrize("constant", [-0.01, 0.01])
def test_statistics_of_returns_that_never_vary(constant):
    found = statistics_of(np.full(50, constant), 252)
    lost = constant < 0
    assert found["sharpe"] == 0.0
    assert found["hit_rate"] == float(not lost)
    assert found["drawdown_duration"] == (50 if lost else 0)
    assert found["cvar"] == found["value_at_risk"] == -constant
    assert found["tail_ratio"] == pytest.approx(1.0)
    assert (found["omega"], found["sortino"]) == ((0.0, pytest.approx(-(252**0.5))) if lost else (None, None))
    assert (found["calmar"] is None) is not lost


@pytest.mark.parametrize("statistic", ["total_return", "cagr", "max_drawdown", "drawdown_duration", "calmar"])
def test_a_loss_of_more_than_everything_is_not_compounded(statistic):
    with pytest.raises(ValueError):
        EVERY[statistic](np.array([0.1, -1.2, 0.1]))


def test_a_total_loss_stays_a_total_loss():
    ruined = np.array([0.1, -1.0, 0.0])
    assert total_return(ruined) == cagr(ruined, 252) == -1.0
    assert max_drawdown(ruined) == 1.0
    assert calmar_ratio(ruined, 252) == -1.0


def test_growth_that_no_number_holds_is_left_empty():
    with pytest.raises(UndefinedStatisticError):
        cagr(np.array([1e4, 1e4]), 252)
    assert statistics_of(np.array([1e4, 1e4]), 252)["cagr"] is None


@pytest.mark.parametrize("spread", [1e-13, 1e-9, 1e-7])
def test_a_spread_above_rounding_has_a_sharpe_ratio(spread):
    returns = 0.01 * (1.0 + spread * np.tile([-1.0, 1.0], 10))
    expected = 0.0 if spread < 1e-12 else np.sqrt(252 * 19 / 20) / spread
    assert sharpe_ratio(returns, 252) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
@pytest.mark.parametrize("statistic", [value_at_risk, expected_shortfall])
def test_a_confidence_level_is_a_share(statistic, level):
    with pytest.raises(ValueError):
        statistic(np.array([0.01, -0.01]), level)
