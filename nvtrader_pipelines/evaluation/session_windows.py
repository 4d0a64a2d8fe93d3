"""Distribution of an account's results over all windows of consecutive test sessions."""

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.evaluation.statistics import running_peak

WINDOW_SESSIONS = 42  # two months
WINDOW_DISTRIBUTION = TableSchema(
    Column("policy", pl.String, "account: the experiment's ensemble, its best baseline or 1/N"),
    Column("n_windows", pl.Int64, "number of windows; they overlap, so they are no independent sample"),
    Column("minimum", pl.Float64, "lowest cumulative net return of a window"),
    Column("lower_quartile", pl.Float64, "cumulative net return that a quarter of the windows stay below"),
    Column("median", pl.Float64, "median of the windows' cumulative net returns"),
    Column("upper_quartile", pl.Float64, "cumulative net return that a quarter of the windows exceed"),
    Column("maximum", pl.Float64, "highest cumulative net return of a window"),
    Column("max_drawdown", pl.Float64, "deepest drawdown inside a window, from its start on, positive"),
)


def session_windows(curves: pl.DataFrame, n_sessions: int = WINDOW_SESSIONS) -> pl.DataFrame:
    """Results of every window of consecutive sessions of each account, at every start.

    A window lies within the sessions that one fold decides in one episode. It therefore has no session of the training
    that decides it, while the training of another fold may include these tests.

    Args:
        curves: a row per account and session: policy, episode, fold, session, net_return.
        n_sessions: sessions in a window.

    Returns:
        policy, first_session, last_session, net_return (cumulative) and max_drawdown (positive), by account and start.

    Raises:
        ValueError: if no window fits.

    Source: hold-out windows of 42 steps in the evaluation plan of lee101/stock-prediction, there with few starts.
    """
    ordered = curves.sort("session").with_columns(stretch=pl.struct("episode", "fold").rle_id().over("policy"))
    stretches = ordered.partition_by("policy", "stretch", maintain_order=True)
    longest = max(map(len, stretches), default=0)
    if longest < n_sessions:
        raise ValueError(
            f"a window of {n_sessions} sessions must lie within the tests of one fold, but the longest has {longest} "
            "sessions; ask for shorter windows"
        )
    return pl.concat([_windows(rows, n_sessions) for rows in stretches if len(rows) >= n_sessions])


def window_distribution(windows: pl.DataFrame) -> pl.DataFrame:
    """Distribution of the windows' results, a row of `WINDOW_DISTRIBUTION` per account."""
    net_return = pl.col("net_return")
    return windows.group_by("policy", maintain_order=True).agg(
        n_windows=pl.len().cast(pl.Int64),
        minimum=net_return.min(),
        lower_quartile=net_return.quantile(0.25, "linear"),
        median=net_return.median(),
        upper_quartile=net_return.quantile(0.75, "linear"),
        maximum=net_return.max(),
        max_drawdown=pl.col("max_drawdown").max(),
    )


def _windows(rows: pl.DataFrame, n_sessions: int) -> pl.DataFrame:
    """Windows of an account's consecutive sessions."""
    growth = 1.0 + sliding_window_view(rows["net_return"].to_numpy(), n_sessions).T
    wealth = np.multiply.accumulate(growth)  # (n_sessions, n_windows)
    first = rows.head(len(rows) - n_sessions + 1)
    return first.select(
        "policy",
        pl.col("session").alias("first_session"),
        rows["session"].tail(len(first)).alias("last_session"),
        pl.Series("net_return", wealth[-1] - 1.0),
        pl.Series("max_drawdown", (1.0 - wealth / running_peak(wealth)).max(axis=0)),
    )
