import sys
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest

from nvtrader_pipelines.market.sources import SourceUnavailable, YahooSource


class YFException(Exception):  # noqa: N818 - yfinance's own name
    pass


def fake_yfinance(monkeypatch, history):
    module = ModuleType("yfinance")
    module.exceptions = SimpleNamespace(YFException=YFException)
    module.Ticker = lambda symbol: SimpleNamespace(history=lambda **options: history(symbol, **options))
    monkeypatch.setitem(sys.modules, "yfinance", module)


def frame(symbol, start, auto_adjust, actions):
    index = pd.DatetimeIndex(["2020-01-02"], tz="America/New_York", name="Date")
    columns = {"Open": [1.5], "High": [2.0], "Low": [1.0], "Close": [1.75], "Adj Close": [1.7], "Volume": [100]}
    return pd.DataFrame(columns, index=index)


def test_yahoo_delivers_raw_and_adjusted_closes_per_symbol(monkeypatch):
    fake_yfinance(monkeypatch, frame)
    one, two = YahooSource(symbols=("SPY", "BRK-B")).deliveries(())
    assert [one.file, two.file] == ["SPY.csv", "BRK-B.csv"]
    row = two.read().rows.row(0, named=True)
    assert (row["symbol"], row["date"], row["close"], row["adj_close"]) == (
        "BRK-B",
        "2020-01-02 00:00:00-05:00",
        "1.75",
        "1.7",
    )


def test_yahoo_without_the_extra_is_unavailable(monkeypatch):
    monkeypatch.setitem(sys.modules, "yfinance", None)
    with pytest.raises(SourceUnavailable):
        YahooSource().deliveries(())


@pytest.mark.parametrize("failure", [ConnectionError("no route"), YFException("rate limit")])
def test_yahoo_offline_is_unavailable(monkeypatch, failure):
    def history(symbol, **options):
        raise failure

    fake_yfinance(monkeypatch, history)
    with pytest.raises(SourceUnavailable):
        YahooSource().deliveries(())


def test_yahoo_with_empty_answer_is_unavailable(monkeypatch):
    fake_yfinance(monkeypatch, lambda symbol, **options: pd.DataFrame())
    with pytest.raises(SourceUnavailable):
        YahooSource().deliveries(())
