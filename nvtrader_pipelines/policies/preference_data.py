"""Pairs of portfolios that a training prefers by, with the policy that it starts from."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.policies.fit import Start

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PreferenceData:
    """P pairs, each of a chosen and a rejected portfolio from one state of an account."""

    decided_at: NDArray[np.int64]  # (P,) session of the decision, index into the panel
    held: FloatArray  # (P, N+1) weights at its close, cash last
    drawdown: FloatArray  # (P,)
    chosen: FloatArray  # (P, N+1) target weights
    rejected: FloatArray  # (P, N+1)
    flip: FloatArray  # (P,) probability that the rejected portfolio is the better one
    weight: FloatArray  # (P,) of the pair in the loss
    is_holdout: NDArray[np.bool_]  # (P,) whether it is not trained on, only stopped by

    def __len__(self) -> int:
        return len(self.decided_at)

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """Select some pairs."""
        return type(self)(**{name: values[chosen] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Tuning(Start):
    """What a policy is tuned by: the policy that it starts from, and the pairs."""

    pairs: PreferenceData
