"""The command `nvtrader` on the evening in `$EVENING`, with random walks up to that day as Yahoo's prices."""

import datetime as dt
import os
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.runs import lifecycle, market_state
from nvtrader_pipelines.service.cli.app import main

EVENING = dt.datetime.fromisoformat(os.environ["EVENING"])


def history(start: str, **_: bool) -> pd.DataFrame:
    """Daily bars as yfinance has them, about the price at which the broker's stub fills."""
    days = pd.DatetimeIndex(NEW_YORK.sessions(dt.date.fromisoformat(start), EVENING.date()), name="Date")
    noise = np.random.default_rng(0).normal(100.0, 1.0, len(days))
    prices = dict.fromkeys(("Open", "High", "Low", "Close", "Adj Close"), noise)
    return pd.DataFrame({**prices, "Volume": 90_000}, index=days.tz_localize(NEW_YORK.time_zone))


lifecycle.datetime = market_state.datetime = SimpleNamespace(now=EVENING.astimezone)
yahoo = {"Ticker": lambda _: SimpleNamespace(history=history), "exceptions": SimpleNamespace(YFException=ValueError)}
sys.modules["yfinance"] = SimpleNamespace(**yahoo)
main()
