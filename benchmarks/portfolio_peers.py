"""The same mean-CVaR portfolio from this package and its peers, on the same scenarios."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from statistics import median
from time import process_time

import cvxpy as cp
import numpy as np
import pandas as pd
from skfolio import RiskMeasure
from skfolio.optimization import MeanRisk, ObjectiveFunction

from benchmarks.claim import Goal, import_peer, median_ratio, report, time_rounds
from benchmarks.fat_tailed import FloatArray, kernel_scenarios, names
from nvtrader_pipelines.portfolio.mean_cvar import Constraints, MeanCvar, Objective

CONFIDENCE_LEVEL = 0.95
COST_BPS, TURNOVER = 10.0, 0.2
OBJECTIVE_TOLERANCE, FEASIBILITY_TOLERANCE = 1e-4, 1e-6
SETTINGS = {
    "skfolio": "Clarabel, its gaps at 1e-9 (its default)",
    "riskfolio": "Clarabel at its own 1e-8 (its default)",
    "pypfopt": "Clarabel at its own 1e-8 (cvxpy's choice, its default)",
}


@dataclass(frozen=True, eq=False)
class Problem:
    """Fully invested long-only portfolio: minimum CVaR, or best rebalance of current weights."""

    scenarios: FloatArray  # (S, N)
    cap: float
    rebalances: bool  # mean - CVaR - 10 bps of traded value, with at most 20 % one-way turnover from equal weights

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Scenarios as the data frame that the peers take."""
        return pd.DataFrame(self.scenarios, columns=names(self.scenarios.shape[1]))

    @property
    def mean(self) -> FloatArray:
        """Mean of the scenarios (N,)."""
        return self.scenarios.mean(axis=0)

    @property
    def current(self) -> FloatArray:
        """Current weights, equal (N,)."""
        n_names = self.scenarios.shape[1]
        return np.full(n_names, 1.0 / n_names)

    def objective(self, weights: FloatArray) -> float:
        """Minimized objective, by Rockafellar & Uryasev (2000) at the value at risk.

        Raises:
            RuntimeError: if the weights break a constraint.
        """
        broken = max(abs(weights.sum() - 1.0), -weights.min(), weights.max() - self.cap)
        traded = np.abs(weights - self.current).sum()
        if self.rebalances:
            broken = max(broken, 0.5 * traded - TURNOVER)
        if not broken <= FEASIBILITY_TOLERANCE:
            raise RuntimeError(f"weights break a constraint by {broken:.3g}, more than {FEASIBILITY_TOLERANCE:g}")
        losses = -(self.scenarios @ weights)
        level = np.quantile(losses, CONFIDENCE_LEVEL, method="inverted_cdf")
        cvar = level + np.maximum(losses - level, 0.0).mean() / (1.0 - CONFIDENCE_LEVEL)
        return cvar + (COST_BPS * 1e-4 * traded - float(self.mean @ weights) if self.rebalances else 0.0)


def by_this_package(problem: Problem) -> FloatArray:
    """Weights (N,) of this package; the model is compiled once per structure."""
    assets = problem.frame.columns.to_list()
    if not problem.rebalances:
        optimizer = MeanCvar(assets, Constraints(cap=problem.cap), Objective(CONFIDENCE_LEVEL))
        return optimizer.solve(problem.scenarios).weights
    constraints = Constraints(cap=problem.cap, turnover=TURNOVER)
    optimizer = MeanCvar(assets, constraints, Objective(CONFIDENCE_LEVEL, cost_bps=COST_BPS))
    return optimizer.solve(problem.scenarios, current=problem.current, expected_returns=problem.mean).weights


def by_skfolio(problem: Problem) -> FloatArray:
    """Weights (N,) of skfolio's MeanRisk."""
    cvar = {"risk_measure": RiskMeasure.CVAR, "cvar_beta": CONFIDENCE_LEVEL, "max_weights": problem.cap}
    if not problem.rebalances:
        return np.asarray(MeanRisk(**cvar).fit(problem.frame).weights_, dtype=np.float64)
    optimizer = MeanRisk(
        objective_function=ObjectiveFunction.MAXIMIZE_UTILITY,
        risk_aversion=1.0,
        transaction_costs=COST_BPS * 1e-4,
        previous_weights=problem.current,
        add_constraints=lambda weights: [cp.norm1(weights - problem.current) <= 2.0 * TURNOVER],
        **cvar,
    )
    return np.asarray(optimizer.fit(problem.frame).weights_, dtype=np.float64)


