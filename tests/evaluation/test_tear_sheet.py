"""The tear sheet's figures against pandas and ffn."""

from datetime import date

import ffn
import numpy as np
import pandas as pd
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.tear_sheet import TearSheet, worst_drawdowns
from tests.markets import synthetic_sessions


@pytest.fixture
def curve():
    """Rows of an account over 700 sessions."""
    generator = np.random.default_rng(7)
    n = 700
    return pl.DataFrame(
        {
            "session": synthetic_sessions(n).tolist(),
            "net_return": generator.normal(0.0004, 0.012, n),
            "turnover": generator.uniform(0.0, 0.1, n),
            "cash": generator.uniform(0.0, 0.3, n),
            "gross": [None] * (n // 2) + [1.5] * (n // 2),  # null in rows of older runs
        }
    )


@pytest.fixture
def series(curve):
    """Net returns as a pandas series."""
    return pd.Series(curve["net_return"].to_numpy(), pd.DatetimeIndex(curve["session"].to_list()))


def test_monthly_and_yearly_returns_equal_resampled_ones(curve, series):
    sheet = TearSheet.of(curve, 252)
    for rows, frequency in ((sheet.monthly, "ME"), (sheet.yearly, "YE")):
        expected = (1.0 + series).resample(frequency).prod() - 1.0
        np.testing.assert_allclose(rows["return"], expected, atol=1e-12)
    assert sheet.monthly.select("year", "month").rows()[0] == (series.index[0].year, series.index[0].month)
    assert sheet.yearly["year"].to_list() == sorted({day.year for day in series.index})


def test_rolling_figures_equal_those_of_pandas_over_126_sessions(curve, series):
    rolling = TearSheet.of(curve, 252).by_session
    window = series.rolling(126)
    root = np.sqrt(252.0)
    expected = {
        "sharpe": window.mean() / window.std() * root,
        "volatility": window.std() * root,
        "turnover": pd.Series(curve["turnover"].to_numpy()).rolling(126).mean() * 252.0,
    }
    for name, values in expected.items():
        assert rolling[name].null_count() == 125
        np.testing.assert_allclose(rolling[name].to_numpy(), values, atol=1e-9)
    np.testing.assert_allclose(rolling["exposure"][:350], 1.0 - curve["cash"].to_numpy()[:350])
    assert rolling["exposure"][350:].unique().to_list() == [1.5]


def test_worst_drawdowns_equal_those_of_ffn(curve, series):
    wealth = pd.concat([pd.Series([1.0], [series.index[0] - pd.Timedelta(days=1)]), (1.0 + series).cumprod()])
    episodes = ffn.core.drawdown_details(ffn.core.to_drawdown_series(wealth)).sort_values("drawdown").head(5)
    found = TearSheet.of(curve, 252).drawdowns
    np.testing.assert_allclose(found["depth"], -episodes["drawdown"].astype(float))
    assert found["start"].to_list() == [day.date() for day in episodes["Start"]]
    ends = [end or curve["session"][-1] for end in found["recovery"]]
    assert ends == [day.date() for day in episodes["End"]]


def test_worst_drawdowns_name_trough_and_leave_open_recovery_null():
    sessions = pl.Series([date(2024, 1, day) for day in range(2, 9)])
    returns = np.array([-0.1, 0.2, -0.5, 0.5, 1.0, -0.2, -0.25])
    found = worst_drawdowns(sessions, returns)
    assert found.select("start", "trough", "recovery", "n_sessions").rows() == [
        (date(2024, 1, 4), date(2024, 1, 4), date(2024, 1, 6), 2),
        (date(2024, 1, 7), date(2024, 1, 8), None, 2),
        (date(2024, 1, 2), date(2024, 1, 2), date(2024, 1, 3), 1),
    ]
    np.testing.assert_allclose(found["depth"], [0.5, 0.4, 0.1])


def test_worst_drawdowns_of_rising_returns_are_none():
    assert worst_drawdowns(pl.Series([date(2024, 1, 2)]), np.array([0.01])).is_empty()


def test_tear_sheet_of_short_account_has_no_rolling_figures(curve):
    sheet = TearSheet.of(curve.head(125), 252)
    assert sheet.by_session["sharpe"].null_count() == 125
    assert len(sheet.monthly) == 7
