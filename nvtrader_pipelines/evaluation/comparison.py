"""What compares trials needs them on the same sessions: overfitting, complexity and correlation."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.overfitting import backtest_overfitting
from nvtrader_pipelines.evaluation.rademacher import (
    lower_bounds,
    massart_bound,
    rademacher_complexity,
    sharpe_ratio_estimation_error,
)
from nvtrader_pipelines.evaluation.sharpe.deflation import YEARLY
from nvtrader_pipelines.evaluation.sharpe.inference import MIN_OBSERVATIONS, effective_number_of_trials
from nvtrader_pipelines.evaluation.statistics import varies
from nvtrader_pipelines.evaluation.trials import (
    Against,
    Days,
    Trial,
    Trials,
    mean_correlation,
    sharpe_ratios,
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Comparison:
    """The trials that cover the period, against one thing."""

    against: Against
    names: tuple[str, ...]  # (N,)
    sessions: Days  # (T,)
    returns: FloatArray  # (T, N), active where there is a reference
    n_ever: int  # trials that were ever run, those that are not compared included
    complexity: float | None  # Rademacher, of the returns over their volatility, per session; None without a trial

    @classmethod
    def of(cls, trials: Trials, against: Against, generator: np.random.Generator, n_sign_draws: int) -> Self:
        """With random signs from a generator for the complexity."""
        compared = trials.comparable()
        if not compared:
            nothing = np.array([], dtype="datetime64[D]")
            return cls(against, (), nothing, np.empty((0, 0)), trials.n_ever, None)
        returns = np.column_stack([trial.returns(against) for trial in compared])
        complexity = rademacher_complexity(_standardized(returns), generator, n_sign_draws)
        names = tuple(trial.name for trial in compared)
        return cls(against, names, compared[0].sessions, returns, trials.n_ever, complexity)

    def lower_bounds(self, delta: float) -> dict[str, float]:
        """Each compared trial's lower bound of its annual Sharpe ratio; all hold but for a probability of `delta`."""
        if self.complexity is None:
            return {}
        error = sharpe_ratio_estimation_error(len(self.sessions), self.n_ever, delta)
        bounds = lower_bounds(sharpe_ratios(self.returns), self.complexity, error) * YEARLY
        return dict(zip(self.names, map(float, bounds), strict=True))

    def left_out(self, trial: Trial) -> list[str]:
        """Why a trial is not compared, where it is not."""
        if trial.name in self.names:
            return []
        n_common = len(np.intersect1d(trial.sessions, self.sessions, assume_unique=True))
        return [
            f"left out where trials are compared, for it has {n_common} of the {len(self.sessions)} sessions of the "
            "longest"
        ]

    def summary(self, n_blocks: int) -> dict[str, object]:
        """A row of OVERFITTING; what cannot be computed is left out of it, and the note says why."""
        row: dict[str, object] = {
            "against": self.against,
            "n_trials": self.n_ever,
            "n_compared": len(self.names),
            "n_sessions": len(self.sessions),
        }
        if self.complexity is None:
            return row | {"note": f"no trial has the {MIN_OBSERVATIONS} sessions in the period that are needed"}
        row |= {
            "first_session": self.sessions[0].item(),
            "last_session": self.sessions[-1].item(),
            "rademacher_complexity": self.complexity * YEARLY,
            "massart_bound": massart_bound(_standardized(self.returns)) * YEARLY,
        }
        notes = self._notes()
        try:
            row |= self._overfitting(n_blocks)
            row |= self._correlation()
        except ValueError as error:
            notes.append(str(error))
        return row | {"note": "; ".join(notes) or None}

    def _notes(self) -> list[str]:
        if len(self.names) == self.n_ever:
            return []
        return [
            f"compared are {len(self.names)} of {self.n_ever} trials, those with all {len(self.sessions)} sessions of "
            "the longest"
        ]

    def _overfitting(self, n_blocks: int) -> dict[str, object]:
        found = backtest_overfitting(self.returns, n_blocks)
        line = found.degradation()
        return {
            "n_blocks": found.n_blocks,
            "n_combinations": len(found.logits),
            "probability_of_overfitting": found.probability,
            "degradation_slope": line.slope,
            "degradation_intercept": line.intercept * YEARLY,
            "degradation_r_squared": line.r_squared,
            "probability_of_loss": found.probability_of_loss,
            "logits": found.logits.tolist(),
            "in_sample": (found.in_sample * YEARLY).tolist(),
            "out_of_sample": (found.out_of_sample * YEARLY).tolist(),
        }

    def _correlation(self) -> dict[str, object]:
        correlation = mean_correlation(self.returns)
        effective = effective_number_of_trials(self.n_ever, correlation)
        return {"mean_correlation": correlation, "effective_n_trials": effective}


def _standardized(returns: FloatArray) -> FloatArray:
    """Returns over their volatility, whose means are the Sharpe ratios; 0 where they never vary."""
    deviation = returns.std(axis=0, ddof=1)
    return np.divide(returns, deviation, out=np.zeros_like(returns), where=varies(returns))
