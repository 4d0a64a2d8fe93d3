"""Comparison of trials on common sessions: overfitting, Rademacher complexity, correlation."""

from dataclasses import dataclass
from math import sqrt
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
from nvtrader_pipelines.evaluation.sharpe.inference import MIN_OBSERVATIONS, effective_number_of_trials
from nvtrader_pipelines.evaluation.statistics import varies
from nvtrader_pipelines.evaluation.trials import Against, Days, Trial, Trials, mean_correlation, sharpe_ratios

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TrialComparison:
    """Trials that cover the period, against one reference."""

    against: Against
    names: tuple[str, ...]  # (N,)
    sessions: Days  # (T,)
    returns: FloatArray  # (T, N), residual where there is a reference
    n_trials: int  # ever run, including those not compared
    periods_per_year: int  # 0 without trials
    complexity: float | None  # Rademacher, of returns over volatility, per session; None without trials

    @classmethod
    def of(cls, trials: Trials, against: Against, generator: np.random.Generator, n_sign_draws: int) -> Self:
        """Compare the trials; the generator draws the signs of the Rademacher complexity."""
        compared = trials.comparable()
        if not compared:
            no_sessions = np.array([], dtype="datetime64[D]")
            return cls(against, (), no_sessions, np.empty((0, 0)), trials.n_trials, 0, None)
        returns = np.column_stack([trial.returns(against) for trial in compared])
        complexity = rademacher_complexity(_standardized(returns), generator, n_sign_draws)
        names = tuple(trial.name for trial in compared)
        first = compared[0]
        return cls(against, names, first.sessions, returns, trials.n_trials, first.periods_per_year, complexity)

    def lower_bounds(self, delta: float) -> dict[str, float]:
        """Lower bounds of the annual Sharpe ratios, which all hold with probability 1 - `delta`."""
        if self.complexity is None:
            return {}
        error = sharpe_ratio_estimation_error(len(self.sessions), self.n_trials, delta)
        bounds = lower_bounds(sharpe_ratios(self.returns), self.complexity, error) * sqrt(self.periods_per_year)
        return dict(zip(self.names, map(float, bounds), strict=True))

    def exclusion_notes(self, trial: Trial) -> list[str]:
        """Reason why a trial is not compared; empty for compared ones."""
        if trial.name in self.names:
            return []
        n_common = len(np.intersect1d(trial.sessions, self.sessions, assume_unique=True))
        return [f"not compared with other trials: has {n_common} of the {len(self.sessions)} sessions of the longest"]

    def summary(self, n_blocks: int) -> dict[str, object]:
        """Row of OVERFITTING, without figures that cannot be computed; the note gives the reasons."""
        row: dict[str, object] = {
            "against": self.against,
            "n_trials": self.n_trials,
            "n_compared": len(self.names),
            "n_sessions": len(self.sessions),
        }
        if self.complexity is None:
            return row | {"note": f"no trial has the required {MIN_OBSERVATIONS} sessions in the period"}
        row |= {
            "first_session": self.sessions[0].item(),
            "last_session": self.sessions[-1].item(),
            "rademacher_complexity": self.complexity * sqrt(self.periods_per_year),
            "massart_bound": massart_bound(_standardized(self.returns)) * sqrt(self.periods_per_year),
        }
        notes = []
        if len(self.names) < self.n_trials:
            n_sessions = len(self.sessions)
            notes = [f"compared: {len(self.names)} of {self.n_trials} trials, those with all {n_sessions} sessions"]
        try:
            row |= self._overfitting(n_blocks)
            row |= self._correlation()
        except ValueError as error:
            notes.append(str(error))
        return row | {"note": "; ".join(notes) or None}

    def _overfitting(self, n_blocks: int) -> dict[str, object]:
        result = backtest_overfitting(self.returns, n_blocks)
        line = result.degradation()
        return {
            "n_blocks": result.n_blocks,
            "n_combinations": len(result.logits),
            "probability_of_overfitting": result.probability,
            "degradation_slope": line.slope,
            "degradation_intercept": line.intercept * sqrt(self.periods_per_year),
            "degradation_r_squared": line.r_squared,
            "probability_of_loss": result.probability_of_loss,
            "logits": result.logits.tolist(),
            "in_sample": (result.in_sample * sqrt(self.periods_per_year)).tolist(),
            "out_of_sample": (result.out_of_sample * sqrt(self.periods_per_year)).tolist(),
        }

    def _correlation(self) -> dict[str, object]:
        correlation = mean_correlation(self.returns)
        effective = effective_number_of_trials(self.n_trials, correlation)
        return {"mean_correlation": correlation, "effective_n_trials": effective}


def _standardized(returns: FloatArray) -> FloatArray:
    """Returns over their volatility, with Sharpe ratios as means; 0 where constant."""
    deviation = returns.std(axis=0, ddof=1)
    return np.divide(returns, deviation, out=np.zeros_like(returns), where=varies(returns))
