"""Summary of the ingested market: counts of rows, reasons of refusals, coverage, warnings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from nvtrader_pipelines.components.text import group_by_message, name_symbols
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.basis_changes import basis_changes
from nvtrader_pipelines.market.calendar import STOCKS, Calendars
from nvtrader_pipelines.market.cleaning import CORRECTED, MAX_MOVE
from nvtrader_pipelines.market.features import LOOK_BACK
from nvtrader_pipelines.market.rules import SESSION_NOT_ENDED, parse_symbol
from nvtrader_pipelines.market.sources.delivery import SERIES as SERIES_SOURCE
from nvtrader_pipelines.market.sources.delivery import is_of_series
from nvtrader_pipelines.market.sources.file_names import SYMBOL
from nvtrader_pipelines.runs.ingestion import FILE_KEY
from nvtrader_pipelines.runs.registration import MIN_SESSIONS
from nvtrader_pipelines.runs.universes import missing_sectors
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.landing_zone import landed_files
from nvtrader_pipelines.storage.panels import panel_problem, read_calendars
from nvtrader_pipelines.storage.specs import read_market
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, MARKET_PANEL, QUARANTINE, SERIES

MAX_REFUSED_SHARE = 0.05  # of a symbol's rows, above which it is a warning
_NAME = ["source", "symbol"]
_IS_REPEATED = pl.col("rule") == "duplicate"
_COUNTS = ("n_kept", "n_refused", "n_repeated")
_SPLIT_RATIOS = (1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_SPLIT_TOLERANCE = 0.02  # relative


@dataclass(frozen=True)
class MarketSummary:
    """Counts of the landed rows; each row is kept, refused, or repeats another."""

    # source, file, n_symbols, n_rows, n_kept, n_refused, n_repeated, reason (of a whole file), guessed_symbol,
    # unused_columns
    files: pl.DataFrame
    symbols: pl.DataFrame  # source, symbol, first, last, n_kept, n_missing, n_refused, refused_share, coverage by year
    reasons: pl.DataFrame  # rule, n_rows, reason, file, line and value of the first; the most frequent first
    first_year: int | None  # of the coverage
    warnings: tuple[str, ...]
    notes: tuple[str, ...]  # guessed symbols, columns that are not read, usable sessions, missing sectors


def summarize_market(store: Store) -> MarketSummary:
    """Summarize the clean bars and the quarantine of a home."""
    tables = store.tables
    kept = tables.read(CLEAN_BARS, columns=[*_NAME, "session", "year", "file", "adj_close", "volume"])
    quarantine = tables.read(QUARANTINE).with_columns(parse_symbol())
    rows = quarantine.filter(pl.col("line") > 0)
    series = tables.read(SERIES, columns=["symbol", "file"]).with_columns(source=pl.lit(SERIES_SOURCE))
    used = pl.concat([kept.select(*FILE_KEY, "symbol"), series.select(*FILE_KEY, "symbol")])
    files = _count_files(tables.read(DELIVERIES), used, rows)
    calendars = read_calendars(tables)
    symbols, reasons = _count_symbols(kept, rows, calendars), _count_reasons(quarantine)
    first_year = kept["year"].min()
    refused = files.drop_nulls("reason").select("file", "reason")
    changes = read_basis_changes(tables)
    on_one_basis = kept.join(changes, on=_NAME, how="anti")
    return MarketSummary(
        files=files,
        symbols=symbols,
        reasons=reasons,
        first_year=first_year if isinstance(first_year, int) else None,
        warnings=(
            *_unread_warnings(store),
            *_panel_warnings(store, kept),
            *(f"{file} was refused: {reason}" for file, reason in refused.rows()),
            *_basis_warnings(changes),
            *_correction_warnings(on_one_basis, rows),
            *_symbol_warnings(symbols, rows),
            *_split_warnings(on_one_basis, calendars),
        ),
        notes=(*_notes(files), *_panel_notes(store)),
    )


def read_panel_rows(store: Store) -> pl.DataFrame:
    """Read source, sessions, number of symbols and digest of each panel, and `count`, its refused rows."""
    names = ("source", "first_session", "last_session", "n_sessions", "n_symbols", "digest", "built_at")
    refused = store.tables.read(QUARANTINE, columns=["source"])["source"].value_counts()
    return store.tables.read(MARKET_PANEL, columns=names).join(refused, on="source", how="left").sort("source")


def read_basis_changes(tables: Warehouse) -> pl.DataFrame:
    """Find deliveries that leave older bars of a symbol on another basis, as `basis_changes`."""
    repeated = tables.read(QUARANTINE).filter(_IS_REPEATED)
    corrected = repeated.filter(pl.col("reason") == CORRECTED)
    repeated = repeated.join(corrected, on=_NAME, how="semi")
    bars = tables.read(BARS, {"file": repeated["file"].unique().to_list()})
    return basis_changes(bars, repeated, tables.read(CLEAN_BARS), read_calendars(tables))


def _count_files(deliveries: pl.DataFrame, kept: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    symbols = pl.concat([kept.select(*FILE_KEY, "symbol"), _rows_with_symbol(rows).select(*FILE_KEY, "symbol")])
    counts = symbols.filter(pl.col("symbol") != "").group_by(FILE_KEY).agg(n_symbols=pl.col("symbol").n_unique())
    read = ["guessed_symbol", "unused_columns"]
    joined = deliveries.select(*FILE_KEY, "n_rows", "reason", *read).join(counts, on=FILE_KEY, how="left")
    joined = _with_counts(joined, kept, rows, FILE_KEY)
    columns = [*FILE_KEY, "n_symbols", "n_rows", *_COUNTS, "reason", *read]
    joined = joined.with_columns(pl.col("unused_columns").fill_null([]))  # of files ingested before it was recorded
    return joined.with_columns(pl.col("n_symbols").fill_null(0)).select(columns).sort(FILE_KEY)


def _count_symbols(kept: pl.DataFrame, rows: pl.DataFrame, calendars: Calendars) -> pl.DataFrame:
    """Count rows, missing sessions and the share of sessions with a bar per symbol and year."""
    spans = kept.group_by(_NAME).agg(first=pl.col("session").min(), last=pl.col("session").max())
    names = pl.concat([kept.select(_NAME), _rows_with_symbol(rows).select(_NAME)]).unique()
    counted = _with_counts(names.join(spans, on=_NAME, how="left"), kept, rows, _NAME)
    days = _sessions(kept, calendars)
    for edge in ("first", "last"):
        named = days.rename({"session": edge, "number": f"{edge}_number"})
        counted = counted.join(named, on=["source", edge], how="left")
    judged = pl.col("n_kept") + pl.col("n_refused")
    result = counted.with_columns(
        n_missing=(pl.col("last_number") - pl.col("first_number") + 1).fill_null(0) - pl.col("n_kept"),
        refused_share=(pl.col("n_refused") / judged).fill_nan(0.0),
    ).join(_coverage(kept, days), on=_NAME, how="left")
    columns = [*_NAME, "first", "last", "n_kept", "n_missing", "n_refused", "refused_share", "coverage"]
    return result.select(columns).sort("refused_share", *_NAME, descending=[True, False, False])


def _sessions(kept: pl.DataFrame, calendars: Calendars) -> pl.DataFrame:
    """Sessions of every source from the first to the last bar of all: source, session, number."""
    parts = [pl.DataFrame(schema={"source": pl.String, "session": pl.Date, "number": pl.Int64})]
    ends = kept["session"].to_numpy()
    for source in kept["source"].unique():
        days = calendars.of(source).sessions(ends.min(), ends.max())
        part = pl.DataFrame({"source": source, "session": days}).with_columns(pl.col("session").cast(pl.Date))
        parts.append(part.with_columns(number=pl.int_range(pl.len())))
    return pl.concat(parts)


def _coverage(kept: pl.DataFrame, days: pl.DataFrame) -> pl.DataFrame:
    """Share of sessions with a bar per year, for the same years of all symbols."""
    per_year = days.group_by("source", pl.col("session").dt.year().alias("year")).len("n_sessions")
    grid = kept.select(_NAME).unique().join(per_year, on="source")
    counts = kept.group_by(*_NAME, "year").len("n_bars")
    shares = grid.join(counts, on=[*_NAME, "year"], how="left").sort("year")
    share = pl.col("n_bars").fill_null(0) / pl.col("n_sessions")
    return shares.group_by(_NAME).agg(coverage=share)


def _count_reasons(quarantine: pl.DataFrame) -> pl.DataFrame:
    first = (pl.col(name).first() for name in ("reason", "file", "line", "value"))
    grouped = quarantine.group_by("rule", maintain_order=True).agg(pl.len().alias("n_rows"), *first)
    return grouped.sort("n_rows", descending=True, maintain_order=True)


def _with_counts(frame: pl.DataFrame, kept: pl.DataFrame, rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Add `n_kept`, `n_refused` and `n_repeated` per key."""
    parts = (kept, rows.filter(~_IS_REPEATED), rows.filter(_IS_REPEATED))
    for name, part in zip(_COUNTS, parts, strict=True):
        frame = frame.join(part.group_by(key).len(name), on=key, how="left")
    return frame.with_columns(pl.col(_COUNTS).fill_null(0).cast(pl.Int64))


