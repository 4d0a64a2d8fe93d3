"""Weights from files: a table of dated rows checked against a panel, and the policy that trades to it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from nvtrader_pipelines.components.arrays import LabelError, labels_of, without_labels
from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.cash import CASH, ROUNDING, cash_beside

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Days = NDArray[np.datetime64]

DATE = "date"
DAY = re.compile(r"\d{4}-\d\d-\d\d")
SINGLE_ROUNDING = 1e-6  # tolerance of a sum of weights of type float32


@dataclass(frozen=True, eq=False)
class WeightsTable:
    """Dated rows of weights, as a person wrote them."""

    days: Days  # (D,) of the decisions
    symbols: tuple[str, ...]  # of the columns, cash last if there is such a column
    weights: FloatArray  # (D, len(symbols))
    sha256: str = ""  # of the source file

    @classmethod
    def from_frame(cls, rows: pl.DataFrame, sha256: str = "") -> Self:
        """Parse columns `date`, one per symbol and optionally `cash`; empty rows are skipped.

        Raises:
            ValueError: if there are no rows, dates or symbols, or a cell is empty or not a number.
        """
        symbols = [name for name in rows.columns if name not in {DATE, CASH}]
        rows = rows.filter(~pl.all_horizontal(pl.all().is_null())) if rows.width else rows
        if DATE not in rows.columns or not symbols or rows.is_empty():
            has = "one" if DATE in rows.columns else "none"  # no column names: the file may be a private one
            raise ValueError(
                f"weights need a column {DATE!r}, a column per symbol and at least one row, but the file has "
                f"{len(rows)} rows and {rows.width} columns, {has} of them {DATE!r}; export the weights again"
            )
        days = rows[DATE]
        if days.dtype != pl.Date:
            days = days.cast(pl.String).str.to_date("%Y-%m-%d", strict=False)
        _require_cells(days, rows[DATE], "a date such as 2001-01-31")
        ordered = [*symbols, *([CASH] if CASH in rows.columns else [])]
        kind = pl.Float32 if pl.Float32 in rows.dtypes else pl.Float64
        columns = [rows[name].cast(kind, strict=False) for name in ordered]
        for column in columns:
            _require_cells(column, rows[column.name], "a number")
        weights = np.column_stack([column.to_numpy() for column in columns])
        return cls(days.to_numpy().astype("datetime64[D]"), tuple(ordered), weights, sha256)

    def decisions(self, panel: MarketPanel, gross_limit: float = 1.0) -> tuple[Days, FloatArray]:
        """Days (D,) of decisions and their target weights (D, N+1), in the panel's order with cash last.

        Raises:
            ValueError: if a day or symbol is not in the panel, or a row is not a portfolio within the gross limit.
        """
        decided_at, target = align_weights(panel, self.weights, self.days, self.symbols, gross_limit)
        return panel.sessions[decided_at], target


class WeightsPolicy:
    """Policy that trades to each row of a weights table on its day, and does not trade in between."""

    def __init__(self, days: Days, target: FloatArray) -> None:
        self._days, self._target = days, without_labels(target, "a target")
        self._row = -1  # the last row traded to

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """Return the weights of the last row at or before session `t`, once; then no trade.

        Raises:
            ValueError: if the first row is after `t`.
        """
        row = int(np.searchsorted(self._days, panel.sessions[t], side="right")) - 1
        if row < 0:
            raise ValueError(
                f"weights must start at or before the first decision, on {panel.sessions[t]}, but start on "
                f"{self._days[0]}; add a row, of zeros to start in cash"
            )
        if row == self._row:
            return Decision(target=None)
        self._row = row
        return Decision(target=self._target[row])


def _require_cells(column: pl.Series, raw: pl.Series, what: str) -> None:
    missing = column.is_null().arg_true()
    if len(missing):
        row = int(missing[0])
        raise ValueError(
            f"column {column.name!r} of weights must hold {what} in every row, but row {row + 1} is "
            f"{'empty' if raw[row] is None else repr(raw[row])}; write 0 for a name without a weight"
        )


def align_weights(
    panel: MarketPanel,
    weights: ArrayLike,
    sessions: ArrayLike | None,
    symbols: Sequence[str] | None,
    gross_limit: float,
) -> tuple[IntArray, FloatArray]:
    """Align weights with a panel: decision sessions (D,), ascending, and targets (D, N+1), cash last.

    Args:
        panel: the market.
        weights: a row per session of the panel, or per entry of `sessions`; a column per name, and optionally cash
            last, by default 1 less the sum of the names. A pandas or polars frame names its columns, and its days by
            the index or a column `date`.
        sessions: (D,) days of the decisions, ascending; None: those of the frame, or every session of the panel.
        symbols: names of the columns, optionally with "cash"; None: those of the frame, or the panel's in its order.
        gross_limit: maximum of the sum of absolute weights of names.

    Raises:
        ValueError: if shapes, sessions or symbols do not fit the panel or the frame, a weight is not finite, a row with
            cash does not sum to 1, or a row exceeds the gross limit; sums of float32 are scaled back if within 1e-6.
    """
    kinds = getattr(weights, "dtypes", None)  # of a frame's columns
    is_single = "float32" in str(np.asarray(weights).dtype if kinds is None else kinds).lower()
    table, days, names = _by_labels(weights, sessions, symbols)
    decided_at, rows = _align_sessions(panel, np.asarray(table, dtype=np.float64), days)
    target = _align_columns(panel, rows, names)
    _require_portfolios(panel, decided_at, target, gross_limit, SINGLE_ROUNDING if is_single else ROUNDING)
    if is_single:
        gross = np.abs(target[:, :-1]).sum(axis=1, keepdims=True)
        target[:, :-1] *= gross_limit / np.maximum(gross, gross_limit)
        target[:, -1] = cash_beside(target[:, :-1])
    return decided_at, target


def _by_labels(
    weights: Any, sessions: ArrayLike | None, symbols: Sequence[str] | None
) -> tuple[Any, Days | None, Sequence[str] | None]:
    """Rows of weights, and the days and symbols that the caller or the labels of a frame give."""
    labels, names = labels_of(weights, 0), labels_of(weights, 1)
    if names and DATE in names:
        labels, names = list(weights[DATE]), [name for name in names if name != DATE]
        weights = weights[[name for name in weights.columns if name != DATE]]
    if names and symbols is not None and names != list(symbols):
        raise LabelError(
            f"`symbols` must be the columns of the frame of weights, but begin with {', '.join(symbols[:3])} where "
            f"these begin with {', '.join(names[:3])}; pass the frame alone"
        )
    days = None if labels is None else _days(labels, "the index of weights, or their column `date`,")
    wanted = days if sessions is None else _days(sessions, "`sessions`")
    if days is not None and wanted is not None:
        is_wanted = np.isin(days, wanted)
        if not np.array_equal(days[is_wanted], wanted):
            raise LabelError(
                f"`sessions` must be days of the frame of weights in its order, but {is_wanted.sum()} of its "
                f"{len(days)} rows match the {len(wanted)} sessions; pass the frame alone"
            )
        weights = np.asarray(weights)[is_wanted]
    return weights, wanted, names or symbols


def _days(values: Any, what: str) -> Days:
    """Days (D,) as written, so that no time zone moves them."""
    texts = [str(value)[:10] for value in values]
    wrong = [text for text in texts if not DAY.fullmatch(text)]
    if wrong:
        raise LabelError(f"{what} must hold days such as 2001-01-31, but {wrong[0]!r} is none; give a row per day")
    return np.array(texts, dtype="datetime64[D]")


def _align_sessions(panel: MarketPanel, weights: FloatArray, sessions: Days | None) -> tuple[IntArray, FloatArray]:
    """Decision sessions, ascending, and the row of weights of each."""
    if weights.ndim != 2:
        raise ValueError(f"weights must have two axes, (session, name), but their shape is {weights.shape}")
    at, rows = np.arange(len(panel.sessions)), weights
    if sessions is not None:
        at = _session_positions(panel, sessions)
        rows = weights[at] if len(weights) == len(panel.sessions) else weights
    if len(rows) != len(at):
        raise ValueError(f"weights need {len(at)} rows, one per session of a decision, but have {len(rows)}")
    return at, rows


def _session_positions(panel: MarketPanel, sessions: Days) -> IntArray:
    at = np.minimum(np.searchsorted(panel.sessions, sessions), len(panel.sessions) - 1).astype(np.int64)
    unknown = np.flatnonzero(panel.sessions[at] != sessions)
    if len(unknown):
        raise ValueError(
            f"days of decisions must be sessions of the panel, but {len(unknown)} of {len(sessions)} are not, first "
            f"{sessions[unknown[0]]}; choose among its {len(panel.sessions)} sessions from {panel.sessions[0]} to "
            f"{panel.sessions[-1]}"
        )
    backward = np.flatnonzero(np.diff(at) <= 0)
    if len(backward):
        i = int(backward[0])
        raise ValueError(
            f"days of decisions must ascend, but number {i + 1}, {sessions[i + 1]}, follows {sessions[i]}; "
            "sort the rows, one per day"
        )
    return at


def _align_columns(panel: MarketPanel, rows: FloatArray, symbols: Sequence[str] | None) -> FloatArray:
    """Target weights (D, N+1) in the panel's order, cash last."""
    n_symbols = len(panel.symbols)
    if symbols is None and rows.shape[1] not in {n_symbols, n_symbols + 1}:
        raise ValueError(f"weights need {n_symbols} columns, or {n_symbols + 1} with cash, but have {rows.shape[1]}")
    names = [*panel.symbols, CASH][: rows.shape[1]] if symbols is None else list(symbols)
    columns = _symbol_positions(panel, names)
    if len(names) != rows.shape[1]:
        raise ValueError(f"`symbols` must name {rows.shape[1]} columns of weights, but names {len(names)}")
    target = np.zeros((len(rows), n_symbols + 1))
    target[:, columns] = rows
    if CASH not in names:
        target[:, -1] = cash_beside(rows)
    return target


