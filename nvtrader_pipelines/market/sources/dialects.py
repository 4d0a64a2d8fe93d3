"""Dialects of CSV files with daily bars, recognized by their header."""

import re
from collections.abc import Sequence
from pathlib import PurePath

import polars as pl

from nvtrader_pipelines.market.sources.csv_text import CsvText
from nvtrader_pipelines.market.sources.delivery import UnreadableFile, with_delivered_columns
from nvtrader_pipelines.market.tables import NUMBERS

# Our own spelling first, then those of vendors and libraries.
SPELLINGS: dict[str, tuple[str, ...]] = {
    "symbol": ("symbol", "tic", "ticker", "stock", "name"),
    "date": ("date", "datetime", "timestamp", "open_time", "time", "snapped_at", ""),  # last: pandas's index
    "open": ("open",),
    "high": ("high",),
    "low": ("low",),
    "close": ("close", "close/last", "price"),
    "volume": ("volume", "vol", "total_volume"),
    "adj_close": ("adj_close", "adjcp", "adjclose", "adjusted_close", "closeadj"),
}
MIDNIGHT = r"^0+(:00)*$"  # a time that adds nothing to a date
NO_SYMBOLS = frozenset(  # words in names of downloads
    {"DAILY", "DATA", "DOWNLOAD", "EXPORT", "HISTORICAL", "HISTORICALDATA", "HISTORY", "OHLC", "OHLCV", "PRICES"}
    | {"QUOTES", "STOCK", "STOCKS", "TABLE"}
)
_PREFIXES = frozenset({"BINANCE", "COIN", "COINBASE", "COINS", "CRYPTO", "FX", "KRAKEN"})  # before a symbol
_QUOTES = (  # currencies that pairs are quoted in
    "AED|AUD|BRL|CAD|CHF|CLP|CNH|CNY|COP|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PEN|PHP|PLN|RON|"
    "RUB|SAR|SEK|SGD|THB|TRY|TWD|USD|ZAR|BTC|ETH|USDC|USDT"
)
PAIR = rf"([A-Z0-9]{{2,10}})[/_]({_QUOTES})"
_VENDOR_NAMES = (  # Alpha Vantage's daily_adjusted_IBM, Binance's BTCUSDT-1d-2021-01, CoinGecko's btc-usd-max
    re.compile(r"^DAILY_(?:ADJUSTED_)?(?P<symbol>[^_ ]+)"),
    re.compile(r"^(?P<symbol>[^_ ]+?)-1D-\d{4}-\d{2}(?:-\d{2})?$"),
    re.compile(r"^(?P<symbol>[^_ ]+?)-MAX$"),
)
WIDE_CORNERS = ("", "price", "ticker")  # first cells of yfinance's two header rows


def rows_from_csv(text: CsvText, file: str) -> pl.DataFrame:
    """Read the rows of a CSV file in any known dialect.

    Raises:
        UnreadableFile: if the header is of no known dialect, or there is no row.
    """
    header = text.header(3)
    if _is_wide(header):
        fields, broken = text.body(3)
        rows = _wide_rows(fields, header)
    else:
        fields, broken = text.body(1)
        rows = rows_from_columns(fields, header[0], file)
    unsplit = with_delivered_columns(broken.rename({"text": "symbol"}))
    if fields.is_empty() and unsplit.is_empty():
        raise UnreadableFile("empty_file", "the file has a header but no rows; deliver it again with its rows")
    return pl.concat([rows, unsplit]).sort("line", maintain_order=True)


def rows_from_columns(fields: pl.DataFrame, header: Sequence[str], file: str) -> pl.DataFrame:
    """Read a table with one row per bar; `fields` has `line` and the header's columns.

    Without a column of symbols, the whole table belongs to the symbol in the file's name (`AAPL.csv`,
    `aapl_2015-2020.csv`).

    Raises:
        UnreadableFile: if the header names no date or no close, or one of the columns twice, or neither header nor
            file names the symbol.
    """
    _require_single_columns(header)
    position = {known: index for known in SPELLINGS if (index := _find(header, known)) is not None}
    if "date" not in position or "close" not in position:
        cure = "make the first line symbol,date,open,high,low,close,volume with an optional adj_close"
        if "date" in position:
            cure += "; if each column holds the closes of a symbol, turn it into a row per symbol and date"
        raise UnreadableFile(
            "unknown_header", f"the header {', '.join(header)[:200]!r} names no date and close; {cure}"
        )
    cells = fields.columns[1:]
    rows = fields.select("line", *(pl.col(cells[index]).alias(known) for known, index in position.items()))
    times = [cells[index] for index, cell in enumerate(header) if _normalize_header(cell) == "time"]
    if times and cells[position["date"]] != times[0]:
        rows = rows.with_columns(_with_time(pl.col("date"), fields[times[0]].str.strip_chars()))
    if "symbol" not in position:
        _require_one_bar_per_date(rows)
        rows = rows.with_columns(pl.lit(symbol_of_file(file)).alias("symbol"))
    return with_delivered_columns(rows)


