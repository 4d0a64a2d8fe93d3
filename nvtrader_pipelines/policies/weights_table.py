"""Weights from outside: a table of dated rows checked against a panel, and the policy that trades to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.portfolio.cash import CASH

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Days = NDArray[np.datetime64]

DATE = "date"
ROUNDING = 1e-9  # how far the sum of a row may be from what it must be


@dataclass(frozen=True, eq=False)
class WeightsTable:
    """Dated rows of weights, as somebody else has written them."""

    days: Days  # (D,) of the decisions
    symbols: tuple[str, ...]  # of the columns, cash last where there is such a column
    weights: FloatArray  # (D, len(symbols))
    sha256: str = ""  # of the file they were read from

    @classmethod
    def of(cls, rows: pl.DataFrame, sha256: str = "") -> Self:
        """A table with a column `date`, one of numbers per symbol, and perhaps one called `cash`; empty rows are none.

        Raises:
            ValueError: if there are no rows, no dates or no symbols, or a cell is empty or no number.
        """
        symbols = [name for name in rows.columns if name not in {DATE, CASH}]
        rows = rows.filter(~pl.all_horizontal(pl.all().is_null())) if rows.width else rows
        if DATE not in rows.columns or not symbols or rows.is_empty():
            has = "one" if DATE in rows.columns else "none"  # not what they are called: it may be no file of weights
            raise ValueError(
                f"weights need a column {DATE!r}, a column per symbol and at least one row, but there are "
                f"{len(rows)} rows of {rows.width} columns, {has} of them {DATE!r}"
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
        """Days (D,) and the weights (D, N+1) wanted at their closes, in the panel's order with cash last.

        Raises:
            ValueError: if a day or symbol is not of the panel, or a row is no portfolio within the gross limit.
        """
        decided_at, target = wanted_weights(panel, self.weights, self.days, self.symbols, gross_limit)
        return panel.sessions[decided_at], target


class WeightsPolicy:
    """Trades to each row when its day has come, and to the latest one at the first decision; holds in between."""

    def __init__(self, days: Days, target: FloatArray) -> None:
        self._days, self._target = days, target
        self._row = -1  # the last one traded to

    def decide(self, panel: MarketPanel, t: int, account: Account) -> Decision:  # noqa: ARG002 (Policy's signature)
        """The weights of the last row at or before session `t`, once.

        Raises:
            ValueError: if the rows begin after `t`.
        """
        row = int(np.searchsorted(self._days, panel.sessions[t], side="right")) - 1
        if row < 0:
            raise ValueError(
                f"weights are needed at the first decision, on {panel.sessions[t]}, or before, but begin on "
                f"{self._days[0]}; add a row, of zeros to begin in cash"
            )
        if row == self._row:
            return Decision(target=None)
        self._row = row
        return Decision(target=self._target[row])


def _require_cells(column: pl.Series, written: pl.Series, what: str) -> None:
    missing = column.is_null().arg_true()
    if len(missing):
        row = int(missing[0])
        raise ValueError(
            f"column {column.name!r} of weights must hold {what} in every row, but row {row + 1} has "
            f"{'nothing' if written[row] is None else repr(written[row])}; write 0 for a name that is not wanted"
        )


def wanted_weights(
    panel: MarketPanel,
    weights: FloatArray,
    sessions: Days | None,
    symbols: Sequence[str] | None,
    gross_limit: float,
) -> tuple[IntArray, FloatArray]:
    """Sessions that decide (D,), ascending, and what each wants (D, N+1) in the panel's order, cash last.

    Args:
        panel: the market.
        weights: a row per session of the panel, or per one of `sessions`; a column per name, and perhaps one of cash
            last, which is otherwise what the names leave of 1.
        sessions: (D,) days of the decisions, ascending; None decides at every session.
        symbols: names of the columns, "cash" perhaps last; None takes the panel's names in its order.
        gross_limit: most that absolute weights of names sum to.

    Raises:
        ValueError: if shapes, sessions or symbols do not fit the panel, a weight is no finite number, a row with
            cash does not sum to 1, or a row is above the gross limit.
    """
    decided_at, rows = _decisions(panel, np.asarray(weights, dtype=np.float64), sessions)
    target = _targets(panel, rows, symbols)
    _require_sound(panel, decided_at, target, gross_limit)
    return decided_at, target


def _decisions(panel: MarketPanel, weights: FloatArray, sessions: Days | None) -> tuple[IntArray, FloatArray]:
    """Sessions that decide, ascending, and the row of weights of each."""
    if weights.ndim != 2:
        raise ValueError(f"weights must have two axes, (session, name), but their shape is {weights.shape}")
    at, rows = np.arange(len(panel.sessions)), weights
    if sessions is not None:
        at = _places(panel, np.asarray(sessions, dtype="datetime64[D]"))
        rows = weights[at] if len(weights) == len(panel.sessions) else weights
    if len(rows) != len(at):
        raise ValueError(
            f"weights need a row for each of the {len(panel.sessions)} sessions of the panel"
            + ("" if sessions is None else f" or of the {len(at)} of `sessions`")
            + f", but have {len(rows)}; name the days of the rows by `sessions`"
        )
    return at, rows


def _places(panel: MarketPanel, sessions: Days) -> IntArray:
    at = np.minimum(np.searchsorted(panel.sessions, sessions), len(panel.sessions) - 1).astype(np.int64)
    unknown = np.flatnonzero(panel.sessions[at] != sessions)
    if len(unknown):
        raise ValueError(
            f"{len(unknown)} of {len(sessions)} decisions are on no session of the panel, the first on "
            f"{sessions[unknown[0]]}; the panel has {len(panel.sessions)} sessions from {panel.sessions[0]} to "
            f"{panel.sessions[-1]}"
        )
    backward = np.flatnonzero(np.diff(at) <= 0)
    if len(backward):
        i = int(backward[0])
        raise ValueError(
            f"the days of decisions must ascend, but number {i + 1}, {sessions[i + 1]}, follows {sessions[i]}; "
            "sort the rows and keep one of each day"
        )
    return at


def _targets(panel: MarketPanel, rows: FloatArray, symbols: Sequence[str] | None) -> FloatArray:
    """Wanted weights (D, N+1) in the panel's order, cash last."""
    n_symbols = len(panel.symbols)
    if symbols is None and rows.shape[1] not in {n_symbols, n_symbols + 1}:
        raise ValueError(
            f"weights need {n_symbols} columns, the panel's names in its order, or {n_symbols + 1} with cash last, but "
            f"have {rows.shape[1]}; name the columns by `symbols`"
        )
    names = [*panel.symbols, CASH][: rows.shape[1]] if symbols is None else list(symbols)
    has_cash = names[-1:] == [CASH]
    columns = _columns(panel, names[:-1] if has_cash else names)
    if len(names) != rows.shape[1]:
        raise ValueError(f"`symbols` must name each of the {rows.shape[1]} columns of weights, but has {len(names)}")
    target = np.zeros((len(rows), n_symbols + 1))
    target[:, columns] = rows[:, : len(columns)]
    if has_cash:
        target[:, -1] = rows[:, -1]
    else:
        left = 1.0 - rows.sum(axis=1)
        target[:, -1] = np.where(np.abs(left) < ROUNDING, 0.0, left)  # a rounding error is no debt
    return target


