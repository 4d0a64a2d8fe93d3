"""Thresholds of a timing, fitted on the training of a fold and recorded with its run."""

from pydantic import BaseModel, ConfigDict


class Thresholds(BaseModel):
    """Thresholds fitted on one training period; None where the timing has no such threshold."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    turbulence: float | None = None
    drawdown: float | None = None  # loss from the peak, a positive fraction
    trailing_return: float | None = None  # compounded, a fraction
    turnover: float | None = None  # one-way, of one decision
