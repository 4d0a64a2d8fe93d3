"""What a mean-CVaR portfolio must keep and what it weighs up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

FurtherConstraints = Callable[[cp.Variable], Sequence[cp.Constraint]]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Bounds on the weights, fractions of equity; a scalar holds for every name.

    Cash is fixed at its floor unless it has a ceiling: scenarios without loss make all-cash optimal where it is free.
    """

    floor: float | NDArray[np.float64] = 0.0  # (N,) least weight of each name; negative allows short positions
    cap: float | NDArray[np.float64] = 1.0  # (N,) greatest weight of each name
    cash_floor: float = 0.0
    cash_ceiling: float | None = None  # None: cash is exactly the floor
    turnover: float | None = None  # one-way budget: half the sum of absolute changes of the names, cash excluded
    gross: float | None = None  # greatest sum of absolute weights
    sectors: Mapping[str, str] = field(default_factory=dict)  # name -> sector
    sector_caps: Mapping[str, float] = field(default_factory=dict)  # sector -> greatest sum of its weights
    further: FurtherConstraints | None = None  # cvxpy constraints on the weights (N,): linear, second-order, integer


@dataclass(frozen=True, eq=False)
class Objective:
    """What is minimised: risk_aversion x CVaR - expected return + cost of trading + volatility_penalty x volatility."""

    confidence_level: float = 0.95  # of the CVaR; the tail, (1 - level) of the scenarios, must hold at least one
    risk_aversion: float = 1.0  # units of expected return per unit of CVaR
    cost_bps: float | NDArray[np.float64] = 0.0  # (N,) basis points x sum of absolute changes from current weights
    volatility_penalty: float = 0.0  # units of expected return per unit of volatility
