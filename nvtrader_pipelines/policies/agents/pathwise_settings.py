"""Settings of learners on the differentiable market."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nvtrader_pipelines.policies.agents.actor import ActorLearner
from nvtrader_pipelines.policies.agents.learner import EVERY_BACKBONE

if TYPE_CHECKING:
    from torch import Tensor


class WindowSettings(ActorLearner):
    """Windows of training sessions, and the objective of each."""

    total_timesteps: PositiveInt = 102_400  # decisions of all windows together; the last update is completed
    n_steps: Annotated[int, Field(ge=1, le=256)] = 8  # decisions of a window
    max_grad_norm: PositiveFloat = 1.0
    objective: Literal["log_growth", "sharpe"] = "log_growth"  # of a window, annual

    def objective_of(self, log_growth: "Tensor", per_year: float) -> "Tensor":
        """Annual objective (n,) of windows, given the log growth (n, S) of their sessions."""
        if self.objective == "log_growth":
            return log_growth.mean(dim=1) * per_year
        returns = log_growth.exp() - 1.0
        return returns.mean(dim=1) / (returns.var(dim=1) + 1e-8).sqrt() * per_year**0.5


class PathwiseSettings(WindowSettings):
    """Windows of an update, and penalties of their objective."""

    backbones: ClassVar[frozenset[str]] = EVERY_BACKBONE

    n_envs: PositiveInt = 64  # windows per update
    drawdown_penalty: NonNegativeFloat = 0.0  # objective per unit of mean soft log drawdown
    turnover_penalty: NonNegativeFloat = 0.0  # objective per unit of one-way turnover a year, beside its costs

    @property
    def n_portfolios(self) -> int:
        """Number of windows per update."""
        return self.n_envs