def _symbol_positions(panel: MarketPanel, names: Sequence[str]) -> list[int]:
    known = (*panel.symbols, CASH)
    unknown = sorted(set(names) - set(known))
    if unknown or len(set(names)) < len(names):
        problem = f"{', '.join(unknown)}, not in the panel" if unknown else "duplicate names"
        near = suggest(unknown[0], panel.symbols) if unknown else ""
        raise ValueError(
            f"columns of weights must be distinct names of the panel, but {len(names)} columns have {problem}; the "
            f"panel of {panel.source!r} has: {', '.join(panel.symbols)}{near}"
        )
    return [known.index(name) for name in names]


def _require_portfolios(
    panel: MarketPanel, decided_at: IntArray, target: FloatArray, gross_limit: float, tolerance: float
) -> None:
    if not np.isfinite(target).all():
        row, column = np.argwhere(~np.isfinite(target))[0]
        raise ValueError(
            f"weights must be finite numbers, but {[*panel.symbols, CASH][column]} has {target[row, column]} on "
            f"{panel.sessions[decided_at[row]]}; write 0 for a name without a weight"
        )
    total, gross = target.sum(axis=1), np.abs(target[:, :-1]).sum(axis=1)
    unequal = np.flatnonzero(np.abs(total - 1.0) > tolerance)
    if len(unequal):
        row = unequal[0]
        raise ValueError(
            f"weights with cash must sum to 1, but {len(unequal)} of {len(target)} rows do not, first "
            f"{_format_sum(total[row], 1.0)} on {panel.sessions[decided_at[row]]}; omit the column of cash to "
            "have it computed"
        )
    above = np.flatnonzero(gross > gross_limit + tolerance)
    if len(above):
        row = above[0]
        raise ValueError(
            f"absolute weights of names must sum to at most the gross limit {gross_limit:g}, but {len(above)} of "
            f"{len(target)} rows sum to more, first {_format_sum(gross[row], gross_limit)} on "
            f"{panel.sessions[decided_at[row]]}; "
            "scale them down or raise gross_limit"
        )


def _format_sum(total: float, bound: float) -> str:
    """Format a sum, as the bound and the excess if fewer digits hide it."""
    text, excess = f"{total:.6g}", total - bound
    return text if text != f"{bound:.6g}" else f"{text} {'-' if excess < 0.0 else '+'} {abs(excess):.2g}"
