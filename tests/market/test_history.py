import datetime as dt

import numpy as np
import polars as pl

from nvtrader_pipelines.market.history import bar_arrays

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
