"""What compliance holds plans against, as files that people keep: limits, sectors, sales at a loss."""

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from nvtrader_pipelines.components.explanation import explain
from nvtrader_pipelines.execution.compliance import LARGER_IS_TIGHTER, ComplianceData
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.risk_limits import TICKER
from nvtrader_pipelines.storage.documents import read_document
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.files import is_given
from nvtrader_pipelines.storage.home import Home

LIMITS, SECTORS, LOSS_SALES = "limits.yaml", "sectors.csv", "loss_sales.csv"
HARD = (
    "max_position",
    "max_gross",
    "max_net",
    "wash_sale_days",
)  # numbers of the limits that block; restricted names are those of both


def read_limits(home: Home) -> RiskLimits:
    """The desk's own limits of `data/compliance/limits.yaml`; the defaults where there is no such file.

    Raises:
        StorageError: if the file is no valid set of limits, or asks for a least net exposure, which no pipeline keeps.
    """
    path = home.compliance / LIMITS
    if not is_given(path):
        return RiskLimits()
    try:
        limits = RiskLimits.model_validate(read_document(path))
    except ValidationError as error:
        raise StorageError(f"{path.name} is no valid set of limits: {explain(error, RiskLimits)}") from error
    if limits.min_net > 0.0:
        raise StorageError(
            f"{path.name}: min_net must be 0 but is {limits.min_net}: no stage of a pipeline raises an exposure, and "
            "what a policy or a timing leaves in cash stays there"
        )
    return limits


def read_compliance(home: Home) -> ComplianceData:
    """Sectors and sales at a loss of `data/compliance`; a table that is not there is empty.

    Raises:
        StorageError: if a table has other columns, a row is not what it must be, or is there twice, by file and line.
    """
    return ComplianceData(_sectors(home.compliance / SECTORS), _loss_sales(home.compliance / LOSS_SALES))


def require_no_looser(limits: RiskLimits, desk: RiskLimits) -> None:
    """Check a spec's limits against those of the desk that block a plan.

    Raises:
        StorageError: if one is looser, naming both numbers.
    """
    for name in HARD:
        own, desks = getattr(limits, name), getattr(desk, name)
        if own < desks if name in LARGER_IS_TIGHTER else own > desks:
            raise StorageError(
                f"risk_limits.{name} is {own}, looser than the {desks} of the desk (data/compliance/{LIMITS}), by "
                "which compliance blocks plans; tighten the one or change the other"
            )


def _sectors(path: Path) -> dict[str, str]:
    """Sector by symbol; one that is written in several ways is one, as it is written first."""
    sectors, written = dict[str, str](), dict[str, str]()
    for line, (symbol, sector) in _rows(path, ("symbol", "sector")):
        if symbol in sectors:
            raise StorageError(f"{path.name}, line {line}: {symbol} has a sector already; keep one row for each name")
        if not sector:
            raise StorageError(f"{path.name}, line {line}: {symbol} has no sector; name it or remove the row")
        sectors[symbol] = written.setdefault(" ".join(sector.casefold().split()), sector)
    return sectors


def _loss_sales(path: Path) -> tuple[tuple[str, date], ...]:
    sales: list[tuple[str, date]] = []
    for line, (symbol, day, *_) in _rows(path, ("symbol", "date"), ("note",)):
        if not TICKER.fullmatch(symbol):
            raise StorageError(
                f"{path.name}, line {line}: the symbol must be in capitals, as BRK.B, but is {symbol!r}; a name that "
                "the market does not have would not be kept from being bought"
            )
        sale = symbol, _day(day, f"{path.name}, line {line}")
        if sale in sales:
            raise StorageError(f"{path.name}, line {line}: the sale of {symbol} on {day} is there already; remove one")
        sales.append(sale)
    return tuple(sales)


def _day(text: str, where: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:  # Python reads 20220103 and 2022-W01-1 too
        raise StorageError(f"{where}: date must be a day as YYYY-MM-DD, but is {text!r}")
    return day


def _rows(path: Path, columns: tuple[str, ...], more: tuple[str, ...] = ()) -> Iterator[tuple[int, Sequence[str]]]:
    """Line and values of every row of a table with those columns, and perhaps `more`; none where it is not there."""
    if not is_given(path):
        return
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
                    wanted = f"{len(header)} values, the first a {columns[0]}"
                    raise StorageError(f"{path.name}, line {reader.line_num}: there must be {wanted}, but are {row}")
                if values:
                    yield reader.line_num, values
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StorageError(f"{path} cannot be read as a CSV file in UTF-8: {error}") from error
