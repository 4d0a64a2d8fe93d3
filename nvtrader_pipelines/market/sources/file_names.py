"""Symbols in the names of files, and the form of a symbol."""

import re
from pathlib import PurePath

from nvtrader_pipelines.market.sources.delivery import UnreadableFile

SYMBOL = r"^[A-Z0-9^][A-Z0-9.\-=^]{0,19}$"
_QUOTES = (  # currencies that pairs are quoted in
    "AED|AUD|BRL|CAD|CHF|CLP|CNH|CNY|COP|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PEN|PHP|PLN|RON|"
    "RUB|SAR|SEK|SGD|THB|TRY|TWD|USD|ZAR|BTC|ETH|USDC|USDT"
)
PAIR = rf"([A-Z0-9]{{2,10}})[/_]({_QUOTES})"
_NO_SYMBOLS = frozenset(  # words in names of downloads
    {"BARS", "BOOK", "CANDLES", "COINS", "CRYPTO", "DAILY", "DATA", "DOWNLOAD", "EOD", "EXPORT", "FILE", "HISTORICAL"}
    | {"HISTORICALDATA", "HISTORY", "MARKET", "OHLC", "OHLCV", "OUTPUT", "PORTFOLIO", "PRICE", "PRICES", "QUOTE"}
    | {"ADJUSTED", "BACKTEST", "CLOSE", "CLOSES", "COMBINED", "COMPANIES", "DATASET", "HISTORICALQUOTES", "MERGED"}
    | {"RESULTS", "RETURNS", "SAMPLE", "UNIVERSE"}
    | {"QUOTES", "SHEET", "STOCK", "STOCKS", "SYMBOLS", "TABLE", "TEST", "TICKERS", "TRAIN", "UNTITLED"}
)
_PREFIXES = frozenset({"BINANCE", "BITSTAMP", "COIN", "COINBASE", "FX", "KRAKEN", "NASDAQ", "NYSE", "OANDA", "TVC"})
# Parts that add no word: copies, dates, intervals, Stooq's market and interval, adjustment, investing.com's ending.
_ADDED = (
    r"(?: ?\(\d+\)|[_ ](?:[\d.-]+|D|\d+[A-Z]{1,3}|[A-Z]{2}_D|ADJ|DAILY|EOD|OHLCV?"
    r"|HISTORICAL[_ ]DATA(?:_COINMARKETCAP)?))*"
)
_FORMS = (
    # TradingView's NASDAQ_AAPL, 1D; FX_IDC_EURUSD, 1D; CBOE_DLY_SPX, 1D
    rf"(?:FX_IDC|[A-Z0-9]+?(?:_(?:DLY|DL|EOD|MINI))?)_(?P<symbol>[^_ ,]+), ?\d*[A-Z]+(?:_[0-9A-F]{{5}})?{_ADDED}",
    rf"DAILY_(?:ADJUSTED_)?(?P<symbol>[^_ ,]+){_ADDED}",  # Alpha Vantage's daily_adjusted_IBM
    r"(?P<symbol>[^_ ,]+?)-1D-\d{4}-\d{2}(?:-\d{2})?",  # Binance's BTCUSDT-1d-2021-01
    r"(?P<symbol>[^_ ,]+?)-MAX",  # CoinGecko's btc-usd-max
    rf"(?P<symbol>{PAIR}|[^_ ,(]+){_ADDED}",
)
_DATE = r"\d{4}-\d{2}(?:-\d{2})?|(?:19|20)\d{6}"


def symbol_of_file(file: str) -> str:
    """Symbol in a file's name, in capitals; `EUR_USD.csv` is `EURUSD`, `NASDAQ_AAPL, 1D.csv` is `AAPL`.

    Raises:
        UnreadableFile: if the name has several words, or one such as `data`.
    """
    stem = PurePath(file).stem.upper()
    symbol = next((found["symbol"] for form in _FORMS if (found := re.fullmatch(form, stem))), "")
    words = [re.sub(r"\d+$", "", word) for word in re.split("[-_]", symbol)]
    joined = re.sub(f"^{PAIR}$", r"\1\2", symbol)
    is_prefixed = len(words) > 1 and words[0] in _PREFIXES
    if is_prefixed or _NO_SYMBOLS & set(words) or re.fullmatch(_DATE, symbol) or not re.match(SYMBOL, joined):
        raise UnreadableFile(
            "unknown_symbol",
            f"the header names no symbol, and the file's name {PurePath(file).name!r} is not that of one symbol; "
            "add a column `symbol`, or name the file after its symbol, such as AAPL.csv",
        )
    return joined
