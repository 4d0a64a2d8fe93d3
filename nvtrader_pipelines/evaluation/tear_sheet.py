"""Tear sheet of an account: returns by month, rolling figures, worst drawdowns."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.rolling import rolling_sharpe, rolling_turnover, rolling_volatility
from nvtrader_pipelines.evaluation.statistics import NO_SPREAD, compounded_wealth, running_peak

N_DRAWDOWNS = 5


@dataclass(frozen=True, eq=False)
class TearSheet:
    """Figures of one account over all its sessions, net of costs."""

    monthly: pl.DataFrame  # year, month, return
    yearly: pl.DataFrame  # year, return
    drawdowns: pl.DataFrame  # the deepest: start, trough, recovery (null if not yet), depth, n_sessions
    by_session: pl.DataFrame  # session, equity, exposure; over 126 sessions, else null: sharpe, volatility, turnover

    @classmethod
    def of(cls, curve: pl.DataFrame, periods_per_year: int) -> Self:
        """Compute the figures from an account's rows of EQUITY: session, net_return, turnover, cash, gross."""
        rows = curve.sort("session")
        returns, turnover = rows["net_return"].to_numpy(), rows["turnover"].to_numpy()
        months = rows.select(pl.col("session").dt.year().alias("year"), pl.col("session").dt.month().alias("month"))
        dated = months.with_columns(rows["net_return"])
        return cls(
            monthly=_compound(dated, "year", "month"),
            yearly=_compound(dated, "year"),
            drawdowns=worst_drawdowns(rows["session"], returns),
            by_session=rows.select(
                "session",
                pl.Series("equity", compounded_wealth(returns)),
                pl.coalesce("gross", 1.0 - pl.col("cash")).alias("exposure"),  # of older runs, the gross is null
                pl.Series("sharpe", rolling_sharpe(returns, periods_per_year)).fill_nan(None),
                pl.Series("volatility", rolling_volatility(returns, periods_per_year)).fill_nan(None),
                pl.Series("turnover", rolling_turnover(turnover, periods_per_year)).fill_nan(None),
            ),
        )


def worst_drawdowns(sessions: pl.Series, returns: NDArray[np.float64]) -> pl.DataFrame:
    """Deepest drawdowns of returns (n,), the deepest first; the first peak is the opening.

    Returns:
        start (first session below the peak), trough, recovery (first session back at the peak; null until then), depth
        (positive fraction), and n_sessions from start to before the recovery.
    """
    wealth = compounded_wealth(returns)
    peak = running_peak(wealth)
    depth = 1.0 - wealth / peak
    below = np.concatenate([[False], wealth < peak * (1.0 - NO_SPREAD), [False]])
    starts, ends = np.flatnonzero(below[1:] & ~below[:-1]), np.flatnonzero(~below[1:] & below[:-1])
    rows = [
        {
            "start": sessions[int(start)],
            "trough": sessions[int(start + np.argmax(depth[start:end]))],
            "recovery": sessions[int(end)] if end < len(returns) else None,
            "depth": float(depth[start:end].max()),
            "n_sessions": int(end - start),
        }
        for start, end in zip(starts, ends, strict=True)
    ]
    schema = {"start": pl.Date, "trough": pl.Date, "recovery": pl.Date, "depth": pl.Float64, "n_sessions": pl.Int64}
    return pl.DataFrame(rows, schema=schema).sort("depth", descending=True, maintain_order=True).head(N_DRAWDOWNS)


def _compound(dated: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Compound net returns by keys, in order."""
    growth = ((1.0 + pl.col("net_return")).product() - 1.0).alias("return")
    return dated.group_by(keys, maintain_order=True).agg(growth)
