"""Constraints and objective of a Mean-CVaR portfolio."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.cufolio import MAX_MAGNITUDE

FloatArray = NDArray[np.float64]
ConstraintFactory = Callable[[cp.Variable], Sequence[cp.Constraint]]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints on the weights, as fractions of equity; a scalar applies to every name.

    Cash equals its floor unless a ceiling is given: cash has no loss, so free cash would make all cash optimal.
    """

    floor: float | FloatArray = 0.0  # (N,) minimum weight of each name; negative allows short positions
    cap: float | FloatArray = 1.0  # (N,) maximum weight of each name
    cash_floor: float = 0.0
    cash_ceiling: float | None = None  # None: cash equals the floor
    turnover: float | None = None  # maximum one-way turnover: half the sum of absolute changes, cash included
    gross: float | None = None  # maximum sum of absolute weights
    center: float | FloatArray = 0.0  # (N,) weights to stay near
    distance: float | None = None  # maximum one-way distance from the center, measured as turnover is
    sectors: Mapping[str, str] = field(default_factory=dict)  # name -> sector
    sector_caps: Mapping[str, float] = field(default_factory=dict)  # sector -> maximum sum of its weights
    further: ConstraintFactory | None = None  # of the weight variable (N,): linear, second-order or integer


@dataclass(frozen=True, eq=False)
class Objective:
    """Terms of the objective, which is minimized.

    It is risk_aversion x CVaR - expected return + cost of trading + volatility_penalty x volatility.
    """

    confidence_level: float = 0.95  # of the CVaR; the tail, (1 - level) x S, must be at least one scenario
    risk_aversion: float = 1.0  # units of expected return per unit of CVaR
    cost_bps: float | FloatArray = 0.0  # (N,) basis points of the absolute change from the current weight
    volatility_penalty: float = 0.0  # units of expected return per unit of volatility


@dataclass(frozen=True, eq=False)
class Limits:
    """Constraints as arrays over the names, defaults resolved."""

    floor: FloatArray  # (N,)
    cap: FloatArray  # (N,)
    min_invested: float  # sum of the weights, cash excluded
    max_invested: float
    turnover: float | None
    gross: float | None
    center: FloatArray  # (N,)
    distance: float | None
    sector_members: tuple[tuple[int, ...], ...]  # of each capped sector
    sector_caps: FloatArray  # (sectors,)
    sector_names: tuple[str, ...]


def resolve_limits(names: Sequence[str], constraints: Constraints) -> Limits:
    """Return the constraints as arrays over `names`.

    Raises:
        ValueError: if a name or sector is unknown, or an array has the wrong shape or is not finite.
    """
    unknown = sorted(set(constraints.sectors) - set(names))
    if unknown:
        raise ValueError(
            f"sectors must be given for the names {list(names)}, but {unknown} are not among them; drop them"
        )
    empty = sorted(set(constraints.sector_caps) - set(constraints.sectors.values()))
    if empty:
        raise ValueError(f"each capped sector needs names, but none is in {empty}; assign names to it in `sectors`")
    sector_names = tuple(sorted(constraints.sector_caps))
    members = tuple(
        tuple(i for i, name in enumerate(names) if constraints.sectors.get(name) == sector) for sector in sector_names
    )
    cash_ceiling = constraints.cash_floor if constraints.cash_ceiling is None else constraints.cash_ceiling
    return Limits(
        floor=broadcast_per_name(constraints.floor, len(names), "floor"),
        cap=broadcast_per_name(constraints.cap, len(names), "cap"),
        min_invested=1.0 - cash_ceiling,
        max_invested=1.0 - constraints.cash_floor,
        turnover=constraints.turnover,
        gross=constraints.gross,
        center=broadcast_per_name(constraints.center, len(names), "center"),
        distance=constraints.distance,
        sector_members=members,
        sector_caps=np.array([constraints.sector_caps[name] for name in sector_names], dtype=np.float64),
        sector_names=sector_names,
    )


def broadcast_per_name(value: float | FloatArray, n_names: int, field_name: str) -> FloatArray:
    """Return finite values (N,) from one for all names or one per name."""
    if np.ndim(value) == 0:
        return check_per_name(np.full(n_names, value, dtype=np.float64), n_names, field_name)
    return check_per_name(value, n_names, field_name, "be a number or ")


def check_per_name(values: float | FloatArray, n_names: int, field_name: str, alternative: str = "") -> FloatArray:
    """Return the values as a contiguous array, if they are finite and of shape (N,)."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if np.shape(values) != (n_names,):
        raise ValueError(
            f"{field_name} must {alternative}have shape ({n_names},), but has {np.shape(values)}; give one per name"
        )
    if not (np.abs(array) <= MAX_MAGNITUDE).all():
        raise ValueError(
            f"{field_name} must be finite and at most {MAX_MAGNITUDE:g}, but is {values}; "
            "replace missing and infinite values"
        )
    return array
