"""Accounts beside each other on the sessions that all of them have."""

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.rolling import rolling_sharpe
from nvtrader_pipelines.evaluation.statistics import compounded_wealth, running_peak, sharpe_ratio, statistics_of

DIFFERENCE = ("sharpe_difference", "sharpe_difference_low", "sharpe_difference_high")
_MAX_DAYS_APART = 7  # of a session and the next one that all accounts have


def select_shared_sessions(curves: pl.DataFrame) -> pl.DataFrame:
    """Select rows (account, session, net_return) of sessions that all accounts have, sorted."""
    is_shared = pl.col("account").n_unique().over("session") == curves["account"].n_unique()
    return curves.filter(is_shared).sort("session", maintain_order=True)


def compound_to_shared_sessions(curves: pl.DataFrame) -> pl.DataFrame:
    """Compound the returns of accounts on several calendars to the sessions that all have.

    A return on a session that others lack, such as a weekend's, counts with the next shared one, up to a week later.

    Args:
        curves: account, session, net_return.
    """
    shared = select_shared_sessions(curves).select(day="session").unique().sort("day")
    placed = curves.sort("session").join_asof(
        shared, left_on="session", right_on="day", strategy="forward", tolerance=f"{_MAX_DAYS_APART}d"
    )
    days = placed.drop_nulls("day").group_by("account", pl.col("day").alias("session"), maintain_order=True)
    return days.agg(net_return=(1.0 + pl.col("net_return")).product() - 1.0).sort("session", maintain_order=True)


def shared_curves(shared: pl.DataFrame, periods_per_year: int) -> pl.DataFrame:
    """Equity of one unit, drawdown and rolling Sharpe ratio (null at first), by session."""
    accounts = shared.partition_by("account", maintain_order=True)
    return pl.concat([_curve(rows, periods_per_year) for rows in accounts])


def shared_figures(shared: pl.DataFrame, periods_per_year: int) -> pl.DataFrame:
    """Statistics over the shared sessions, a row per account; null where undefined.

    `sharpe_difference` is to the first account, with its paired bootstrap interval.
    """
    accounts = shared.partition_by("account", maintain_order=True)
    returns = np.column_stack([own["net_return"].to_numpy() for own in accounts])
    sharpes = [sharpe_ratio(column, periods_per_year) for column in returns.T]
    draws = SharpeIntervals().draw(returns, periods_per_year)
    rows = [
        {"account": own["account"][0], "first_session": own["session"][0], "last_session": own["session"][-1]}
        | {"n_sessions": len(own), **statistics_of(returns[:, i], periods_per_year)}
        | dict(zip(DIFFERENCE, (sharpes[i] - sharpes[0], *draws.difference(i, 0)) if i else (None,) * 3, strict=True))
        for i, own in enumerate(accounts)
    ]
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=dict.fromkeys(DIFFERENCE, pl.Float64))


def _curve(own: pl.DataFrame, periods_per_year: int) -> pl.DataFrame:
    returns = own["net_return"].to_numpy()
    wealth = compounded_wealth(returns)
    return own.select(
        "account",
        "session",
        pl.Series("equity", wealth),
        pl.Series("drawdown", 1.0 - wealth / running_peak(wealth)),
        pl.Series("sharpe", rolling_sharpe(returns, periods_per_year)).fill_nan(None),
    )
