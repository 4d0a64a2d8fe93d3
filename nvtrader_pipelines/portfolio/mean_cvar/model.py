"""Model in cvxpy of all constraints and terms except CVaR, which depends on scenarios."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.constraints import ConstraintFactory, Limits, Objective, broadcast_per_name

FloatArray = NDArray[np.float64]
ParameterValues = Mapping[str, FloatArray]
NONNEGATIVE = frozenset({"cost"})  # parameters whose sign must be declared for DPP


@dataclass(frozen=True)
class Structure:
    """Constraints and terms that a program has, without their values.

    Programs of one structure share a compiled model.
    """

    n_names: int
    cash_varies: bool
    trades: bool  # has a turnover budget or a cost, so that current weights matter
    turnover: bool
    gross: bool
    distance: bool
    volatility: bool
    sector_members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class FurtherConstraints:
    """Further constraints of one optimizer, on a variable that all its programs share."""

    weights: cp.Variable  # (N,)
    constraints: tuple[cp.Constraint, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """Program in which CVaR and volatility are free variables, to be bounded from below."""

    weights: cp.Variable  # (N,)
    turnover: cp.Expression  # one-way, cash included; 0 without a turnover budget or a cost
    cvar: cp.Variable  # risk aversion x CVaR
    volatility: cp.Variable  # penalty x volatility
    constraints: list[cp.Constraint]
    objective: cp.Expression

    @property
    def problem(self) -> cp.Problem:
        """Problem without scenarios."""
        return cp.Problem(cp.Minimize(self.objective), self.constraints)


def program_structure(limits: Limits, objective: Objective) -> Structure:
    """Structure of the program with these limits and this objective."""
    return Structure(
        n_names=len(limits.cap),
        cash_varies=limits.max_invested > limits.min_invested,
        trades=limits.turnover is not None or bool(np.any(np.asarray(objective.cost_bps) > 0.0)),
        turnover=limits.turnover is not None,
        gross=limits.gross is not None,
        distance=limits.distance is not None,
        volatility=objective.volatility_penalty > 0.0,
        sector_members=limits.sector_members,
    )


def build_further_constraints(factory: ConstraintFactory, n_names: int) -> FurtherConstraints:
    """Call the factory once and store its constraints.

    Raises:
        ValueError: if it does not return a sequence of cvxpy constraints.
    """
    weights = cp.Variable(n_names)
    constraints = factory(weights)
    if not isinstance(constraints, Sequence) or not all(
        isinstance(constraint, cp.Constraint) for constraint in constraints
    ):
        raise ValueError(
            f"further constraints must be a sequence of cvxpy constraints, but are {constraints!r}; return a list"
        )
    return FurtherConstraints(weights, tuple(constraints))


def fixed_parameter_values(structure: Structure, limits: Limits, objective: Objective) -> dict[str, FloatArray]:
    """Values of the parameters that are the same in every instance, by parameter name."""
    values = {"floor": limits.floor, "cap": limits.cap, "min_invested": limits.min_invested}
    if structure.cash_varies:
        values["max_invested"] = limits.max_invested
    if structure.trades:
        values["cost"] = broadcast_per_name(objective.cost_bps, structure.n_names, "cost_bps") * 1e-4
    if limits.turnover is not None:
        values["turnover"] = limits.turnover
    if limits.gross is not None:
        values["gross"] = limits.gross
    if limits.distance is not None:
        values |= {"center": limits.center, "distance": limits.distance}
    if structure.sector_members:
        values["sector_caps"] = limits.sector_caps
    return {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}


def build_parameters(structure: Structure) -> dict[str, cp.Parameter]:
    """Create the cvxpy parameters of a structure, those of the instance included."""
    n_names, n_sectors = structure.n_names, len(structure.sector_members)
    shapes: dict[str, tuple[int, ...]] = {
        "floor": (n_names,),
        "cap": (n_names,),
        "min_invested": (),
        "expected_returns": (n_names,),
    }
    if structure.cash_varies:
        shapes["max_invested"] = ()
    if structure.trades:
        shapes |= {"cost": (n_names,), "current": (n_names,), "cost_of_current": ()}
    if structure.turnover:
        shapes["turnover"] = ()
    if structure.gross:
        shapes["gross"] = ()
    if structure.distance:
        shapes |= {"center": (n_names,), "distance": ()}
    if n_sectors:
        shapes["sector_caps"] = (n_sectors,)
    return {name: cp.Parameter(shape, name=name, nonneg=name in NONNEGATIVE) for name, shape in shapes.items()}


def build_model(
    structure: Structure, values: Mapping[str, cp.Expression], further: FurtherConstraints | None = None
) -> Model:
    """Build the model over `values`, which are parameters or constants.

    The absolute change of a weight is written as 2 x purchase - change. This needs one variable per name and keeps the
    model DPP, unlike cost x |change|, which cvxpy would compile again for every new value. Cash changes by sales less
    purchases, so one-way turnover with cash is the larger of purchases and sales.
    """
    weights = cp.Variable(structure.n_names) if further is None else further.weights
    cvar, volatility = cp.Variable(), cp.Variable()
    constraints: list[Any] = [weights >= values["floor"], weights <= values["cap"]]
    invested = cp.sum(weights)
    if structure.cash_varies:
        constraints += [invested >= values["min_invested"], invested <= values["max_invested"]]
    else:
        constraints.append(invested == values["min_invested"])
    objective = cvar - values["expected_returns"] @ weights
    turnover: Any = cp.Constant(0.0)
    if structure.trades:
        bought = cp.Variable(structure.n_names, nonneg=True)
        constraints.append(weights - bought <= values["current"])
        turnover = _one_way(weights, values["current"], bought)
        objective += values["cost"] @ (2.0 * bought - weights) + values["cost_of_current"]
    if structure.turnover:
        constraints += [part <= values["turnover"] for part in turnover.args]
    if structure.gross:
        constraints.append(cp.norm1(weights) <= values["gross"])
    if structure.distance:
        above = cp.Variable(structure.n_names, nonneg=True)
        constraints.append(weights - above <= values["center"])
        constraints += [part <= values["distance"] for part in _one_way(weights, values["center"], above).args]
    if structure.volatility:
        constraints.append(volatility >= 0.0)
        objective += volatility
    constraints += [
        cp.sum(weights[list(members)]) <= values["sector_caps"][i] for i, members in enumerate(structure.sector_members)
    ]
    if further is not None:
        constraints += further.constraints
    return Model(weights, turnover, cvar, volatility, constraints, objective)


def _one_way(weights: cp.Variable, start: cp.Expression, above: cp.Variable) -> Any:
    """One-way distance of weights (N,) from others, cash included, if `above` is their excess."""
    return cp.maximum(cp.sum(above), cp.sum(above - weights) + cp.sum(start))
