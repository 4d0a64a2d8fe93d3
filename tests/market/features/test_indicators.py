from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import talib
from scipy.spatial.distance import mahalanobis
from stockstats import StockDataFrame

from nvtrader_pipelines.components.component import members
from nvtrader_pipelines.market.features import (
    MACD,
    BollingerBand,
    CommodityChannelIndex,
    CrossSectionalRank,
    DirectionalIndex,
    Feature,
    Formula,
    MovingAverage,
    RelativeStrength,
    Turbulence,
    Vix,
)
from nvtrader_pipelines.market.features.cross_section import Ranked
from nvtrader_pipelines.portfolio.pipeline.turbulence import turbulence_index
from nvtrader_pipelines.testing.feature_checks import PRICE_ARRAYS, synthetic_history
from tests.markets import synthetic_panel

HISTORY = synthetic_history()
CLOSES, HIGHS, LOWS = HISTORY.closes[:, 0], HISTORY.highs[:, 0], HISTORY.lows[:, 0]
OF_NAMES = [
    *(MACD(part="line"), MACD(part="signal"), MACD(part="histogram")),
    *(BollingerBand(band="upper"), BollingerBand(band="lower"), MovingAverage()),
    *(CommodityChannelIndex(), DirectionalIndex()),
]


@cache
def indicators():
    return StockDataFrame.retype(pd.DataFrame({"close": CLOSES, "high": HIGHS, "low": LOWS}))


@pytest.mark.parametrize(
    ("feature", "expected", "first"),
    [
        (MACD(part="line"), lambda: indicators()["macd"] / CLOSES, 25),
        (MACD(part="signal"), lambda: indicators()["macds"] / CLOSES, 33),
        (MACD(part="histogram"), lambda: indicators()["macdh"] / CLOSES, 33),
        (BollingerBand(band="upper"), lambda: 1.0 - indicators()["boll_ub"] / CLOSES, 19),
        (BollingerBand(band="lower"), lambda: 1.0 - indicators()["boll_lb"] / CLOSES, 19),
        (RelativeStrength(window=30), lambda: indicators()["rsi_30"], 30),
        (DirectionalIndex(window=30), lambda: indicators()["dx_30"], 30),
        (CommodityChannelIndex(window=30), lambda: talib.CCI(HIGHS, LOWS, CLOSES, 30), 29),
        (MovingAverage(window=60), lambda: 1.0 - talib.SMA(CLOSES, 60) / CLOSES, 59),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_indicator_equals_stockstats_or_talib_from_first_full_window(feature, expected, first):
    values = feature.values(HISTORY)[:, 0]
    assert np.isnan(values[:first]).all()
    np.testing.assert_allclose(values[first:], np.asarray(expected())[first:], rtol=1e-9, atol=1e-9)


def test_indicators_have_the_names_of_their_fields():
    assert [feature.name for feature in (*OF_NAMES[1:4], *OF_NAMES[5:], BollingerBand(width=2.25))] == [
        "macd_signal_12_26_9",
        "macd_histogram_12_26_9",
        "bollinger_upper_20_2",
        "sma_30",
        "cci_30",
        "dx_14",
        "bollinger_upper_20_2_25",
    ]


@pytest.mark.parametrize("feature", OF_NAMES, ids=lambda feature: feature.name)
def test_level_of_prices_does_not_matter(feature):
    scaled = {name: getattr(HISTORY, name) * 100.0 for name in PRICE_ARRAYS}
    np.testing.assert_allclose(
        feature.values(replace(HISTORY, **scaled)), feature.values(HISTORY), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("feature", OF_NAMES, ids=lambda feature: feature.name)
def test_constant_price_has_value_zero(feature):
    still = np.full_like(HISTORY.closes, 10.1)
    values = feature.values(replace(HISTORY, closes=still, highs=still, lows=still))
    assert values[33:] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("feature", [*OF_NAMES[:3], DirectionalIndex()], ids=lambda feature: feature.name)
def test_exponential_means_leave_missing_bars_out(feature):
    bars = HISTORY.has_price[:, 1]
    arrays = {name: getattr(HISTORY, name)[bars, 1:2] for name in PRICE_ARRAYS}
    dense = replace(HISTORY, sessions=HISTORY.sessions[bars], symbols=HISTORY.symbols[1:2], **arrays)
    np.testing.assert_allclose(feature.values(HISTORY)[bars, 1], feature.values(dense)[:, 0], rtol=1e-9)


def test_windows_leave_missing_bars_out():
    last = max(np.flatnonzero(HISTORY.has_price[:, 1]))
    closes, highs, lows = (array[last - 29 : last + 1, 1] for array in (HISTORY.closes, HISTORY.highs, HISTORY.lows))
    typical = (highs + lows + closes) / 3.0
    mean = np.nanmean(typical)
    index = (typical[-1] - mean) / (0.015 * np.nanmean(np.abs(typical - mean)))
    assert np.isnan(closes).any()
    assert CommodityChannelIndex().values(HISTORY)[last, 1] == pytest.approx(index, rel=1e-9)
    distance = 1.0 - np.nanmean(closes) / closes[-1]
    assert MovingAverage().values(HISTORY)[last, 1] == pytest.approx(distance, abs=1e-12)


@pytest.mark.parametrize("feature", [CommodityChannelIndex(), DirectionalIndex()], ids=lambda feature: feature.name)
def test_source_without_highs_is_refused_and_name_without_is_unknown(feature):
    highs = HISTORY.highs.copy()
    highs[:, 2] = np.nan
    unknown = np.isnan(feature.values(replace(HISTORY, highs=highs))).all(axis=0)
    assert list(unknown) == [False, False, True, False, False]
    with pytest.raises(ValueError):
        feature.values(replace(HISTORY, highs=np.full_like(highs, np.nan)))


def test_turbulence_is_scipys_squared_distance_of_the_listed_names():
    values = Turbulence(window=60).values(HISTORY)
    assert np.isnan(values[:61]).all()
    returns = np.nan_to_num(HISTORY.closes[1:] / HISTORY.last_closes()[:-1] - 1.0)  # [t - 1]
    for t, names in ((95, [0, 1, 2, 4]), (600, [0, 1, 2, 3, 4])):  # name 3 is listed at 45
        past = returns[t - 61 : t - 1, names]
        precision = np.linalg.inv(np.cov(past, rowvar=False))
        expected = mahalanobis(returns[t - 1, names], past.mean(axis=0), precision) ** 2
        assert values[t] == pytest.approx(expected, rel=1e-9)


def test_turbulence_equals_that_of_the_timing():
    panel = synthetic_panel(200, 3, seed=2)
    closes = np.cumprod(1.0 + panel.close_returns, axis=0)
    history = replace(HISTORY, sessions=panel.sessions, symbols=panel.symbols, closes=closes)
    expected = [turbulence_index(panel, t, 100) for t in range(101, 200)]
    np.testing.assert_allclose(Turbulence(window=100).values(history)[101:, 1], expected, rtol=1e-8)


def test_turbulence_window_not_longer_than_the_number_of_names_is_refused():
    wide = {name: np.repeat(getattr(HISTORY, name), 5, axis=1) for name in PRICE_ARRAYS}
    with pytest.raises(ValueError):
        Turbulence(window=25).values(replace(HISTORY, symbols=tuple(map(str, range(25))), **wide))


def test_every_feature_of_a_name_can_be_ranked():
    assert set(members(Feature)) - set(members(Ranked)) == {CrossSectionalRank, Formula, Turbulence, Vix}