def symbol_of_file(file: str) -> str:
    """Symbol in a file's name: up to the first dot, underscore or space, in capitals; `EUR_USD.csv` is `EURUSD`.

    Raises:
        UnreadableFile: if the name begins with a word such as `data`.
    """
    stem = PurePath(file).stem.upper()
    vendor = next((found["symbol"] for name in _VENDOR_NAMES if (found := name.match(stem))), None)
    pair = re.match(rf"{PAIR}(?=[_ ]|$)", stem)
    symbol = vendor or re.split(r"[_ ]", stem, maxsplit=1)[0]
    if symbol in NO_SYMBOLS or (symbol in _PREFIXES and symbol != stem):
        raise UnreadableFile(
            "unknown_symbol",
            f"the header names no symbol, and the file's name {PurePath(file).name!r} holds none; "
            "add a column `symbol`, or name the file after its symbol, such as AAPL.csv",
        )
    return "".join(pair.groups()) if pair else symbol


def _with_time(date: pl.Expr, time: pl.Series) -> pl.Expr:
    """Append a time of day to the date, unless it is midnight; its rule refuses such a row."""
    is_midnight = time.fill_null("").str.contains(MIDNIGHT) | (time.fill_null("") == "")
    return pl.when(is_midnight).then(date).otherwise(pl.format("{} {}", date, time)).alias("date")


def _require_single_columns(header: Sequence[str]) -> None:
    spelled = [_normalize_header(cell) for cell in header]
    known = {spelling for spellings in SPELLINGS.values() for spelling in spellings if spelling}
    repeated = next((name for name in spelled if name in known and spelled.count(name) > 1), None)
    if repeated:
        raise UnreadableFile(
            "repeated_column",
            f"a header names each column once, but this has {spelled.count(repeated)} columns {repeated!r}; "
            "rename or remove all but one, or deliver a row per symbol and date",
        )


def _require_one_bar_per_date(rows: pl.DataFrame) -> None:
    """Refuse different bars on one date: several symbols, in a column of unknown name.

    Raises:
        UnreadableFile: with the first such date and its lines.
    """
    known = [name for name in NUMBERS if name in rows.columns]
    bars = rows.select("line", pl.col("date", *known).str.strip_chars())
    different = bars.drop_nulls("date").unique(["date", *known], maintain_order=True)
    several = different.filter(pl.len().over("date") > 1).head(2)
    if several.height:
        date, lines = several["date"][0], " and ".join(map(str, several["line"]))
        raise UnreadableFile(
            "several_symbols",
            f"a file without a column of symbols holds one bar per date, but lines {lines} are two different bars on "
            f"{date}; name the column of the symbols `symbol`, or deliver one file per symbol",
        )


def _find(header: Sequence[str], known: str) -> int | None:
    spelled = [_normalize_header(cell) for cell in header]
    if known == "symbol" and "timehigh" in spelled:  # CoinMarketCap, whose `name` is the number of a currency
        return None
    return next((spelled.index(name) for name in SPELLINGS[known] if name in spelled), None)


def _normalize_header(cell: str) -> str:
    return cell.strip(' <>*."').lower().replace(".", "").replace(" ", "_")


def _is_wide(header: list[list[str]]) -> bool:
    corners = [_normalize_header(row[0]) for row in header]
    return len(header) == 3 and corners[0] in WIDE_CORNERS and corners[1] in WIDE_CORNERS and corners[2] == "date"


def _wide_rows(fields: pl.DataFrame, header: list[list[str]]) -> pl.DataFrame:
    """Unpivot yfinance's wide table, whose columns are (field, symbol) pairs in two header rows."""
    prices, tickers = header[0], header[1]
    if "close" not in map(_normalize_header, prices):
        prices, tickers = tickers, prices  # downloaded with group_by="ticker"
    if "close" not in map(_normalize_header, prices):
        raise UnreadableFile("unknown_header", "the wide header names no close; keep yfinance's two header rows")
    parts: list[pl.DataFrame] = []
    for symbol in dict.fromkeys(tickers[1:]):
        columns = {name: _wide_column(prices, tickers, name, symbol) for name in NUMBERS}
        present = {name: str(index) for name, index in columns.items() if index is not None}
        part = fields.select("line", pl.lit(symbol).alias("symbol"), pl.col("0").alias("date"), **present)
        # An empty cell group of a wide table is no bar: the symbol was not listed.
        parts.append(with_delivered_columns(part.filter(~pl.all_horizontal(pl.col(*present).is_null()))))
    return pl.concat(parts)


def _wide_column(prices: list[str], tickers: list[str], name: str, symbol: str) -> int | None:
    spellings = SPELLINGS[name]
    pairs = zip(prices, tickers, strict=True)
    return next(
        (k for k, (price, owner) in enumerate(pairs) if owner == symbol and _normalize_header(price) in spellings), None
    )