def _rows_with_symbol(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a valid symbol; a broken line has its whole text in that column."""
    return rows.filter(pl.col("symbol").str.contains(SYMBOL))


def _correction_warnings(kept: pl.DataFrame, rows: pl.DataFrame) -> Iterator[str]:
    """Sentence per symbol with many bars that a file of another name replaced: it may be of another symbol."""
    corrected = (
        _rows_with_symbol(rows).filter(pl.col("reason") == CORRECTED).group_by(*_NAME, "file").len("n_corrected")
    )
    corrections = corrected.join(kept.group_by(*_NAME, pl.col("file").alias("by")).len("n_kept"), on=_NAME)
    many = corrections.filter(
        (pl.col("file") != pl.col("by")) & (pl.col("n_corrected") > MAX_REFUSED_SHARE * pl.col("n_kept"))
    )
    for row in (
        many.sort(*_NAME, "file", "by").unique([*_NAME, "file"], keep="first", maintain_order=True).rows(named=True)
    ):
        yield (
            f"{row['symbol']}: {row['by']} replaced {row['n_corrected']:,} rows of {row['file']}, which has other "
            "values for the same dates; if one of the files is of another symbol, add a column `symbol`, or name each "
            "file after its symbol, such as AAPL.csv"
        )


def _notes(files: pl.DataFrame) -> Iterator[str]:
    """Sentence on the symbols that no row confirms, and one per set of columns that are not read."""
    guessed = files.drop_nulls("guessed_symbol")
    if len(guessed):
        yield (
            f"{name_symbols(guessed['guessed_symbol'].to_list())}: guessed from the name of the file, such as "
            f"{guessed['file'][0]}, since no row names a symbol; a column `symbol` would confirm it"
        )
    unused = files.filter(pl.col("unused_columns").list.len() > 0)
    for columns, names in unused.group_by("unused_columns", maintain_order=True).agg("file").rows():
        shown = ", ".join(column or "(unnamed)" for column in columns)
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"columns that are not read: {shown} (in {names[0]}{more})"


def _panel_notes(store: Store) -> Iterator[str]:
    """Sentence per panel on its usable sessions, and one on symbols without a sector."""
    columns = ("source", "symbols", "first_session", "last_session", "n_sessions")
    panels = store.tables.read(MARKET_PANEL, columns=columns).sort("source")
    for source, _, first, last, n_sessions in panels.rows():
        usable = (
            f"{source}: the first usable session is {first}, since {LOOK_BACK} sessions before it feed the features"
        )
        if n_sessions < MIN_SESSIONS:
            yield f"{usable}; {n_sessions} to {last} are too few for an experiment, which needs {MIN_SESSIONS}"
        else:
            command = f"`nvtrader experiments new NAME --source {source}`"
            yield f"{usable}; {n_sessions:,} to {last} train and test, and {command} fits an experiment to them"
    try:
        sentence = missing_sectors(store.home, sorted({name for names in panels["symbols"] for name in names}))
    except StorageError as error:
        sentence = str(error)
    if sentence:
        yield sentence


def _unread_warnings(store: Store) -> Iterator[str]:
    """Sentence on landed files that no source reads."""
    landed, market = landed_files(store.home), read_market(store.home)
    delivered = {delivery.file for delivery in market.deliveries(landed) if delivery.source in market.landing_names}
    unread = [file.name for file in landed if file.name not in delivered and not is_of_series(file.name)]
    if unread:
        yield (
            f"no source of data/market.yaml reads {name_symbols(unread)}: add a landing source named after the folder, "
            "or `kind: landing` for files in data/landing itself"
        )


def _basis_warnings(changes: pl.DataFrame) -> Iterator[str]:
    """Sentence per later file whose adjusted closes are on another basis than older bars of the symbol."""
    for row in changes.rows(named=True):
        yield (
            f"{row['symbol']}: {row['by']} changes the adjusted closes of {row['file']} from {row['first']} on by a "
            f"factor of {row['factor']:.4g}, as after a split, and lacks {row['n_older']:,} older bars, which stay on "
            "the old basis; deliver the whole history again"
        )


def _symbol_warnings(symbols: pl.DataFrame, rows: pl.DataFrame) -> Iterator[str]:
    """Sentence on symbols with too many refused rows, one for those with equal counts and rule."""
    refused = _rows_with_symbol(rows).filter(~_IS_REPEATED)
    symbols_by_move: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for row in symbols.filter(pl.col("refused_share") > MAX_REFUSED_SHARE).rows(named=True):
        own = refused.filter(source=row["source"], symbol=row["symbol"])
        rule = own["rule"].value_counts(sort=True)["rule"][0]
        if rule == SESSION_NOT_ENDED:
            continue
        counts = row["n_refused"], row["n_kept"] + row["n_refused"]
        symbols_by_move.setdefault((*counts, rule), []).append(own.filter(rule=rule).row(0, named=True))
    for (n_refused, n_rows, rule), own in symbols_by_move.items():
        yield (
            f"{name_symbols([row['symbol'] for row in own])}: {n_refused:,} of {n_rows:,} rows were refused "
            f"({n_refused / n_rows:.0%}, more than {MAX_REFUSED_SHARE:.0%}), most of them by {rule}, first "
            f"{own[0]['file']}, line {own[0]['line']}: {own[0]['reason']}"
        )


def _split_warnings(kept: pl.DataFrame, calendars: Calendars) -> Iterator[str]:
    """Sentence per stock whose adjusted close moved as a split that is not adjusted does.

    Such a move is large and with volume, or has a usual ratio from the last bar of a file to the first of another.
    """
    of_stocks = [source for source in kept["source"].unique() if calendars.of(source).asset_type == STOCKS]
    bars = kept.filter(pl.col("source").is_in(of_stocks)).join(_sessions(kept, calendars), on=["source", "session"])
    bars = bars.sort(*_NAME, "session").with_columns(
        factor=(pl.col("adj_close") / pl.col("adj_close").shift()).over(_NAME),
        before=pl.col("file").shift().over(_NAME),
        span=pl.col("number").diff().over(_NAME),
    )
    is_split = pl.any_horizontal(
        (pl.col("factor") / ratio - 1.0).abs() <= _SPLIT_TOLERANCE
        for usual in _SPLIT_RATIOS
        for ratio in (usual, 1.0 / usual)
    )
    at_seam = (pl.col("file") != pl.col("before")) & (pl.col("span") == 1) & is_split
    is_traded_move = ((pl.col("factor") - 1.0).abs() > MAX_MOVE) & (pl.col("volume") > 0.0)
    moves = bars.with_columns(at_seam=at_seam).filter(is_traded_move | pl.col("at_seam"))
    first = moves.group_by(_NAME, maintain_order=True).agg(
        pl.col("session", "factor", "at_seam", "before", "file").first(), n=pl.len()
    )
    for row in first.rows(named=True):
        more = f" (the first of {row['n']} such moves)" if row["n"] > 1 else ""
        cause = f"from {row['before']} to {row['file']}" if row["at_seam"] else "with volume"
        yield (
            f"{row['symbol']}: the adjusted close moved by a factor of {row['factor']:.3g} on {row['session']}{more}, "
            f"{cause}; if that is a split, deliver closes that are adjusted for it, in a column `adj_close`; the bars "
            "stay as they are"
        )


def _panel_warnings(store: Store, kept: pl.DataFrame) -> Iterator[str]:
    """Sentences on sources with bars and without a panel, and on symbols that are left out of theirs."""
    panels = dict(store.tables.read(MARKET_PANEL, columns=["source", "symbols"]).rows())
    for source, symbols in kept.group_by("source").agg(pl.col("symbol").unique()).sort("source").rows():
        if source not in panels:
            yield f"{source} has no panel as a whole: {panel_problem(store.tables, source)}"
        elif len(symbols) > len(panels[source]):
            yield from group_by_message(store.panels.read(MarketChoice(source=source)).left_out.items())
