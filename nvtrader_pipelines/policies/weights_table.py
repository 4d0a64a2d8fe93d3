"""Weights from files: a table of dated rows checked against a panel, and the policy that trades to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.explanation import suggest
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.cash import CASH, ROUNDING, cash_beside

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Days = NDArray[np.datetime64]

DATE = "date"


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
        columns = [rows[name].cast(pl.Float64, strict=False) for name in ordered]
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
        self._days, self._target = days, target
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
    panel: MarketPanel, weights: FloatArray, sessions: Days | None, symbols: Sequence[str] | None, gross_limit: float
) -> tuple[IntArray, FloatArray]:
    """Align weights with a panel: decision sessions (D,), ascending, and targets (D, N+1), cash last.

    Args:
        panel: the market.
        weights: a row per session of the panel, or per entry of `sessions`; a column per name, and optionally cash
            last, by default 1 less the sum of the names.
        sessions: (D,) days of the decisions, ascending; None: every session of the panel.
        symbols: names of the columns, optionally "cash" last; None: the panel's names in its order.
        gross_limit: maximum of the sum of absolute weights of names.

    Raises:
        ValueError: if shapes, sessions or symbols do not fit the panel, a weight is not finite, a row with cash does
            not sum to 1, or a row exceeds the gross limit.
    """
    decided_at, rows = _align_sessions(panel, np.asarray(weights, dtype=np.float64), sessions)
    target = _align_columns(panel, rows, symbols)
    _require_portfolios(panel, decided_at, target, gross_limit)
    return decided_at, target


def _align_sessions(panel: MarketPanel, weights: FloatArray, sessions: Days | None) -> tuple[IntArray, FloatArray]:
    """Decision sessions, ascending, and the row of weights of each."""
    if weights.ndim != 2:
        raise ValueError(f"weights must have two axes, (session, name), but their shape is {weights.shape}")
    at, rows = np.arange(len(panel.sessions)), weights
    if sessions is not None:
        at = _session_positions(panel, np.asarray(sessions, dtype="datetime64[D]"))
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
    has_cash = names[-1:] == [CASH]
    columns = _symbol_positions(panel, names[:-1] if has_cash else names)
    if len(names) != rows.shape[1]:
        raise ValueError(f"`symbols` must name {rows.shape[1]} columns of weights, but names {len(names)}")
    target = np.zeros((len(rows), n_symbols + 1))
    target[:, columns] = rows[:, : len(columns)]
    target[:, -1] = rows[:, -1] if has_cash else cash_beside(rows)
    return target


def _symbol_positions(panel: MarketPanel, names: Sequence[str]) -> list[int]:
    unknown = sorted(set(names) - set(panel.symbols))
    if unknown or len(set(names)) < len(names):
        problem = f"{', '.join(unknown)}, not in the panel" if unknown else "duplicate names"
        near = suggest(unknown[0], panel.symbols) if unknown else ""
        raise ValueError(
            f"columns of weights must be distinct names of the panel, but {len(names)} columns have {problem}; the "
            f"panel of {panel.source!r} has: {', '.join(panel.symbols)}{near}"
        )
    return [panel.symbols.index(name) for name in names]


def _require_portfolios(panel: MarketPanel, decided_at: IntArray, target: FloatArray, gross_limit: float) -> None:
    if not np.isfinite(target).all():
        row, column = np.argwhere(~np.isfinite(target))[0]
        raise ValueError(
            f"weights must be finite numbers, but {[*panel.symbols, CASH][column]} has {target[row, column]} on "
            f"{panel.sessions[decided_at[row]]}; write 0 for a name without a weight"
        )
    total, gross = target.sum(axis=1), np.abs(target[:, :-1]).sum(axis=1)
    unequal = np.flatnonzero(np.abs(total - 1.0) > ROUNDING)
    if len(unequal):
        row = unequal[0]
        raise ValueError(
            f"weights with cash must sum to 1, but {len(unequal)} of {len(target)} rows do not, first "
            f"{total[row]:.6g} on {panel.sessions[decided_at[row]]}; omit the column of cash to have it computed"
        )
    above = np.flatnonzero(gross > gross_limit + ROUNDING)
    if len(above):
        row = above[0]
        raise ValueError(
            f"absolute weights of names must sum to at most the gross limit {gross_limit:g}, but {len(above)} of "
            f"{len(target)} rows sum to more, first {gross[row]:.6g} on {panel.sessions[decided_at[row]]}; "
            "scale them down or raise gross_limit"
        )