def _columns(panel: MarketPanel, names: Sequence[str]) -> list[int]:
    strangers = sorted(set(names) - set(panel.symbols))
    if strangers or len(set(names)) < len(names):
        wrong = f"{', '.join(strangers)} not of the panel" if strangers else "names given twice"
        near = get_close_matches(strangers[0], panel.symbols, n=1) if strangers else []
        raise ValueError(
            f"columns of weights must be names of the panel, each once, but {len(names)} columns have {wrong}; the "
            f"panel of {panel.source!r} has: {', '.join(panel.symbols)}"
            + "".join(f"; did you mean {name!r}?" for name in near)
        )
    return [panel.symbols.index(name) for name in names]


def _require_sound(panel: MarketPanel, decided_at: IntArray, target: FloatArray, gross_limit: float) -> None:
    if not np.isfinite(target).all():
        row, column = np.argwhere(~np.isfinite(target))[0]
        raise ValueError(
            f"weights must be finite numbers, but {[*panel.symbols, CASH][column]} has {target[row, column]} on "
            f"{panel.sessions[decided_at[row]]}; give 0 to a name that is not wanted"
        )
    total, gross = target.sum(axis=1), np.abs(target[:, :-1]).sum(axis=1)
    unequal = np.flatnonzero(np.abs(total - 1.0) > ROUNDING)
    if len(unequal):
        row = unequal[0]
        raise ValueError(
            f"weights with cash must sum to 1, but {len(unequal)} of {len(target)} rows do not, the first to "
            f"{total[row]:.6g} on {panel.sessions[decided_at[row]]}; leave the column of cash out to have it computed"
        )
    above = np.flatnonzero(gross > gross_limit + ROUNDING)
    if len(above):
        row = above[0]
        raise ValueError(
            f"absolute weights of names must sum to at most the gross limit {gross_limit:g}, but {len(above)} of "
            f"{len(target)} rows sum to more, the first to {gross[row]:.6g} on {panel.sessions[decided_at[row]]}; "
            "scale them down or raise gross_limit"
        )
