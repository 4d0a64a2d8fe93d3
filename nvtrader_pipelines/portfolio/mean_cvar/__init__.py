"""Exact Mean-CVaR portfolios on scenarios, each with a certificate of optimality.

`MeanCvar(names, constraints, objective).solve(scenarios)` returns a `MeanCvarSolution`.
"""

from nvtrader_pipelines.portfolio.mean_cvar.checks import least_distance, least_turnover
from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective, resolve_limits
from nvtrader_pipelines.portfolio.mean_cvar.cvar_limit import SolveInputs, best_within_cvar
from nvtrader_pipelines.portfolio.mean_cvar.optimizer import MeanCvar
from nvtrader_pipelines.portfolio.mean_cvar.solution import (
    InfeasibleError,
    MeanCvarError,
    MeanCvarSolution,
    UncertifiedError,
)

__all__ = [
    "Constraints",
    "InfeasibleError",
    "MeanCvar",
    "MeanCvarError",
    "MeanCvarSolution",
    "Objective",
    "SolveInputs",
    "UncertifiedError",
    "best_within_cvar",
    "least_distance",
    "least_turnover",
    "resolve_limits",
]
