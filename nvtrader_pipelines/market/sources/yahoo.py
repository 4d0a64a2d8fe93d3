"""Daily bars from Yahoo Finance by yfinance, an optional extra."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.calendar import CalendarName
from nvtrader_pipelines.market.sources.delivery import Delivery, LandedFile, SourceName, SourceUnavailable
from nvtrader_pipelines.market.sources.landing import file_delivery


class YahooSource(Component):
    """Daily bars and adjusted closes of the named symbols, one delivery per symbol."""

    kind: Literal["yahoo"] = "yahoo"
    name: SourceName = "yahoo"
    calendar: CalendarName = "XNYS"
    symbols: tuple[str, ...] = Field(("SPY", "QQQ", "IWM", "EFA", "TLT", "GLD"), min_length=1)
    first: dt.date = dt.date(2005, 1, 1)  # first calendar day

    def deliveries(self, landed: Sequence[LandedFile]) -> list[Delivery]:  # noqa: ARG002 - the family's signature
        """Download every symbol; the landing zone is not read.

        Raises:
            SourceUnavailable: if yfinance is not installed or Yahoo gives no data.
        """
        yfinance = _yfinance()
        return [file_delivery(self.name, self._download(yfinance, symbol)) for symbol in self.symbols]

    def _download(self, yfinance: Any, symbol: str) -> LandedFile:
        try:
            frame = yfinance.Ticker(symbol).history(start=str(self.first), auto_adjust=False, actions=False)
        except (yfinance.exceptions.YFException, OSError, ValueError, KeyError, TypeError) as error:
            raise _no_data(symbol) from error
        if frame is None or frame.empty:
            raise _no_data(symbol)
        return LandedFile(f"{symbol}.csv", frame.assign(symbol=symbol).to_csv().encode())


def _yfinance() -> Any:
    try:
        import yfinance  # pyright: ignore[reportMissingImports] - an optional extra
    except ImportError as error:
        raise SourceUnavailable(
            "the source 'yahoo' needs yfinance: install it with pip install 'nvtrader-pipelines[yahoo]', "
            "or remove 'yahoo' from data/market.yaml"
        ) from error
    return yfinance


def _no_data(symbol: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"Yahoo gave no data for {symbol!r}: check the network and the symbol, or remove 'yahoo' from data/market.yaml"
    )