def by_riskfolio(problem: Problem) -> FloatArray:
    """Weights (N,) of Riskfolio-Lib's Portfolio."""
    n_names = problem.scenarios.shape[1]
    portfolio = import_module("riskfolio").Portfolio(
        returns=problem.frame,
        alpha=1.0 - CONFIDENCE_LEVEL,
        ainequality=np.eye(n_names),
        binequality=np.full((n_names, 1), problem.cap),
    )
    portfolio.assets_stats(method_mu="hist", method_cov="hist")
    return portfolio.optimization(model="Classic", rm="CVaR", obj="MinRisk", hist=True)["weights"].to_numpy()


def by_pypfopt(problem: Problem) -> FloatArray:
    """Weights (N,) of PyPortfolioOpt's EfficientCVaR."""
    pypfopt = import_module("pypfopt")
    bounds = (0.0, problem.cap)
    efficient = pypfopt.EfficientCVaR(problem.mean, problem.frame, beta=CONFIDENCE_LEVEL, weight_bounds=bounds)
    if problem.rebalances:
        cost = pypfopt.objective_functions.transaction_cost
        efficient.add_objective(cost, w_prev=problem.current, k=COST_BPS * 1e-4)
        efficient.add_objective(lambda weights: -(problem.mean @ weights))
        efficient.add_constraint(lambda weights: cp.norm1(weights - problem.current) <= 2.0 * TURNOVER)
    return np.array(list(efficient.min_cvar().values()))


PEERS: Mapping[str, tuple[str, Callable[[Problem], FloatArray]]] = {
    "skfolio": ("skfolio", by_skfolio),
    "riskfolio": ("Riskfolio-Lib", by_riskfolio),
    "pypfopt": ("PyPortfolioOpt", by_pypfopt),
}


def report_against_peers(n_names: int, cap: float, n_rounds: int, goal: Goal, *, rebalances: bool = False) -> None:
    """Report how many times longer each peer takes to the same optimum."""
    present = [name for name in PEERS if import_peer(name) and not (rebalances and name == "riskfolio")]
    problems = [Problem(kernel_scenarios(n_names, 5000, seed), cap, rebalances) for seed in range(n_rounds)]
    warnings.simplefilter("ignore")  # deprecation warnings of the peers
    found: dict[str, list[FloatArray]] = {name: [np.empty(0)] * n_rounds for name in ("ours", *present)}

    def timed(name: str, solve: Callable[[Problem], FloatArray]) -> Callable[[int], None]:
        def one(number: int) -> None:
            found[name][number] = solve(problems[number])

        return one

    implementations = {name: timed(name, PEERS[name][1]) for name in present}
    seconds = time_rounds({"ours": timed("ours", by_this_package), **implementations}, n_rounds, clock=process_time)
    what = "best rebalance (mean - CVaR - L1 cost, turnover budget)" if rebalances else "least CVaR"
    case = f"mean_cvar_{n_names}x5000{'_rebalance' if rebalances else ''}"
    for name in PEERS if not rebalances else present:
        difference = largest_difference(problems, found, name) if name in present else 0.0
        report(
            f"{case}_{name}",
            1e3 * median(seconds["ours"]),
            "ms",
            goal,
            ratio=median_ratio(seconds, name, "ours") if name in present else None,
            note=f"CPU time, {what}, long-only, cap {cap:g}, fully invested, from scenarios to weights, our structure "
            "compiled once before (no peer keeps one); against "
            f"{_describe_peer(name, seconds)}; {n_rounds} rounds of other scenarios, "
            f"objectives equal to {difference:.0e}",
        )


def largest_difference(problems: list[Problem], found: Mapping[str, list[FloatArray]], name: str) -> float:
    """Largest relative difference of a peer's objective from ours over the rounds.

    Raises:
        RuntimeError: if it is more than 1e-4, or weights break a constraint.
    """
    differences = [
        abs(problem.objective(theirs) / problem.objective(ours) - 1.0)
        for problem, theirs, ours in zip(problems, found[name], found["ours"], strict=True)
    ]
    if not max(differences) <= OBJECTIVE_TOLERANCE:
        raise RuntimeError(f"{name}'s objective differs by {max(differences)}, more than {OBJECTIVE_TOLERANCE:g}")
    return max(differences)


def _describe_peer(name: str, seconds: Mapping[str, list[float]]) -> str:
    if name not in seconds:
        return f"{PEERS[name][0]}, not installed"
    return f"{PEERS[name][0]} {version(PEERS[name][0])} ({1e3 * median(seconds[name]):.0f} ms; {SETTINGS[name]})"
