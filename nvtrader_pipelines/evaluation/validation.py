"""Every trial on a market, discounted for all the others: Sharpe inference, active returns and overfitting."""

from dataclasses import dataclass
from typing import Literal, get_args

import polars as pl
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.overfitting import MOST_BLOCKS
from nvtrader_pipelines.evaluation.trials import Trials

Against = Literal["zero", "best_baseline", "anchor"]
AGAINST: tuple[Against, ...] = get_args(Against)

VALIDATION = {
    "run_id": pl.String,
    "against": pl.String,
    "reference": pl.String,
    "n_trials": pl.Int64,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "sharpe": pl.Float64,
    "sharpe_low": pl.Float64,
    "sharpe_high": pl.Float64,
    "probabilistic_sharpe": pl.Float64,
    "expected_maximum_sharpe": pl.Float64,
    "deflated_sharpe": pl.Float64,
    "deflated_sharpe_2025": pl.Float64,
    "minimum_track_record_length": pl.Float64,
    "p_value": pl.Float64,
    "holm": pl.Float64,
    "benjamini_hochberg": pl.Float64,
    "rademacher_lower": pl.Float64,
    "alpha_per_year": pl.Float64,
    "beta": pl.Float64,
    "alpha_t": pl.Float64,
    "note": pl.String,
}
OVERFITTING = {
    "against": pl.String,
    "n_trials": pl.Int64,
    "first_session": pl.Date,
    "last_session": pl.Date,
    "n_sessions": pl.Int64,
    "mean_correlation": pl.Float64,
    "effective_n_trials": pl.Float64,
    "n_blocks": pl.Int64,
    "n_combinations": pl.Int64,
    "probability_of_overfitting": pl.Float64,
    "degradation_slope": pl.Float64,
    "degradation_intercept": pl.Float64,
    "degradation_r_squared": pl.Float64,
    "probability_of_loss": pl.Float64,
    "rademacher_complexity": pl.Float64,
    "massart_bound": pl.Float64,
    "logits": pl.List(pl.Float64),
    "in_sample": pl.List(pl.Float64),
    "out_of_sample": pl.List(pl.Float64),
    "note": pl.String,
}


@dataclass(frozen=True, eq=False)
class Validation:
    """What the trials on one market come to."""

    trials: pl.DataFrame  # VALIDATION, a row per trial and what it is held against
    overfitting: pl.DataFrame  # OVERFITTING, a row per what all are held against


class ValidationSettings(Component):
    """How trials are validated."""

    n_blocks: int = Field(default=16, ge=2, le=MOST_BLOCKS, multiple_of=2, description="of the cross-validation")
    delta: float = Field(default=0.05, gt=0.0, lt=1.0, description="probability that any Rademacher bound fails")
    n_sign_draws: PositiveInt = Field(default=2000, description="random signs of the Rademacher complexity")
    intervals: SharpeIntervals = SharpeIntervals()
    seed: int = 0


def validate(trials: Trials, settings: ValidationSettings | None = None) -> Validation:
    """Judge every trial against zero, its best baseline and its anchor, with all the others in mind."""
    raise NotImplementedError
