"""How well a tuned policy orders the portfolios of held-out pairs, and what so many pairs can tell."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.preferences.pairs import REPORT, TRAIN

N_DRAWS = 1000
LEVEL = 0.95
TOLD_AUC, POWER_QUANTILE = 0.55, 0.8416  # AUC to tell from 0.5, with 80 % power; our choice
N_BINS = 5


@dataclass(frozen=True)
class HoldoutAuc:
    """Area under the ROC curve of held-out pairs, with its interval."""

    auc: float
    low: float
    high: float
    accuracy: float  # share of pairs whose chosen portfolio gained more
    n_pairs: int
    n_decisions: int  # sessions, or longer times; pairs of one count as one

    @property
    def is_above_chance(self) -> bool:
        """Whether the interval lies above 0.5."""
        return self.low > 0.5


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs with similar predictions."""

    n_pairs: int
    predicted: float  # mean probability that the first portfolio is the chosen one
    observed: float  # share of pairs in which it is


@dataclass(frozen=True)
class Readiness:
    """What pairs can tell before anything is trained on them."""

    n_trained: int  # pairs outside the hold-out
    n_decisions: int  # weeks of the pairs that would be reported on: outcomes of five sessions overlap within one
    half_width: float  # of the 95 % interval to expect of an AUC of 0.5
    n_missing: int  # further weeks to tell 0.55 from 0.5


def orient(gains: FloatArray, pair_ids: list[str]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Turn gains (P,) of chosen over rejected into scores of a first over a second portfolio, and which is chosen.

    Which one is first follows from the pair's id, so that a policy that prefers any side of all pairs gains nothing.
    """
    is_first = np.array([int(pair_id[-1], 16) % 2 == 0 for pair_id in pair_ids], np.bool_)
    return np.where(is_first, gains, -gains), is_first


def holdout_auc(scores: FloatArray, is_first: NDArray[np.bool_], sessions: NDArray[np.datetime64]) -> HoldoutAuc:
    """Return the AUC of scores (P,), and its interval by 1,000 draws of whole sessions with replacement.

    Raises:
        ValueError: if all pairs have one label, or there is one session only.
    """
    days, of_session = np.unique(sessions, return_inverse=True)
    if len(days) < 2 or is_first.all() or not is_first.any():
        raise ValueError(
            f"an AUC needs pairs of both orders from several sessions, but there are {len(scores)} pairs of "
            f"{len(days)} sessions; wait for more"
        )
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(scores[order]) > 0.0))  # of equal scores
    labels, of_session = is_first[order], of_session[order]

    def auc(counts: NDArray[np.int64]) -> float:
        """AUC where sessions count so often; equal scores count half."""
        weights = counts[of_session].astype(np.float64)
        positive, negative = (
            np.add.reduceat(np.where(of_label, weights, 0.0), starts) for of_label in (labels, ~labels)
        )
        below = np.cumsum(negative) - negative
        total = positive.sum() * negative.sum()
        return float(positive @ (below + 0.5 * negative) / total) if total else 0.5

    generator = np.random.default_rng(0)
    draws = [auc(np.bincount(generator.integers(0, len(days), len(days)), minlength=len(days))) for _ in range(N_DRAWS)]
    low, high = np.quantile(draws, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    accuracy = float(np.where(scores == 0.0, 0.5, (scores > 0.0) == is_first).mean())
    return HoldoutAuc(auc(np.ones(len(days), np.int64)), float(low), float(high), accuracy, len(scores), len(days))


def expected_half_width(n_decisions: int) -> float:
    """Half of the interval to expect of an AUC of 0.5 from so many independent decisions; infinite for none.

    Source: Mann & Whitney (1947), variance (n + 1) / (3 n^2) for two labels equally often.
    """
    from scipy.special import ndtri

    if n_decisions == 0:
        return float("inf")
    return float(ndtri((1.0 + LEVEL) / 2.0) * np.sqrt((n_decisions + 1) / 3.0) / n_decisions)


def n_missing(n_decisions: int) -> int:
    """Decisions that are missing to tell an AUC of 0.55 from 0.5 with 80 % power at 95 % confidence."""
    from scipy.special import ndtri

    factor = ((ndtri((1.0 + LEVEL) / 2.0) + POWER_QUANTILE) / (TOLD_AUC - 0.5)) ** 2 / 3.0
    needed = int(np.ceil((factor + np.sqrt(factor**2 + 4.0 * factor)) / 2.0))  # n^2 = factor (n + 1)
    return max(0, needed - n_decisions)


def calibration(scores: FloatArray, is_first: NDArray[np.bool_], beta: float) -> list[CalibrationBin]:
    """Predicted and observed shares in bins of equal size, from the lowest prediction up."""
    predicted = 1.0 / (1.0 + np.exp(-beta * scores))
    return [
        CalibrationBin(len(rows), float(predicted[rows].mean()), float(is_first[rows].mean()))
        for rows in np.array_split(np.argsort(predicted, kind="stable"), N_BINS)
        if len(rows)
    ]


def readiness(pairs: pl.DataFrame) -> Readiness:
    """Tell what pairs can show once a policy is tuned to them."""
    n_decisions = pairs.filter(pl.col("part") == REPORT)["session"].dt.truncate("1w").n_unique()
    n_trained = len(pairs.filter(pl.col("part") == TRAIN))
    return Readiness(n_trained, n_decisions, expected_half_width(n_decisions), n_missing(n_decisions))
