"""Settings of GRPO on the differentiable market."""

from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from nvtrader_pipelines.policies.agents.learner import EXTRACTORS
from nvtrader_pipelines.policies.agents.pathwise_settings import WindowSettings
from nvtrader_pipelines.policies.backbones import Backbone, RecurrentBackbone


class GrpoSettings(WindowSettings):
    """Groups of accounts with a common start, their objective, and the weights of the loss."""

    backbones: ClassVar[frozenset[str]] = EXTRACTORS

    n_groups: PositiveInt = 64  # starts per update
    group_size: Annotated[int, Field(ge=2)] = 4  # accounts from each start
    n_steps: Annotated[int, Field(ge=1, le=256)] = 1  # decisions of a window, of equal advantage
    learning_rate: Annotated[float, Field(ge=1e-5, le=1e-2)] = 3e-3  # of AdamW; the source's 3e-4 needs more updates
    muon_learning_rate: PositiveFloat = 2e-2  # of Muon, for matrices below the head
    weight_decay: NonNegativeFloat = 1e-2  # of both optimizers
    risk_aversion: NonNegativeFloat = 0.1  # objective per unit of annual squared log growth
    drawdown_lambda: NonNegativeFloat = 0.0  # objective per unit of mean soft log drawdown
    entropy_coef: NonNegativeFloat = 1e-3  # weight of the entropy bonus
    kl_coef: NonNegativeFloat = 0.1  # weight of the divergence from the reference
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.95  # of the reference, per update
    pathwise_weight: NonNegativeFloat = 0.0  # weight of the objective's gradient through the market
    backbone: Backbone = RecurrentBackbone(hidden=(), hidden_size=64)

    @property
    def n_portfolios(self) -> int:
        """Number of accounts per update."""
        return self.n_groups * self.group_size
