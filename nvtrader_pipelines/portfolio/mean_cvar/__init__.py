"""Mean-CVaR portfolios on scenarios: exact, certified and in milliseconds.

`MeanCvar(names, constraints, objective).solve(scenarios)` gives a `MeanCvarSolution`.
"""

from nvtrader_pipelines.portfolio.mean_cvar.constraints import Constraints, Objective
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
    "UncertifiedError",
]
