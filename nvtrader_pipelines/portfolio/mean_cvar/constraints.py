"""What a mean-CVaR portfolio must keep and what it weighs up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.bounds import LARGEST

FloatArray = NDArray[np.float64]
FurtherConstraints = Callable[[cp.Variable], Sequence[cp.Constraint]]


@dataclass(frozen=True, eq=False)
class Constraints:
    """Bounds on the weights, fractions of equity; a scalar holds for every name.

    Cash is fixed at its floor unless it has a ceiling: cash has no loss, so all of it would be optimal if it were free.
    """

    floor: float | FloatArray = 0.0  # (N,) least weight of each name; negative allows short positions
    cap: float | FloatArray = 1.0  # (N,) greatest weight of each name
    cash_floor: float = 0.0
    cash_ceiling: float | None = None  # None: cash is exactly the floor
    turnover: float | None = None  # one-way budget: half the sum of absolute changes, cash included
    gross: float | None = None  # greatest sum of absolute weights
    sectors: Mapping[str, str] = field(default_factory=dict)  # name -> sector
    sector_caps: Mapping[str, float] = field(default_factory=dict)  # sector -> greatest sum of its weights
    further: FurtherConstraints | None = None  # cvxpy constraints on the weights (N,): linear, second-order, integer


@dataclass(frozen=True, eq=False)
class Objective:
    """What is minimised: risk_aversion x CVaR - expected return + cost of trading + volatility_penalty x volatility."""

    confidence_level: float = 0.95  # of the CVaR; the tail, (1 - level) of the scenarios, must hold at least one
    risk_aversion: float = 1.0  # units of expected return per unit of CVaR
    cost_bps: float | FloatArray = 0.0  # (N,) basis points x sum of absolute changes from current weights
    volatility_penalty: float = 0.0  # units of expected return per unit of volatility


@dataclass(frozen=True, eq=False)
class Limits:
    """Constraints as arrays over the names."""

    floor: FloatArray  # (N,)
    cap: FloatArray  # (N,)
    least_invested: float  # in the names
    most_invested: float
    turnover: float | None
    gross: float | None
    sector_members: tuple[tuple[int, ...], ...]  # of each capped sector
    sector_caps: FloatArray  # (sectors,)
    sector_names: tuple[str, ...]


def limits_of(names: Sequence[str], constraints: Constraints) -> Limits:
    """The constraints over `names`, shapes checked.

    Raises:
        ValueError: if a name or sector is unknown, or an array has another shape or is not finite.
    """
    unknown = sorted(set(constraints.sectors) - set(names))
    if unknown:
        raise ValueError(f"sectors must be of the names {list(names)}, but {unknown} are not among them; drop them")
    empty = sorted(set(constraints.sector_caps) - set(constraints.sectors.values()))
    if empty:
        raise ValueError(f"each sector cap needs names, but no name is in {empty}; say which in `sectors`")
    sector_names = tuple(sorted(constraints.sector_caps))
    members = tuple(
        tuple(i for i, name in enumerate(names) if constraints.sectors.get(name) == sector) for sector in sector_names
    )
    cash_ceiling = constraints.cash_floor if constraints.cash_ceiling is None else constraints.cash_ceiling
    return Limits(
        floor=per_name(constraints.floor, len(names), "floor"),
        cap=per_name(constraints.cap, len(names), "cap"),
        least_invested=1.0 - cash_ceiling,
        most_invested=1.0 - constraints.cash_floor,
        turnover=constraints.turnover,
        gross=constraints.gross,
        sector_members=members,
        sector_caps=np.array([constraints.sector_caps[name] for name in sector_names], dtype=np.float64),
        sector_names=sector_names,
    )


def per_name(value: float | FloatArray, n_names: int, what: str) -> FloatArray:
    """A finite value for each name, (N,), from one for all or one for each."""
    if np.ndim(value) == 0:
        return each_name(np.full(n_names, value, dtype=np.float64), n_names, what)
    return each_name(value, n_names, what, "be a number or ")


def each_name(values: float | FloatArray, n_names: int, what: str, alternative: str = "") -> FloatArray:
    """Finite values (N,), one for each name."""
    given = np.ascontiguousarray(values, dtype=np.float64)
    if np.shape(values) != (n_names,):
        raise ValueError(
            f"{what} must {alternative}have shape ({n_names},), but has {np.shape(values)}; give one a name"
        )
    if not (np.abs(given) <= LARGEST).all():
        raise ValueError(f"{what} must be finite and at most {LARGEST:g}, but is {values}; replace what is not")
    return given
