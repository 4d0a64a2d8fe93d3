"""The mean-CVaR optimizer: one object from constraints and objective, solved for any scenarios."""

from collections.abc import Sequence
from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.portfolio.bounds import LARGEST
from nvtrader_pipelines.portfolio.mean_cvar.canonical import compiled_with, linear_program_of
from nvtrader_pipelines.portfolio.mean_cvar.checks import (
    check_attainable,
    check_current,
    check_method,
    check_names,
    check_objective,
    check_ranges,
    check_scenarios,
)
from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective, each_name, limits_of
from nvtrader_pipelines.portfolio.mean_cvar.cuts import Bounds, Master, MasterError, solve_by_cuts
from nvtrader_pipelines.portfolio.mean_cvar.market import Market, in_own_unit, smallest_unit
from nvtrader_pipelines.portfolio.mean_cvar.model import further_of, numbers_of, structure_of
from nvtrader_pipelines.portfolio.mean_cvar.reference import least_turnover, solve_whole, whole_program
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

FloatArray = NDArray[np.float64]
ROUNDING = 1e-8  # of the unit or the objective: how far bounds may cross by the solvers' tolerances


class MeanCvar:
    """Portfolios of `names` that are optimal between expected return and CVaR under `constraints`.

    The model is compiled once per structure (which constraints there are, not their numbers), so an optimizer with
    other numbers is cheap to make; further constraints are called and compiled once per optimizer, with the numbers
    they have then. Linear constraints are solved by cutting planes; second-order and integer ones by the whole
    Rockafellar-Uryasev program. Equal inputs give equal weights, byte for byte; where the optimum is not unique they
    are the vertex the simplex ends at.

    Source: Rockafellar & Uryasev (2000, 2002).
    """

    def __init__(
        self, names: Sequence[str], constraints: Constraints | None = None, objective: Objective | None = None
    ) -> None:
        """Check the numbers against each other and compile the structure, if it is new.

        Raises:
            ValueError: if a number is out of range or has another shape, or further constraints are none of the above.
            InfeasibleError: if no portfolio can keep the constraints (a ValueError).
        """
        constraints, self._objective = constraints or Constraints(), objective or Objective()
        check_names(names)
        check_objective(self._objective, len(names))
        check_ranges(constraints)
        self._names = tuple(names)
        self._limits = limits_of(names, constraints)
        check_attainable(names, self._limits)
        self._structure = structure_of(self._limits, self._objective)
        self._numbers = numbers_of(self._structure, self._limits, self._objective)
        self._further = None if constraints.further is None else further_of(constraints.further, len(self._names))
        self._compiled = (
            linear_program_of(self._structure)
            if self._further is None
            else compiled_with(self._structure, self._further)
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
        """The optimal portfolio on equally likely scenarios, with its certificate.

        Args:
            scenarios: simple returns over the horizon, (S, N).
            current: weights now, drifted, (N,); needed by a turnover budget or a cost, and the rest is cash.
            expected_returns: over the horizon, (N,); None leaves the mean out: the least CVaR.
            volatility_factor: L, (N, K), of the covariance L L' over the horizon; needed by a volatility penalty.
            method: cutting planes where the constraints are linear, or always the whole Rockafellar-Uryasev program.

        Raises:
            ValueError: if an input is malformed.
            InfeasibleError: if no portfolio keeps the constraints (a ValueError).
            UncertifiedError: if the gap stays above 1e-7.
        """
        check_method(method)
        market = in_own_unit(self._market(scenarios, current, expected_returns, volatility_factor))
        smallest = smallest_unit(market)
        try:
            bounds, used = self._bounds(market, method, self._start(market))
            while abs(bounds.upper) < SMALL and market.unit > smallest:
                market, bounds, used = self._refined(market, bounds, used, smallest)
        except InfeasibleError as failure:
            raise InfeasibleError(self._diagnosis(market, failure)) from failure
        return self._certified(market, bounds, used, smallest)

    def reference(
        self,
        scenarios: FloatArray,
        *,
        current: FloatArray | None = None,
        expected_returns: FloatArray | None = None,
        volatility_factor: FloatArray | None = None,
    ) -> cp.Problem:
        """The whole program in cvxpy, level and excesses explicit; its value is the optimum that `solve` reaches.

        Source: Rockafellar & Uryasev (2000).
        """
        market = self._market(scenarios, current, expected_returns, volatility_factor)
        return whole_program(self._structure, self._further, self._numbers_on(market), market).problem

    def _market(
        self,
        scenarios: FloatArray,
        current: FloatArray | None,
        expected_returns: FloatArray | None,
        volatility_factor: FloatArray | None,
    ) -> Market:
        """The inputs as given, checked: in units of wealth."""
        n_names, objective = len(self._names), self._objective
        found = check_scenarios(scenarios, n_names, objective.confidence_level)
        now = None if current is None else each_name(current, n_names, "current")
        if now is not None:
            check_current(now, self._limits)
        elif self._structure.trades:
            raise ValueError("a turnover budget or a cost needs the weights now, but none were given; pass `current`")
        factor = None
        if self._structure.volatility:
            factor = _checked_factor(volatility_factor, n_names) * objective.volatility_penalty
        mean = (
            np.zeros(n_names) if expected_returns is None else each_name(expected_returns, n_names, "expected_returns")
        )
        return Market(
            scenarios=found,
            tail_size=(1.0 - objective.confidence_level) * len(found),
            unit=1.0,
            risk=objective.risk_aversion,
            expected_returns=mean,
            current=now,
            cost=self._numbers["cost"] if self._structure.trades else None,
            volatility_factor=factor,
        )

    def _numbers_on(self, market: Market) -> dict[str, FloatArray]:
        numbers = self._numbers | {"expected_returns": market.expected_returns}
        if market.cost is not None and market.current is not None:
            numbers |= {"cost": market.cost, "current": market.current, "cost_of_current": market.cost @ market.current}
        return numbers

    def _bounds(self, market: Market, method: Method, start: FloatArray) -> tuple[Bounds, Method]:
        """Bounds by cuts where they can, and by the whole program where they cannot or do not close."""
        numbers = self._numbers_on(market)
        if method == "cuts" and self._compiled is not None:
            try:
                master = Master(self._compiled, self._compiled.at(numbers))
                bounds = solve_by_cuts(master, market, start)
                if abs(relative_gap(bounds.upper, bounds.lower)) <= TOLERANCE:
                    return bounds, "cuts"
            except MasterError:
                pass  # the whole program has another solver's view
        return solve_whole(self._structure, self._further, numbers, market), "rockafellar_uryasev"

    def _refined(
        self, market: Market, bounds: Bounds, method: Method, smallest: float
    ) -> tuple[Market, Bounds, Method]:
        """The market in units of the objective that was found, and the bounds there: solvers' tolerances are absolute.

        Where no solver copes with such numbers the bounds stay as they are, and the certificate decides.
        """
        finer = market.in_units_of(max(abs(bounds.upper) * market.unit, smallest))
        try:
            found, used = self._bounds(finer, method, bounds.weights)
        except UncertifiedError:
            factor = market.unit / finer.unit
            return finer, replace(bounds, upper=bounds.upper * factor, lower=bounds.lower * factor), method
        return finer, replace(found, n_iterations=bounds.n_iterations + found.n_iterations), used

    def _start(self, market: Market) -> FloatArray:
        if market.current is not None:
            return market.current
        return np.clip(self._limits.most_invested / len(self._names), self._limits.floor, self._limits.cap)

    def _certified(self, market: Market, bounds: Bounds, method: Method, smallest: float) -> MeanCvarSolution:
        """The solution with its objective recomputed from the inputs as given."""
        weights = np.clip(bounds.weights, self._limits.floor, self._limits.cap)
        tail = tail_of(-portfolio_returns(market.scenarios, weights), market.tail_size)
        mean = float(market.expected_returns @ weights) * market.unit
        trades = np.zeros(len(weights)) if market.current is None else weights - market.current
        cost = 0.0 if market.cost is None else float(self._numbers["cost"] @ np.abs(trades))
        objective = self._objective.risk_aversion * tail.cvar - mean + cost
        if market.volatility_factor is not None:
            objective += float(np.linalg.norm(weights @ market.volatility_factor)) * market.unit
        lower = bounds.lower * market.unit
        if objective < lower <= objective + ROUNDING * max(market.unit, abs(objective)):
            lower = objective
        gap = relative_gap(objective, lower, smallest)
        if not 0.0 <= gap <= TOLERANCE:
            advice = (
                "loosen the constraints, which hardly leave a portfolio"
                if gap < 0.0
                else "check the scale of the inputs"
            )
            raise UncertifiedError(
                f"a solution must be within {TOLERANCE:g} of the lower bound, but {objective:.12g} is {gap:.2g} from "
                f"{lower:.12g} by {method} after {bounds.n_iterations} iterations; {advice}"
            )
        most, least = self._limits.most_invested, self._limits.least_invested
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

    def _diagnosis(self, market: Market, failure: InfeasibleError) -> str:
        """Why nothing keeps the constraints: the turnover budget, if more of it would do."""
        if self._limits.turnover is None:
            return f"{failure}: {self._known()}"
        needed = least_turnover(self._structure, self._further, self._numbers_on(market))
        if needed is None:
            return f"even without a turnover budget {failure}: {self._known()}"
        return (
            f"from the current weights the other constraints need a one-way turnover of {needed:.6g}, but the budget "
            f"is {self._limits.turnover:g}; raise the budget"
        )

    def _known(self) -> str:
        """What the constraints ask for, and what to do."""
        limits = self._limits
        cash = " to ".join(
            f"{1.0 - invested:g}" for invested in dict.fromkeys((limits.most_invested, limits.least_invested))
        )
        known = [f"floors that sum to {limits.floor.sum():g}, caps that sum to {limits.cap.sum():g}, cash of {cash}"]
        if limits.gross is not None:
            known.append(f"a gross limit of {limits.gross:g}")
        known += [
            f"a cap of {cap:g} on sector {name!r}"
            for name, cap in zip(limits.sector_names, limits.sector_caps, strict=True)
        ]
        if self._further is not None:
            known.append(f"{len(self._further.constraints)} further constraints")
        return ", ".join(known) + "; loosen one of them"


def _checked_factor(factor: FloatArray | None, n_names: int) -> FloatArray:
    """The volatility factor (N, K), finite."""
    if factor is None:
        raise ValueError("a volatility penalty needs a covariance, but none was given; pass `volatility_factor`")
    found = np.asarray(factor, dtype=np.float64)
    if found.ndim != 2 or len(found) != n_names or not (np.abs(found) <= LARGEST).all():
        raise ValueError(
            f"volatility_factor must be finite, at most {LARGEST:g} and of shape ({n_names}, K), but has {found.shape}"
            "; transpose it"
        )
    return found
