"""Mean-CVaR optimizer: built once from constraints and objective, solved on any scenarios."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import order_by_names
from nvtrader_pipelines.portfolio.cufolio import MAX_MAGNITUDE
from nvtrader_pipelines.portfolio.mean_cvar.canonical import compile_program, compile_structure
from nvtrader_pipelines.portfolio.mean_cvar.checks import (
    check_attainable,
    check_current,
    check_method,
    check_names,
    check_objective,
    check_ranges,
    check_scenarios,
)
from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective, check_per_name, resolve_limits
from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds, Master, MasterError, solve_by_cuts
from nvtrader_pipelines.portfolio.mean_cvar.model import (
    build_further_constraints,
    fixed_parameter_values,
    program_structure,
)
from nvtrader_pipelines.portfolio.mean_cvar.problem_instance import ProblemInstance, min_unit, normalize_instance
from nvtrader_pipelines.portfolio.mean_cvar.solution import (
    SMALL,
    TOLERANCE,
    InfeasibleError,
    MeanCvarSolution,
    Method,
    UncertifiedError,
    relative_gap,
)
from nvtrader_pipelines.portfolio.mean_cvar.tail import portfolio_returns, tail_of
from nvtrader_pipelines.portfolio.mean_cvar.ties import break_ties
from nvtrader_pipelines.portfolio.mean_cvar.whole_program import min_turnover, solve_whole, whole_program

FloatArray = NDArray[np.float64]
Spec = TypeVar("Spec", Constraints, Objective)
ROUNDING = 1e-8  # x unit or |objective|: solver tolerances let bounds cross by this much


class MeanCvar:
    """Optimizer of expected return against CVaR over `names`, under `constraints`.

    The model is compiled once per structure (the set of constraints and terms, without their values), so another
    optimizer with other values is cheap. Further constraints are called and compiled once per optimizer.

    Linear programs are solved by cutting planes. If these stall, as they do on a hundred nearly independent names, and
    for second-order or integer constraints, the whole Rockafellar-Uryasev program is solved. Equal inputs give equal
    weights, byte for byte. Ties are broken by the smallest Euclidean norm, so identical names get equal weights; where
    the whole program was solved, they are left as its solver breaks them.

    Source: Rockafellar & Uryasev (2000, 2002).
    """

    def __init__(
        self, names: Sequence[str], constraints: Constraints | None = None, objective: Objective | None = None
    ) -> None:
        """Check the constraints and the objective, and compile their structure if it is new.

        Raises:
            ValueError: if a value is out of range or has the wrong shape, or further constraints are of another kind.
            InfeasibleError: if no portfolio can satisfy the constraints (a ValueError).
        """
        check_names(names)
        constraints, objective = constraints or Constraints(), objective or Objective()
        constraints = _order_fields(constraints, ("floor", "cap", "center"), names)
        self._objective = _order_fields(objective, ("cost_bps",), names)
        check_objective(self._objective, len(names))
        check_ranges(constraints)
        self._names = tuple(names)
        self._limits = resolve_limits(names, constraints)
        check_attainable(names, self._limits)
        self._structure = program_structure(self._limits, self._objective)
        self._fixed_values = fixed_parameter_values(self._structure, self._limits, self._objective)
        self._further = (
            None if constraints.further is None else build_further_constraints(constraints.further, len(self._names))
        )
        self._compiled = (
            compile_structure(self._structure)
            if self._further is None
            else compile_program(self._structure, self._further)
        )

    def solve(
        self,
        scenarios: FloatArray,
        *,
        current: FloatArray | None = None,
        expected_returns: FloatArray | None = None,
        volatility_factor: FloatArray | None = None,
        method: Method = "cuts",
    ) -> MeanCvarSolution:
        """Return the optimal portfolio on equally likely scenarios, with its certificate.

        Args:
            scenarios: simple returns over the horizon, (S, N).
            current: current (drifted) weights, (N,), the rest is cash; required by a turnover budget or a cost.
            expected_returns: over the horizon, (N,); None minimizes CVaR alone.
            volatility_factor: L, (N, K), of the covariance L L' over the horizon; required by a volatility penalty.
            method: cutting planes first, or only the whole Rockafellar-Uryasev program.

        Raises:
            ValueError: if an input is malformed.
            InfeasibleError: if no portfolio satisfies the constraints (a ValueError).
            UncertifiedError: if the gap stays above 1e-7.
        """
        check_method(method)
        instance = normalize_instance(self._build_instance(scenarios, current, expected_returns, volatility_factor))
        smallest = min_unit(instance)
        try:
            bounds, used = self._solve(instance, method, self._start_weights(instance))
            while abs(bounds.upper) < SMALL and instance.unit > smallest:
                instance, bounds, used = self._refine(instance, bounds, used, smallest)
        except InfeasibleError as failure:
            raise InfeasibleError(self._explain_infeasibility(instance, failure)) from failure
        return self._certify(instance, bounds, used, smallest)

    def reference(
        self,
        scenarios: FloatArray,
        *,
        current: FloatArray | None = None,
        expected_returns: FloatArray | None = None,
        volatility_factor: FloatArray | None = None,
    ) -> cp.Problem:
        """Build the whole program in cvxpy, whose optimal value `solve` reaches.

        Source: Rockafellar & Uryasev (2000).
        """
        instance = self._build_instance(scenarios, current, expected_returns, volatility_factor)
        return whole_program(self._structure, self._further, self._parameter_values(instance), instance).problem

    def _build_instance(
        self,
        scenarios: FloatArray,
        current: FloatArray | None,
        expected_returns: FloatArray | None,
        volatility_factor: FloatArray | None,
    ) -> ProblemInstance:
        """Check the inputs and return them in units of wealth."""
        n_names, objective = len(self._names), self._objective
        scenarios = order_by_names(scenarios, self._names, "scenarios", axis=1)
        current = order_by_names(current, self._names, "current")
        expected_returns = order_by_names(expected_returns, self._names, "expected_returns")
        volatility_factor = order_by_names(volatility_factor, self._names, "volatility_factor")
        returns = check_scenarios(scenarios, n_names, objective.confidence_level)
        held = None if current is None else check_per_name(current, n_names, "current")
        if held is not None:
            check_current(held, self._limits)
        elif self._structure.trades:
            raise ValueError("a turnover budget or a cost needs current weights, but none were given; pass `current`")
        factor = None
        if self._structure.volatility:
            factor = _check_volatility_factor(volatility_factor, n_names) * objective.volatility_penalty
        mean = (
            np.zeros(n_names)
            if expected_returns is None
            else check_per_name(expected_returns, n_names, "expected_returns")
        )
        return ProblemInstance(
            scenarios=returns,
            tail_size=(1.0 - objective.confidence_level) * len(returns),
            unit=1.0,
            risk=objective.risk_aversion,
            expected_returns=mean,
            current=held,
            cost=self._fixed_values["cost"] if self._structure.trades else None,
            volatility_factor=factor,
        )

    def _parameter_values(self, instance: ProblemInstance) -> dict[str, FloatArray]:
        values = self._fixed_values | {"expected_returns": instance.expected_returns}
        cost, current = instance.cost, instance.current
        if cost is not None and current is not None:
            values |= {"cost": cost, "current": current, "cost_of_current": cost @ current}
        return values

    def _solve(self, instance: ProblemInstance, method: Method, start: FloatArray) -> tuple[Bounds, Method]:
        """Solve by cuts, or by the whole program if the cuts do not apply or do not close."""
        values = self._parameter_values(instance)
        if method == "cuts" and self._compiled is not None:
            try:
                master = Master(self._compiled, self._compiled.at(values))
                bounds = solve_by_cuts(master, instance, start)
                if abs(relative_gap(bounds.upper, bounds.lower)) <= TOLERANCE:
                    return break_ties(master, instance, bounds), "cuts"
            except MasterError:
                pass  # the whole program may still be solved
        return solve_whole(self._structure, self._further, values, instance), "rockafellar_uryasev"

    def _refine(
        self, instance: ProblemInstance, bounds: Bounds, method: Method, smallest: float
    ) -> tuple[ProblemInstance, Bounds, Method]:
        """Solve again in units of the objective found, since solver tolerances are absolute.

        If no solver succeeds in these units, the bounds stay as they are and the certificate decides.
        """
        finer = instance.in_units_of(max(abs(bounds.upper) * instance.unit, smallest))
        try:
            finer_bounds, used = self._solve(finer, method, bounds.weights)
        except UncertifiedError:
            factor = instance.unit / finer.unit
            return finer, replace(bounds, upper=bounds.upper * factor, lower=bounds.lower * factor), method
        return finer, replace(finer_bounds, n_iterations=bounds.n_iterations + finer_bounds.n_iterations), used

    def _start_weights(self, instance: ProblemInstance) -> FloatArray:
        if instance.current is not None:
            return instance.current
        return np.clip(self._limits.max_invested / len(self._names), self._limits.floor, self._limits.cap)

    def _certify(self, instance: ProblemInstance, bounds: Bounds, method: Method, smallest: float) -> MeanCvarSolution:
        """Return the solution if the gap of its recomputed objective is within the tolerance."""
        weights = np.clip(bounds.weights, self._limits.floor, self._limits.cap)
        tail = tail_of(-portfolio_returns(instance.scenarios, weights), instance.tail_size)
        mean = float(instance.expected_returns @ weights) * instance.unit
        trades = np.zeros(len(weights)) if instance.current is None else weights - instance.current
        cost = 0.0 if instance.cost is None else float(self._fixed_values["cost"] @ np.abs(trades))
        objective = self._objective.risk_aversion * tail.cvar - mean + cost
        if instance.volatility_factor is not None:
            objective += float(np.linalg.norm(weights @ instance.volatility_factor)) * instance.unit
        lower = bounds.lower * instance.unit
        if objective < lower <= objective + ROUNDING * max(instance.unit, abs(objective)):
            lower = objective
        gap = relative_gap(objective, lower, smallest)
        if not 0.0 <= gap <= TOLERANCE:
            advice = (
                "loosen the constraints, which leave almost no feasible portfolio"
                if gap < 0.0
                else "check the scale of the inputs"
            )
            raise UncertifiedError(
                f"a solution must be within {TOLERANCE:g} of the lower bound, but {objective:.12g} is {gap:.2g} from "
                f"{lower:.12g} by {method} after {bounds.n_iterations} iterations; {advice}"
            )
        most, least = self._limits.max_invested, self._limits.min_invested
        return MeanCvarSolution(
            weights=weights,
            cash=1.0 - float(np.clip(weights.sum(), least, most)),
            value_at_risk=tail.value_at_risk,
            cvar=tail.cvar,
            expected_return=mean,
            turnover=0.5 * float(np.abs(trades).sum() + abs(trades.sum())),
            cost=cost,
            objective=objective,
            lower_bound=lower,
            gap=gap,
            n_iterations=bounds.n_iterations,
            method=method,
        )

    def _explain_infeasibility(self, instance: ProblemInstance, failure: InfeasibleError) -> str:
        """Explain why no portfolio is feasible; name the turnover needed if the budget is the cause."""
        if self._limits.turnover is None:
            return f"{failure}: {self._describe_constraints()}"
        needed = min_turnover(self._structure, self._further, self._parameter_values(instance))
        if needed is None:
            return f"even without a turnover budget {failure}: {self._describe_constraints()}"
        return (
            f"from the current weights the other constraints need a one-way turnover of {needed:.6g}, but the budget "
            f"is {self._limits.turnover:g}; raise the budget"
        )

    def _describe_constraints(self) -> str:
        limits = self._limits
        cash = " to ".join(
            f"{1.0 - invested:g}" for invested in dict.fromkeys((limits.max_invested, limits.min_invested))
        )
        known = [f"floors that sum to {limits.floor.sum():g}, caps that sum to {limits.cap.sum():g}, cash of {cash}"]
        if limits.gross is not None:
            known.append(f"a gross limit of {limits.gross:g}")
        if limits.distance is not None:
            known.append(f"a distance of {limits.distance:g} from the center")
        known += [
            f"a cap of {cap:g} on sector {name!r}"
            for name, cap in zip(limits.sector_names, limits.sector_caps, strict=True)
        ]
        if self._further is not None:
            known.append(f"{len(self._further.constraints)} further constraints")
        return ", ".join(known) + "; loosen one of them"


def _order_fields(spec: Spec, fields: Sequence[str], names: Sequence[str]) -> Spec:
    """Return constraints or an objective whose values per name are in the order of the names."""
    return replace(spec, **{field: order_by_names(getattr(spec, field), names, field) for field in fields})


def _check_volatility_factor(factor: FloatArray | None, n_names: int) -> FloatArray:
    """Return the volatility factor (N, K) if it is finite and of that shape."""
    if factor is None:
        raise ValueError("a volatility penalty needs a covariance, but none was given; pass `volatility_factor`")
    checked = np.asarray(factor, dtype=np.float64)
    if checked.ndim != 2 or len(checked) != n_names or not (np.abs(checked) <= MAX_MAGNITUDE).all():
        raise ValueError(
            f"volatility_factor must be finite, at most {MAX_MAGNITUDE:g} and of shape ({n_names}, K), but has "
            f"{checked.shape}; transpose it"
        )
    return checked
