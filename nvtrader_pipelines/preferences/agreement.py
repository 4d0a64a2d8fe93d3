"""Agreement of people and market: how often a person's choice did better than the other weights, and by how much."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.preferences.decisions import HORIZON

CONFIDENCE_LEVEL = 0.95
MAX_REASONS, MAX_MONTHS = 8, 12  # of a summary
OVERRIDES = ("overridden", "edited")
AGREEMENT = TableSchema(
    Column("by", pl.String, "overrides, decision, reason or month"),
    Column("name", pl.String, "kind of decision, text of the reason, or month YYYY-MM"),
    Column("n", pl.Int64, "number of decisions with an outcome that counts"),
    Column("n_better", pl.Int64, "number of those whose chosen weights did better than the other ones"),
    Column("mean_pct", pl.Float64, "mean of chosen less other return over five sessions, percent"),
    Column("low_pct", pl.Float64, "lower bound of its 95 % interval; null for decisions of one session"),
    Column("high_pct", pl.Float64, "upper bound of its 95 % interval"),
)


def agreement(outcomes: pl.DataFrame, *, practice: bool = False) -> pl.DataFrame:
    """Summarize outcomes: all overrides, kinds of decision, the most frequent reasons, and the last months.

    An approval is compared with keeping the holdings, every other decision with the proposal.

    Args:
        outcomes: session, session_number, decision, reason, excess_pct, weight and, for practice, practice.
        practice: whether to summarize practice instead of the outcomes that count.

    Returns:
        Columns of `AGREEMENT`.
    """
    counted = counted_outcomes(outcomes, practice=practice).with_columns(month=pl.col("session").dt.strftime("%Y-%m"))
    reasons = counted.filter(pl.col("reason") != "")["reason"].value_counts().sort(-pl.col("count").cast(int), "reason")
    groups = [
        ("overrides", "edited or overridden", pl.col("decision").is_in(OVERRIDES)),
        *(("decision", name, pl.col("decision") == name) for name in counted["decision"].unique().sort()),
        *(("reason", name, pl.col("reason") == name) for name in reasons["reason"][:MAX_REASONS]),
        *(("month", name, pl.col("month") == name) for name in counted["month"].unique().sort()[-MAX_MONTHS:]),
    ]
    rows = [(by, name, *_summary(chosen)) for by, name, rule in groups if len(chosen := counted.filter(rule))]
    return pl.DataFrame(rows, schema=AGREEMENT, orient="row")


def counted_outcomes(outcomes: pl.DataFrame, *, practice: bool = False) -> pl.DataFrame:
    """Select outcomes with weight, or those of practice instead, their reasons in lower case.

    Skipped and equal answers have no weight, nor has practice: an answer to a replay, whose outcome was known.
    """
    has_result = pl.all_horizontal(pl.col("excess_pct", "session_number").is_not_null())
    counted = outcomes.filter(pl.col("practice") if practice else pl.col("weight") > 0.0, has_result)
    return counted.with_columns(
        reason=pl.col("reason").str.replace_all(r"\s+", " ").str.strip_chars().str.to_lowercase()
    )


@dataclass(frozen=True)
class MeanError:
    """Standard error of a mean, with its degrees of freedom."""

    error: float
    degrees: float


def mean_error(excess: NDArray[np.float64], numbers: NDArray[np.int64]) -> MeanError | None:
    """Standard error of the mean of outcomes (n,) at sessions (n,); None for outcomes of one session.

    Outcomes of one session count as one. Those of sessions less than five apart share returns: their correlation is 1
    less a fifth for each session of distance. The sample variance is scaled to what that leaves of it, and the degrees
    of freedom are those of Satterthwaite (1946).
    """
    sessions, of_session, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    if len(sessions) < 2:
        return None
    means = np.bincount(of_session, weights=excess) / counts
    shares = counts / len(excess)
    correlations = np.maximum(0.0, 1.0 - np.abs(sessions[:, None] - sessions) / HORIZON)
    projected = correlations @ shares
    of_mean = float(shares @ projected)
    residuals = correlations - projected[:, None] - projected + of_mean  # covariances of the means less their mean
    left = float(np.trace(residuals))
    variance = float(np.square(means - shares @ means).sum()) / left
    return MeanError(float(np.sqrt(variance * of_mean)), left**2 / float(np.square(residuals).sum()))


def _summary(chosen: pl.DataFrame) -> tuple[int, int, float, float | None, float | None]:
    """Number of outcomes, of better ones, mean and bounds; no bounds for decisions of one session."""
    from scipy.special import stdtrit

    excess = chosen["excess_pct"].to_numpy()
    counts, mean = (len(excess), int((excess > 0.0).sum())), float(excess.mean())
    error = mean_error(excess, chosen["session_number"].to_numpy())
    if error is None:
        return *counts, mean, None, None
    half = float(stdtrit(error.degrees, 0.5 + CONFIDENCE_LEVEL / 2.0)) * error.error
    return *counts, mean, mean - half, mean + half
