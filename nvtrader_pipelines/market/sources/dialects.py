"""Dialects of CSV files with daily bars, recognized by their header."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from nvtrader_pipelines.market.sources.csv_text import CsvText
from nvtrader_pipelines.market.sources.delivery import DeliveredRows, UnreadableFile, with_delivered_columns
from nvtrader_pipelines.market.sources.file_names import SYMBOL, symbol_of_file
from nvtrader_pipelines.market.tables import NUMBERS

# Our own spelling first, then those of vendors and libraries.
_SYMBOLS = "symbol tic ticker symbols tickers code ts_code stock_code instrument instrument_id asset pair currency_pair"
SPELLINGS: dict[str, tuple[str, ...]] = {
    "symbol": (*_SYMBOLS.split(), "security", "contract", "ric", "isin", "coin", "stock", "name"),
    "date": ("date", "datetime", "timestamp", "open_time", "time", "snapped_at", ""),  # last: pandas's index
    "open": ("open",),
    "high": ("high",),
    "low": ("low",),
    "close": ("close", "close/last", "price"),
    "volume": ("volume", "vol", "total_volume"),
    "adj_close": ("adj_close",),  # and what `_ADJUSTED` spells
}
_CLOSE = r"(?:cp|price|(?:close|closing|last)(?:price)?)"
_ADJUSTED = re.compile(rf"(?:adj(?:usted)?|[hq]fq){_CLOSE}?|{_CLOSE}(?:adj(?:usted)?|[hq]fq)")  # letters of a header
_MAY_BE_ADJUSTED = re.compile(rf"(?:(?<!un)adj|[hq]fq).*{_CLOSE}|{_CLOSE}.*(?:(?<!un)adj|[hq]fq)")
_OF_A_DAY = frozenset({"day", "weekday", "day_of_week", "dayofweek", "month", "quarter", "year"})
_MARKET_WORDS = (
    "currency exchange mic per period interval frequency timeframe series source provider vendor type session sector "
    "industry country status note notes signal split"
)
_OF_A_MARKET = frozenset(_MARKET_WORDS.split())
_MAY_NAME = re.compile(r"symbol|ticker|cusip|sedol|figi|wkn|permno|gvkey|(?:^|_)code$|_id$|\u4ee3\u7801")
_NO_TEXT = (  # cells that name nothing: blanks, flags, numbers with a unit, dates, times, ratios
    r"(?i)^(?:null|none|nan|nat|n/?a|-|true|false|yes|no|y|n|[-+($]*[\d.,]+(?:e[-+]?\d+)?\s?[kmbt%)]*"
    r"|\d{1,4}[-/. ](?:\d{1,2}|[a-z]{3})[-/. ]\d{2,4}.*|[a-z]{3} \d{1,2},? \d{4}|\d{1,2}:.*|\d+[:/]\d+)?$"
)
_CODE = r"^0\d*[1-9]\d*$"  # a number with leading zeros, as 000001 of Shenzhen
_FEW_DAYS = 3  # with several closes in a file of one symbol
MIDNIGHT = r"^0+(:00)*$"  # a time that adds nothing to a date
WIDE_CORNERS = ("", "price", "ticker")  # first cells of yfinance's two header rows


def rows_from_csv(text: CsvText, file: str) -> DeliveredRows:
    """Read the rows of a CSV file in any known dialect.

    Raises:
        UnreadableFile: if the header is of no known dialect, or there is no row.
    """
    header = text.header(3)
    if _is_wide(header):
        fields, broken = text.body(3)
        delivered = _wide_rows(fields, header)
    else:
        fields, broken = text.body(1)
        delivered = rows_from_columns(fields, header[0], file)
    unsplit = with_delivered_columns(broken.rename({"text": "symbol"}))
    if fields.is_empty() and unsplit.is_empty():
        raise UnreadableFile("empty_file", "the file has a header but no rows; deliver it again with its rows")
    return replace(delivered, rows=pl.concat([delivered.rows, unsplit]).sort("line", maintain_order=True))


def rows_from_columns(fields: pl.DataFrame, header: Sequence[str], file: str) -> DeliveredRows:
    """Read a table with one row per bar; `fields` has `line` and the header's columns.

    Without a column of symbols, the whole table belongs to the symbol in the file's name (`AAPL.csv`,
    `aapl_2015-2020.csv`).

    Raises:
        UnreadableFile: if the header names no date or no close, or one of the columns twice, or neither header nor
            file names the symbol, or a column that is not known may hold symbols or adjusted closes.
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
    times = [index for index, cell in enumerate(header) if _normalize_header(cell) == "time"]
    if times and position["date"] != times[0]:
        rows = rows.with_columns(_with_time(pl.col("date"), fields[cells[times[0]]].str.strip_chars()))
    others = {
        cells[index]: cell.strip()
        for index, cell in enumerate(header)
        if index not in position.values() and index not in times
    }
    if "symbol" in position:
        _require_finest_symbol(fields, header, position["symbol"])
        return DeliveredRows(with_delivered_columns(rows), tuple(others.values()))
    names = _name_columns(fields, others)
    symbol = _symbol_without_column(fields, names, file)
    unused = tuple(cell for column, cell in others.items() if column not in names)
    _require_one_symbol(rows, unused)
    rows = with_delivered_columns(rows.with_columns(pl.lit(symbol).alias("symbol")))
    return DeliveredRows(rows, unused, None if names else symbol)


