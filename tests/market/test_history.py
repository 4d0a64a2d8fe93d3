import datetime as dt
import pickle

import numpy as np
import polars as pl

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.features import LogReturn
from nvtrader_pipelines.market.history import bar_arrays, price_history
from tests.markets import csv_file, market_tables, synthetic_bars

DAYS = np.array(["2015-01-02", "2015-01-05", "2015-01-06"], dtype="datetime64[D]")


def test_bar_arrays_are_nan_where_there_is_no_bar_or_value():
    bars = pl.DataFrame(
        {
            "session": [dt.date(2015, 1, 6), dt.date(2015, 1, 2), dt.date(2015, 1, 5)],
            "symbol": ["A", "B", "B"],
            "open": [1.0, 2.0, None],
            "volume": [10.0, 20.0, 30.0],
        }
    )
    arrays = bar_arrays(bars, ("open", "volume"), DAYS, ("A", "B"))
    np.testing.assert_array_equal(arrays["open"], [[np.nan, 2.0], [np.nan, np.nan], [1.0, np.nan]])
    np.testing.assert_array_equal(arrays["volume"], [[np.nan, 20.0], [np.nan, 30.0], [10.0, np.nan]])


def test_history_with_derived_values_survives_a_pickle():
    history = price_history(market_tables(csv_file(synthetic_bars(n_sessions=30, n_symbols=2))).returns, NEW_YORK)
    history.values_of(LogReturn(window=1))
    copied = pickle.loads(pickle.dumps(history))
    np.testing.assert_array_equal(copied.last_closes(), history.last_closes())
