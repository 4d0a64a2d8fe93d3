"""Checks of constraints, objective and scenarios, made before any solver runs."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.cufolio import MAX_MAGNITUDE, require_risk_aversion
from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Limits, Objective, broadcast_per_name
from nvtrader_pipelines.portfolio.mean_cvar.solution import InfeasibleError, Method

FloatArray = NDArray[np.float64]
ROUNDING = 1e-9  # seven caps of 1/7 sum to less than 1


def check_names(names: Sequence[str]) -> None:
    """Raise if there is no name or a name occurs twice."""
    if not names:
        raise ValueError("a portfolio needs at least one name, but none was given; give the names of the columns")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise ValueError(f"names must differ, but {twice} are given more than once; drop the duplicates")


def check_objective(objective: Objective, n_names: int) -> None:
    """Raise if a number of the objective is out of range or has the wrong shape."""
    _check_scalars(objective, ("confidence_level", "risk_aversion", "volatility_penalty"))
    if not 0.0 < objective.confidence_level < 1.0:
        raise ValueError(
            f"confidence_level must be between 0 and 1, but is {objective.confidence_level}; "
            "0.95 averages the worst 5 % of losses"
        )
    require_risk_aversion(objective.risk_aversion)
    if not 0.0 <= objective.volatility_penalty <= MAX_MAGNITUDE:
        raise ValueError(
            f"volatility_penalty must be finite and at least 0, but is {objective.volatility_penalty}; 0 drops it"
        )
    if (broadcast_per_name(objective.cost_bps, n_names, "cost_bps") < 0.0).any():
        raise ValueError(f"cost_bps must be at least 0, but is {objective.cost_bps}; give costs as positive numbers")


def _check_scalars(spec: Constraints | Objective, field_names: Sequence[str]) -> None:
    for name in field_names:
        value = getattr(spec, name)
        if np.ndim(value):
            raise ValueError(f"{name} must be one number, but has shape {np.shape(value)}; give one for all names")


def check_method(method: str) -> None:
    """Raise if the method does not exist."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {list(get_args(Method))}, but is {method!r}; choose one of them")


def check_ranges(constraints: Constraints) -> None:
    """Raise if a scalar constraint is out of range."""
    _check_scalars(constraints, ("cash_floor", "cash_ceiling", "turnover", "gross", "distance"))
    ceiling = constraints.cash_floor if constraints.cash_ceiling is None else constraints.cash_ceiling
    if not (np.isfinite(constraints.cash_floor) and constraints.cash_floor <= ceiling <= 1.0):
        raise ValueError(
            f"cash needs finite cash_floor <= cash_ceiling <= 1, but they are {constraints.cash_floor} and {ceiling}; "
            "swap or lower them"
        )
    for name in ("turnover", "gross", "distance"):
        value = getattr(constraints, name)
        if value is not None and not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be finite and at least 0, but is {value}; None leaves it unlimited")
    for sector, cap in constraints.sector_caps.items():
        if np.ndim(cap) or not np.isfinite(cap):
            raise ValueError(f"the cap of sector {sector!r} must be finite, but is {cap}; drop it if there is none")


def check_attainable(names: Sequence[str], limits: Limits) -> None:
    """Raise if no portfolio satisfies floors, caps, sector caps, gross limit and cash together."""
    if (limits.cap < 0.0).any():
        raise ValueError(
            f"caps must be at least 0, but {_worst(names, limits.cap)}; to force a short position use `further`"
        )
    if (limits.floor > limits.cap).any():
        raise InfeasibleError(
            f"floors must be at most the caps, but {_worst(names, limits.cap - limits.floor)} for cap - floor; "
            "lower the floor or raise the cap"
        )
    if limits.floor.sum() > limits.max_invested + ROUNDING:
        raise InfeasibleError(
            f"floors must sum to at most 1 - cash_floor = {limits.max_invested:g}, but sum to "
            f"{limits.floor.sum():g} over {len(names)} names; lower the floors or the cash"
        )
    if limits.cap.sum() < limits.min_invested - ROUNDING:
        raise InfeasibleError(
            f"caps must sum to at least 1 - cash = {limits.min_invested:g}, but sum to {limits.cap.sum():g} over "
            f"{len(names)} names; raise the caps or hold more cash"
        )
    if limits.gross is not None and limits.gross < limits.min_invested - ROUNDING:
        raise InfeasibleError(
            f"the gross limit must be at least 1 - cash = {limits.min_invested:g}, but is {limits.gross:g}; "
            "raise it or hold more cash"
        )
    _check_sectors(limits)