def _require_finest_symbol(fields: pl.DataFrame, header: Sequence[str], chosen: int) -> None:
    """Refuse a column of symbols beside another one that tells more rows apart.

    Raises:
        UnreadableFile: with both columns.
    """
    n_names = {i: fields.to_series(i + 1).n_unique() for i, cell in enumerate(header) if known_column(cell) == "symbol"}
    finest = max(n_names, key=lambda i: (n_names[i], i == chosen))
    if n_names[finest] > n_names[chosen]:
        raise UnreadableFile(
            "unknown_symbol",
            f"columns {header[chosen]!r} and {header[finest]!r} may both be the symbol, with {n_names[chosen]} and "
            f"{n_names[finest]} texts; remove or rename the one that is not",
        )


def known_column(cell: str) -> str | None:
    """Column of `tables.DELIVERED` that a header's cell spells."""
    spelled = _normalize_header(cell)
    return next((known for known, spellings in SPELLINGS.items() if spelled in spellings), None)


def _name_columns(fields: pl.DataFrame, headers: Mapping[str, str]) -> dict[str, str]:
    """Columns whose text may name the rows' symbols: several texts, or one in the form of a symbol."""
    may_name = {}
    for column, cell in headers.items():
        text, spelled = fields[column].str.strip_chars(), _normalize_header(cell)
        names = text.filter(text.str.contains(_CODE) | ~text.str.contains(_NO_TEXT)).str.to_uppercase().unique()
        is_symbol = names.str.contains(SYMBOL).all()
        has_names = len(names) and (len(names) > 1 or is_symbol)
        if _MAY_NAME.search(spelled) or (has_names and spelled not in _OF_A_DAY | _OF_A_MARKET):
            may_name[column] = cell
    return may_name


def _symbol_without_column(fields: pl.DataFrame, names: Mapping[str, str], file: str) -> str:
    """Symbol in the file's name, with which the columns of text must agree.

    Raises:
        UnreadableFile: with the column that does not.
    """
    for column, cell in names.items():
        text = fields[column].str.strip_chars().str.to_uppercase().drop_nulls().unique().sort()
        with contextlib.suppress(UnreadableFile):
            if text.to_list() == [symbol_of_file(file)]:
                continue
        raise UnreadableFile(
            "unknown_symbol",
            f"the header names no symbol, but column {cell!r} has texts such as {text[-1]!r}, which may be symbols; "
            "name it `symbol`, or remove it if the whole file is of the symbol in its name",
        )
    return symbol_of_file(file)


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
    odd = next(
        (cell for cell in header if known_column(cell) is None and _MAY_BE_ADJUSTED.search(_letters(cell))), None
    )
    if odd:
        raise UnreadableFile(
            "unknown_column",
            f"column {odd!r} may hold adjusted closes, which must be in a column `adj_close`; rename or remove it",
        )


