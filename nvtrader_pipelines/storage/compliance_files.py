"""Compliance files that people write: risk limits, sectors, sales at a loss."""

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from nvtrader_pipelines.execution.compliance import LARGER_IS_TIGHTER, ComplianceData
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.risk_limits import TICKER
from nvtrader_pipelines.storage.documents import read_document, validate_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import has_file, require_regular_file
from nvtrader_pipelines.storage.home import Home

LIMITS, SECTORS, LOSS_SALES = "limits.yaml", "sectors.csv", "loss_sales.csv"
# Limits that block a plan; restricted names block too, and those of the desk and the spec are joined.
HARD = ("max_position", "max_short", "max_gross", "max_net", "min_net", "wash_sale_days")


def read_limits(home: Home) -> RiskLimits:
    """Read the desk's risk limits from `data/compliance/limits.yaml`, or the defaults.

    Raises:
        StorageError: if the file is not a valid set of limits, or sets `min_net`, which no pipeline can enforce.
    """
    path = home.compliance / LIMITS
    if not has_file(path):
        return RiskLimits()
    limits = validate_document(read_document(path), RiskLimits, f"{path.name} is not a valid set of limits")
    if limits.min_net > 0.0:
        raise StorageError(
            f"{path.name}: min_net must be 0 but is {limits.min_net}, because no stage of the weight pipeline raises "
            "exposure; remove min_net"
        )
    return limits


def read_compliance(home: Home) -> ComplianceData:
    """Read sectors and sales at a loss from `data/compliance`; a missing file is empty.

    Raises:
        StorageError: with file and line, if a table has other columns or a row is invalid or duplicated.
    """
    return ComplianceData(_sectors(home.compliance / SECTORS), _loss_sales(home.compliance / LOSS_SALES))


def require_not_looser(limits: RiskLimits, desk_limits: RiskLimits) -> None:
    """Raise if a spec has looser limits than those of the desk that block a plan.

    Raises:
        StorageError: with both figures of the first looser limit.
    """
    for name in HARD:
        own, desk = getattr(limits, name), getattr(desk_limits, name)
        if own < desk if name in LARGER_IS_TIGHTER else own > desk:
            raise StorageError(
                f"risk_limits.{name} is {own}, looser than the desk's {desk} (data/compliance/{LIMITS}), so compliance "
                "would block its plans; tighten the former or loosen the latter"
            )


def _sectors(path: Path) -> dict[str, str]:
    """Read the sector of each symbol; spellings that differ in case or spaces are one."""
    sectors, spellings = dict[str, str](), dict[str, str]()
    for line, (symbol, sector) in _rows(path, ("symbol", "sector")):
        if symbol in sectors:
            raise StorageError(f"{path.name}, line {line}: {symbol} already has a sector; keep one row per name")
        if not sector:
            raise StorageError(f"{path.name}, line {line}: {symbol} has no sector; name it or remove the row")
        sectors[symbol] = spellings.setdefault(" ".join(sector.casefold().split()), sector)
    return sectors


def _loss_sales(path: Path) -> tuple[tuple[str, date], ...]:
    sales: list[tuple[str, date]] = []
    for line, (symbol, day, *_) in _rows(path, ("symbol", "date"), ("note",)):
        if not TICKER.fullmatch(symbol):
            raise StorageError(
                f"{path.name}, line {line}: the symbol must be in capitals, such as BRK.B, but is {symbol!r}; with a "
                "misspelled symbol the purchase would not be blocked"
            )
        sale = symbol, _day(day, f"{path.name}, line {line}")
        if sale in sales:
            raise StorageError(f"{path.name}, line {line}: the sale of {symbol} on {day} occurs twice; remove a row")
        sales.append(sale)
    return tuple(sales)


def _day(text: str, where: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:  # Python reads 20220103 and 2022-W01-1 too
        raise StorageError(f"{where}: the date must be written YYYY-MM-DD, but is {text!r}")
    return day


def _rows(path: Path, columns: tuple[str, ...], more: tuple[str, ...] = ()) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield line number and values per row of a CSV file with `columns` and maybe `more`."""
    if not has_file(path):
        return
    require_regular_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = tuple(name.strip() for name in next(reader, []))
            if header not in {columns, columns + more}:
                allowed = ",".join(columns) + "".join(f"[,{name}]" for name in more)
                raise StorageError(f"{path.name}, line 1: the columns must be {allowed}, but are {','.join(header)}")
            for row in reader:
                values = [value.strip() for value in row]
                if values and (len(values) != len(header) or not values[0]):
                    expected = f"{len(header)} values, the first a {columns[0]}"
                    raise StorageError(f"{path.name}, line {reader.line_num}: there must be {expected}, but are {row}")
                if values:
                    yield reader.line_num, values
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StorageError(f"{path} cannot be read as a CSV file in UTF-8: {error}") from error
