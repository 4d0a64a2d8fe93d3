"""The cvxpy model of everything but the scenarios: weights, trades, cash, limits and the rest of the objective."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.mean_cvar.constraints import FurtherConstraints, Limits, Objective, per_name

FloatArray = NDArray[np.float64]
Numbers = Mapping[str, FloatArray]
NONNEGATIVE = frozenset({"cost"})  # whose sign DPP must know


@dataclass(frozen=True)
class Structure:
    """Which constraints and terms a program has, without their numbers; programs of one structure share a model."""

    n_names: int
    cash_varies: bool
    trades: bool  # whether trades from the current weights matter: a turnover budget or a cost
    turnover: bool
    gross: bool
    volatility: bool
    sector_members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Further:
    """Further constraints of one optimizer, written once for a variable that all its programs share."""

    weights: cp.Variable  # (N,)
    constraints: tuple[cp.Constraint, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """Variables, constraints and objective of a program whose CVaR and volatility are still free variables."""

    weights: cp.Variable  # (N,)
    turnover: cp.Expression  # one-way, cash included; 0 where trades do not matter
    cvar: cp.Variable  # x risk aversion
    volatility: cp.Variable  # x its penalty
    constraints: list[cp.Constraint]
    objective: cp.Expression

    @property
    def problem(self) -> cp.Problem:
        """The program without scenarios."""
        return cp.Problem(cp.Minimize(self.objective), self.constraints)


def structure_of(limits: Limits, objective: Objective) -> Structure:
    """The structure of a program."""
    return Structure(
        n_names=len(limits.cap),
        cash_varies=limits.most_invested > limits.least_invested,
        trades=limits.turnover is not None or bool(np.any(np.asarray(objective.cost_bps) > 0.0)),
        turnover=limits.turnover is not None,
        gross=limits.gross is not None,
        volatility=objective.volatility_penalty > 0.0,
        sector_members=limits.sector_members,
    )


def further_of(write: FurtherConstraints, n_names: int) -> Further:
    """The further constraints, with the numbers they have now.

    Raises:
        ValueError: if they are no sequence of cvxpy constraints.
    """
    weights = cp.Variable(n_names)
    constraints = write(weights)
    if not isinstance(constraints, Sequence) or not all(isinstance(each, cp.Constraint) for each in constraints):
        raise ValueError(
            f"further constraints must be a sequence of cvxpy constraints, but are {constraints!r}; return a list"
        )
    return Further(weights, tuple(constraints))


def numbers_of(structure: Structure, limits: Limits, objective: Objective) -> dict[str, FloatArray]:
    """The numbers of a program that no market day changes, by the names of the model's parameters."""
    numbers = {
        "floor": limits.floor,
        "cap": limits.cap,
        "least_invested": limits.least_invested,
    }
    if structure.cash_varies:
        numbers["most_invested"] = limits.most_invested
    if structure.trades:
        numbers["cost"] = per_name(objective.cost_bps, structure.n_names, "cost_bps") * 1e-4
    if limits.turnover is not None:
        numbers["turnover"] = limits.turnover
    if limits.gross is not None:
        numbers["gross"] = limits.gross
    if structure.sector_members:
        numbers["sector_caps"] = limits.sector_caps
    return {name: np.asarray(value, dtype=np.float64) for name, value in numbers.items()}


def parameters_of(structure: Structure) -> dict[str, cp.Parameter]:
    """A cvxpy parameter for each number of a structure, those of a market day included."""
    n_names, n_sectors = structure.n_names, len(structure.sector_members)
    shapes: dict[str, tuple[int, ...]] = {
        "floor": (n_names,),
        "cap": (n_names,),
        "least_invested": (),
        "expected_returns": (n_names,),
    }
    if structure.cash_varies:
        shapes["most_invested"] = ()
    if structure.trades:
        shapes |= {"cost": (n_names,), "current": (n_names,), "cost_of_current": ()}
    if structure.turnover:
        shapes["turnover"] = ()
    if structure.gross:
        shapes["gross"] = ()
    if n_sectors:
        shapes["sector_caps"] = (n_sectors,)
    return {name: cp.Parameter(shape, name=name, nonneg=name in NONNEGATIVE) for name, shape in shapes.items()}


def model_of(structure: Structure, numbers: Mapping[str, cp.Expression], further: Further | None = None) -> Model:
    """The model over `numbers`, parameters or constants.

    A change is twice what is bought less the change itself, which needs one variable a name and keeps the model DPP;
    cost x absolute change would not be, and every change of a number would compile it anew. Cash changes by what is
    sold less what is bought, so half the sum of absolute changes is the larger of the two.
    """
    weights = cp.Variable(structure.n_names) if further is None else further.weights
    cvar, volatility = cp.Variable(), cp.Variable()
    constraints: list[Any] = [weights >= numbers["floor"], weights <= numbers["cap"]]
    invested = cp.sum(weights)
    if structure.cash_varies:
        constraints += [invested >= numbers["least_invested"], invested <= numbers["most_invested"]]
    else:
        constraints.append(invested == numbers["least_invested"])
    objective = cvar - numbers["expected_returns"] @ weights
    turnover: Any = cp.Constant(0.0)
    if structure.trades:
        bought = cp.Variable(structure.n_names, nonneg=True)
        constraints.append(weights - bought <= numbers["current"])
        turnover = cp.maximum(cp.sum(bought), cp.sum(bought - weights) + cp.sum(numbers["current"]))
        objective += numbers["cost"] @ (2.0 * bought - weights) + numbers["cost_of_current"]
    if structure.turnover:
        constraints += [part <= numbers["turnover"] for part in turnover.args]
    if structure.gross:
        constraints.append(cp.norm1(weights) <= numbers["gross"])
    if structure.volatility:
        constraints.append(volatility >= 0.0)
        objective += volatility
    constraints += [
        cp.sum(weights[list(members)]) <= numbers["sector_caps"][i]
        for i, members in enumerate(structure.sector_members)
    ]
    if further is not None:
        constraints += further.constraints
    return Model(weights, turnover, cvar, volatility, constraints, objective)
