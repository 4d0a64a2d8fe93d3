"""What a Sharpe ratio is worth after all the trials that it was the best of."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.sharpe.inference import (
    SharpeMoments,
    deflated_sharpe_ratio,
    deflated_sharpe_ratio_2025,
    expected_maximum_sharpe,
)
from nvtrader_pipelines.market.calendar import SESSIONS_PER_YEAR

_ROUNDING = 1e-12  # Sharpe ratios of equal trials differ by it
YEARLY = float(np.sqrt(SESSIONS_PER_YEAR))  # times a Sharpe ratio per session is one per year


@dataclass(frozen=True)
class Deflation:
    """How many trials there were, and how their Sharpe ratios per session vary, each over its own sessions."""

    n_trials: int
    variance: float | None  # ddof 1; None where at most one of several has enough returns

    @classmethod
    def of(cls, sharpe: NDArray[np.float64], n_trials: int) -> Self:
        """From the Sharpe ratios per session that are known, and how many trials there were."""
        if n_trials == 1:
            return cls(1, 0.0)
        if len(sharpe) < 2:
            return cls(n_trials, None)
        return cls(n_trials, float(sharpe.var(ddof=1)) if np.ptp(sharpe) > _ROUNDING else 0.0)

    @property
    def notes(self) -> list[str]:
        """What a reader must know of it."""
        if self.n_trials == 1:
            return ["one trial only, so nothing deflates its Sharpe ratio"]
        if self.variance is None:
            return [f"a deflation needs two trials with enough returns, but of {self.n_trials} only one has them"]
        if self.variance == 0.0:
            return [f"the {self.n_trials} trials have the same Sharpe ratio, so nothing deflates it"]
        return []

    def apply(self, moments: SharpeMoments) -> dict[str, float]:
        """The expected maximum (annual) and what the Sharpe ratio is worth beside it; nothing where that is unknown.

        Raises:
            ValueError: if the moments have no error.
        """
        if self.variance is None:
            return {}
        return {
            "expected_maximum_sharpe": expected_maximum_sharpe(self.n_trials, self.variance) * YEARLY,
            "deflated_sharpe": deflated_sharpe_ratio(moments, self.n_trials, self.variance),
            "deflated_sharpe_2025": deflated_sharpe_ratio_2025(moments, self.n_trials, self.variance),
        }
