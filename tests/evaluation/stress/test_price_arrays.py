import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.evaluation.stress.price_arrays import PriceArrays
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.tables import KEY
from tests.evaluation.stress.markets import random_walks
from tests.markets import csv_file, market_tables, synthetic_bars


@pytest.mark.parametrize(("opens", "volume"), [(True, True), (False, False)])
def test_price_arrays_round_trip_to_identical_rows(opens, volume):
    bars = synthetic_bars(40, opens=opens, volume=volume)
    gaps = (pl.col("symbol") == "AAA") & pl.int_range(pl.len()).is_in([0, 7, 8, 39])
    returns = market_tables(csv_file(bars.filter(~gaps))).returns
    assert_frame_equal(PriceArrays.of(returns, NEW_YORK).rows().sort(KEY), returns.sort(KEY), check_exact=True)


def test_price_arrays_reject_two_sources():
    rows = random_walks().rows()
    with pytest.raises(ValueError):
        PriceArrays.of(pl.concat([rows, rows.with_columns(source=pl.lit("other"))]), NEW_YORK)


def test_scaled_keeps_bits_at_factor_one_and_extends_the_last_factor():
    prices = random_walks()
    factors = np.array([[0.5] * 4, [1.0] * 4])
    scaled = prices.scaled(100, factors, factors)
    np.testing.assert_array_equal(scaled.closes[100], 0.5 * prices.closes[100])
    for name in ("opens", "highs", "lows", "closes"):
        np.testing.assert_array_equal(
            np.delete(getattr(scaled, name), 100, 0), np.delete(getattr(prices, name), 100, 0)
        )
    np.testing.assert_array_equal(prices.scaled(100, factors[:1], factors[:1]).opens[100:], 0.5 * prices.opens[100:])


def test_scaled_high_and_low_keep_their_ratio_to_the_body():
    prices = random_walks()
    scaled = prices.scaled(100, np.full((1, 4), 1.0), np.full((1, 4), 0.5))  # falls by half from open to close
    np.testing.assert_allclose(scaled.highs[100], 1.003 * prices.opens[100], rtol=1e-14)
    np.testing.assert_allclose(scaled.lows[100], 0.997 * 0.5 * prices.closes[100], rtol=1e-14)
    np.testing.assert_array_equal(scaled.highs[101:], 0.5 * prices.highs[101:])
