import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import CrossSectionalRank, Fundamental, Vix, compute_features
from nvtrader_pipelines.market.history import price_history
from nvtrader_pipelines.market.look_ahead import require_causal_feature
from nvtrader_pipelines.market.series import SeriesUnavailable
from nvtrader_pipelines.market.series_files import ingest_series
from nvtrader_pipelines.market.sources.delivery import LandedFile
from nvtrader_pipelines.testing.feature_checks import synthetic_history
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_bars

HISTORY = synthetic_history()


def with_vix(*published_at: int):
    """History of ten sessions with a value of the VIX at some of them."""
    vix = np.full((10, 5), np.nan)
    vix[list(published_at)] = np.array(published_at)[:, None]
    arrays = {name: getattr(HISTORY, name)[-10:] for name in ("sessions", "closes", "volumes", "highs", "lows")}
    return replace(HISTORY, **arrays, series={"vix": vix})


def test_fundamental_is_last_published_value_where_priced():
    pe, values = HISTORY.series["pe"], Fundamental().values(HISTORY)
    assert np.isnan(values[0, 1:]).all()
    assert values[62, 0] == pe[0, 0] != values[63, 0] == pe[63, 0]
    np.testing.assert_array_equal(np.isnan(values[10:]), ~HISTORY.has_price[10:])


def test_rank_of_a_fundamental_orders_the_names():
    ranks = CrossSectionalRank(of=Fundamental()).values(HISTORY)
    priced = HISTORY.has_price[-1]
    order = np.argsort(Fundamental().values(HISTORY)[-1][priced])
    assert (np.diff(ranks[-1][priced][order]) > 0.0).all()


def test_vix_lasts_as_long_as_its_age_allows():
    values = Vix(max_age=3).values(with_vix(2, 4, 7))
    np.testing.assert_array_equal(values[:, 0], [np.nan, np.nan, 2, 2, 4, 4, 4, 7, 7, 7])


@pytest.mark.parametrize(
    ("max_age", "known", "gap"), [(1, (2, 4, 7), (5, 6)), (3, (0, 5), (1, 4)), (2, (4, 6), (7, 9))]
)
def test_gap_of_the_vix_is_refused_with_its_sessions(max_age, known, gap):
    history = with_vix(*known)
    with pytest.raises(SeriesUnavailable) as caught:
        require_causal_feature(Vix(max_age=max_age), history)
    assert caught.value.gap == tuple(history.sessions[list(gap)].tolist())


@pytest.mark.parametrize("feature", [Fundamental(field="roe"), Vix(field="roe")])
def test_unknown_field_is_refused_with_those_there_are(feature):
    with pytest.raises(SeriesUnavailable, match="pe, vix") as caught:
        feature.values(HISTORY)
    assert (caught.value.field, caught.value.gap) == ("roe", None)


@pytest.mark.slow
@pytest.mark.parametrize("feature", [Fundamental(), Vix(max_age=320), CrossSectionalRank(of=Fundamental())])
def test_value_published_tomorrow_changes_no_feature_of_today(feature):
    returns = market_tables(csv_file(synthetic_bars())).returns
    today = returns["session"].unique().sort()[-2]
    times = [f"{today}T16:00", f"{today}T16:01", str(today), str(today - dt.timedelta(days=400))]
    lines = [
        f"{symbol},{at},{field},{n}" for n, at in enumerate(times) for symbol, field in [("", "vix"), ("AAA", "pe")]
    ]
    content = "\n".join(["symbol,published,field,value", *lines]).encode()
    series = ingest_series([LandedFile("series/a.csv", content)], INGESTED_AT).rows
    require_causal_feature(feature, price_history(returns, NEW_YORK, series))
    tomorrow = pl.col("value").is_in([1.0, 2.0])
    for known in (series, series.filter(~tomorrow)):
        found = compute_features(returns, [feature], series=known).filter(session=today, symbol="AAA")[feature.name]
        assert found.to_list() == [0.0]