def _require_one_symbol(rows: pl.DataFrame, unused: Sequence[str]) -> None:
    """Refuse different closes on more than a few dates: several symbols, in a column of unknown name.

    Raises:
        UnreadableFile: with the first such date and its lines.
    """
    text = pl.col("close").str.strip_chars()
    closes = rows.select(
        "line", pl.col("date").str.strip_chars(), close=text, number=text.cast(pl.Float64, strict=False)
    )
    closes = closes.filter(pl.col("close") != "").drop_nulls("date")
    different = closes.unique(["date", pl.coalesce(pl.col("number").cast(pl.String), "close")], maintain_order=True)
    several = different.filter(pl.len().over("date") > 1)
    if several["date"].n_unique() > _FEW_DAYS:
        first = several.filter(date=several["date"][0])
        lines = " and ".join(map(str, first["line"].head(2)))
        raise UnreadableFile(
            "several_symbols",
            f"a file without a column of symbols holds one bar per date, but lines {lines} are two different bars on "
            f"{first['date'][0]}, as on {several['date'].n_unique() - 1} more dates; name the column of the symbols "
            f"`symbol` (columns not read: {', '.join(unused)[:200] or 'none'}), or deliver one file per symbol",
        )


def _find(header: Sequence[str], known: str) -> int | None:
    spelled = [_normalize_header(cell) for cell in header]
    if known == "symbol" and "timehigh" in spelled:  # CoinMarketCap, whose `name` is the number of a currency
        return None
    return next((spelled.index(name) for name in SPELLINGS[known] if name in spelled), None)


def _normalize_header(cell: str) -> str:
    spelled = cell.strip(' <>*."').lower().replace(".", "").replace(" ", "_")
    return "adj_close" if _ADJUSTED.fullmatch(_letters(spelled)) else spelled


def _letters(cell: str) -> str:
    return re.sub("[^a-z]", "", cell.lower())


def _is_wide(header: list[list[str]]) -> bool:
    corners = [_normalize_header(row[0]) for row in header]
    return len(header) == 3 and corners[0] in WIDE_CORNERS and corners[1] in WIDE_CORNERS and corners[2] == "date"


def _wide_rows(fields: pl.DataFrame, header: list[list[str]]) -> DeliveredRows:
    """Unpivot yfinance's wide table, whose columns are (field, symbol) pairs in two header rows."""
    prices, tickers = header[0], header[1]
    if "close" not in map(_normalize_header, prices):
        prices, tickers = tickers, prices  # downloaded with group_by="ticker"
    if "close" not in map(_normalize_header, prices):
        raise UnreadableFile("unknown_header", "the wide header names no close; keep yfinance's two header rows")
    parts: list[pl.DataFrame] = []
    for symbol in dict.fromkeys(tickers[1:]):
        indices = [index for index, ticker in enumerate(tickers) if index and ticker == symbol]
        _require_single_columns([prices[index] for index in indices])
        fields_of = {known_column(prices[index]): str(index) for index in indices}
        present = {name: column for name, column in fields_of.items() if name in NUMBERS}
        if not present:
            continue
        part = fields.select("line", pl.lit(symbol).alias("symbol"), pl.col("0").alias("date"), **present)
        # An empty cell group of a wide table is no bar: the symbol was not listed.
        parts.append(with_delivered_columns(part.filter(~pl.all_horizontal(pl.col(*present).is_null()))))
    unused = dict.fromkeys(price.strip() for price in prices[1:] if known_column(price) not in NUMBERS)
    return DeliveredRows(pl.concat(parts), tuple(unused))