def _check_sectors(limits: Limits) -> None:
    attainable = limits.cap.sum()
    for name, members, cap in zip(limits.sector_names, limits.sector_members, limits.sector_caps, strict=True):
        floors = limits.floor[list(members)].sum()
        if floors > cap + ROUNDING:
            raise InfeasibleError(
                f"the floors in sector {name!r} must sum to at most its cap {cap:g}, but sum to {floors:g}; "
                "lower them or raise the cap"
            )
        attainable -= max(limits.cap[list(members)].sum() - cap, 0.0)
    if attainable < limits.min_invested - ROUNDING:
        raise InfeasibleError(
            f"under their sector caps the names must be able to hold 1 - cash = {limits.min_invested:g}, but hold "
            f"{attainable:g} at most; raise the sector caps or hold more cash"
        )


def check_scenarios(scenarios: FloatArray, n_names: int, confidence_level: float) -> FloatArray:
    """Return the scenarios (S, N) as floats in row order.

    Raises:
        ValueError: if the shape is wrong, a value is not finite or too large, or the tail is below one scenario.
    """
    returns = np.ascontiguousarray(scenarios, dtype=np.float64)  # sums round by memory layout
    if returns.ndim != 2 or returns.shape[1] != n_names:
        raise ValueError(
            f"scenarios must have shape (S, {n_names}), but have {returns.shape}; give one column per name"
        )
    tail = (1.0 - confidence_level) * len(returns)
    if tail < 1.0 - ROUNDING:
        raise ValueError(
            f"mean_cvar at {confidence_level:.1%} needs a tail of at least one return, but {len(returns)} scenarios "
            f"leave {tail:.2f}; lower the level or draw more"
        )
    if not np.isfinite(returns).all():
        wrong = np.argwhere(~np.isfinite(returns))
        raise ValueError(
            f"scenarios must be finite, but {len(wrong)} are not, the first at row {wrong[0, 0]} and "
            f"column {wrong[0, 1]}; drop or fill them"
        )
    largest = max(float(returns.max()), -float(returns.min()))
    if largest > MAX_MAGNITUDE:
        raise ValueError(f"scenarios must be at most {MAX_MAGNITUDE:g}, but hold {largest:g}; give simple returns")
    return returns


def check_current(current: FloatArray, limits: Limits) -> None:
    """Raise if the turnover budget is too small to reach floors, caps and cash."""
    if limits.turnover is None:
        return
    needed = least_turnover(current, limits)
    if needed > limits.turnover + ROUNDING:
        raise InfeasibleError(
            f"from the current weights, which invest {current.sum():g}, floors, caps and cash need a one-way turnover "
            f"of {needed:.6g}, but the budget is {limits.turnover:g}; raise the budget"
        )


def least_turnover(current: FloatArray, limits: Limits) -> float:
    """Least one-way turnover from the current weights (N,) to floors, caps and cash; other limits do not count.

    The cheapest trades first move each weight into its bounds, then buy or sell until the invested sum is in its range.
    One-way turnover, half the sum of absolute changes with cash included, is the larger of purchases and sales.
    """
    inside = np.clip(current, limits.floor, limits.cap)
    bought = np.maximum(inside - current, 0.0).sum() + max(limits.min_invested - inside.sum(), 0.0)
    sold = np.maximum(current - inside, 0.0).sum() + max(inside.sum() - limits.max_invested, 0.0)
    return float(max(bought, sold))


def least_distance(center: FloatArray, current: FloatArray, limits: Limits) -> float:
    """Least one-way distance from a center (N,) under floors, caps, cash and turnover budget.

    On the way from its current value to its center, a weight gains as much turnover as it loses distance. So their sum
    over all weights and cash has a minimum, reached at the center clipped to the bounds, and the distance is at least
    what the budget leaves of that sum. The larger of the two bounds is reached.
    """
    nearest = least_turnover(center, limits)
    if limits.turnover is None:
        return nearest
    inside = np.clip(center, limits.floor, limits.cap)
    invested = np.clip(center.sum(), limits.min_invested, limits.max_invested)
    least_sum = sum(
        0.5 * float(np.abs(inside - start).sum() + abs(invested - start.sum())) for start in (center, current)
    )
    return max(nearest, least_sum - limits.turnover)


def _worst(names: Sequence[str], values: FloatArray) -> str:
    worst = int(values.argmin())
    return f"{names[worst]!r} has {values[worst]:g}"
