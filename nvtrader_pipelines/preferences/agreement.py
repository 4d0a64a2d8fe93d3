"""Agreement of people and market: how often a person's choice did better than the other weights, and by how much."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.market.calendar import session_numbers
from nvtrader_pipelines.preferences.decisions import HORIZON

CONFIDENCE_LEVEL = 0.95
MAX_REASONS = 8  # of a summary
AGREEMENT = TableSchema(
    Column("by", pl.String, "decision, or reason"),
    Column("name", pl.String, "kind of decision, or text of the reason"),
    Column("n", pl.Int64, "number of decisions with an outcome that counts"),
    Column("n_better", pl.Int64, "number of those whose chosen weights did better than the other ones"),
    Column("mean_pct", pl.Float64, "mean of chosen less other return over five sessions, percent"),
    Column("low_pct", pl.Float64, "lower bound of its 95 % interval; null for decisions of one session"),
    Column("high_pct", pl.Float64, "upper bound of its 95 % interval"),
)


def agreement(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Summarize outcomes by kind of decision and by reason, the most frequent reasons first.

    A decision counts if its outcome has weight: skipped and equal answers, and those of a replay whose outcome was
    known, do not. An approval is compared with keeping the holdings, every other decision with the proposal.

    Args:
        outcomes: session, decision, reason, excess_pct and weight.

    Returns:
        Columns of `AGREEMENT`.
    """
    counted = outcomes.filter(pl.col("weight") > 0.0, pl.col("excess_pct").is_not_null()).with_columns(
        reason=pl.col("reason").str.strip_chars().str.to_lowercase()
    )
    reasons = counted.filter(pl.col("reason") != "")["reason"].value_counts().sort(-pl.col("count").cast(int), "reason")
    groups = [
        *(("decision", name) for name in counted["decision"].unique().sort()),
        *(("reason", name) for name in reasons["reason"][:MAX_REASONS]),
    ]
    rows = []
    for by, name in groups:
        chosen = counted.filter(pl.col(by) == name)
        excess = chosen["excess_pct"].to_numpy()
        numbers = session_numbers(chosen["session"].to_numpy().astype("datetime64[D]"))
        mean = float(excess.mean())
        error = standard_error(excess, numbers)
        rows.append((by, name, len(excess), int((excess > 0.0).sum()), mean, *_bounds(mean, error, numbers)))
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def standard_error(excess: NDArray[np.float64], numbers: NDArray[np.int64]) -> float:
    """Standard error of the mean of outcomes (n,) at sessions (n,), whose five-session windows may overlap.

    Source: Newey & West (1987), with weights by distance in sessions, so that decisions of one session count as one.
    """
    first = int(numbers.min())
    sums = np.bincount(numbers - first, weights=excess - excess.mean())
    variance = float(sums @ sums)
    for lag in range(1, min(HORIZON, len(sums))):
        variance += 2.0 * (1.0 - lag / HORIZON) * float(sums[lag:] @ sums[:-lag])
    n_sessions = len(np.unique(numbers))
    return float(np.sqrt(max(0.0, variance) * n_sessions / max(1, n_sessions - 1))) / len(excess)


def _bounds(mean: float, error: float, numbers: NDArray[np.int64]) -> Sequence[float | None]:
    """Bounds of the interval of a mean; None for decisions of one session."""
    from scipy.special import stdtrit

    n_sessions = len(np.unique(numbers))
    if n_sessions < 2:
        return None, None
    half = float(stdtrit(n_sessions - 1, 0.5 + CONFIDENCE_LEVEL / 2.0)) * error
    return mean - half, mean + half
