"""The command `nvtrader` on the evening in `$EVENING`, with prices of Yahoo that are random walks up to that day."""

import datetime as dt
import os
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd

from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.runs import lifecycle, market_state
from nvtrader_pipelines.service.cli.app import main


class Evening(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return dt.datetime.fromisoformat(os.environ["EVENING"]).astimezone(tz)


def history(symbol: str, start: str, **_: bool) -> pd.DataFrame:
    """Daily bars as yfinance has them."""
    days = pd.DatetimeIndex(NEW_YORK.sessions(dt.date.fromisoformat(start), Evening.now().date()), name="Date")
    steps = np.random.default_rng([ord(letter) for letter in symbol]).normal(0.0003, 0.012, len(days))
    prices = dict.fromkeys(("Open", "High", "Low", "Close", "Adj Close"), 100.0 * np.exp(steps.cumsum()))
    return pd.DataFrame({**prices, "Volume": 90_000}, index=days.tz_localize(NEW_YORK.time_zone))


if __name__ == "__main__":
    lifecycle.datetime = market_state.datetime = Evening
    sys.modules["yfinance"] = SimpleNamespace(
        Ticker=lambda symbol: SimpleNamespace(history=lambda **options: history(symbol, **options)),
        exceptions=SimpleNamespace(YFException=ValueError),
    )
    main()
