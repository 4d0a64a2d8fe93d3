"""Penalties for risk, from the realized session returns of the episode."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards.term import RECENT_SESSIONS, RewardFunction, Stateless, StepOutcome
from nvtrader_pipelines.market.panel import MarketPanel


class VolatilityPenalty(Component):
    """Realized volatility of the last net session returns (ddof 0)."""

    kind: Literal["volatility_penalty"] = "volatility_penalty"
    weight: NonNegativeFloat = 1.0  # reward per unit of session volatility
    window: Annotated[int, Field(ge=2, le=RECENT_SESSIONS)] = 21

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        from nvtrader_pipelines.envs.rewards.realized_risk import volatilities

        def penalty(outcome: StepOutcome) -> NDArray[np.float64]:
            return -self.weight * volatilities(outcome.recent_returns, self.window)

        return Stateless(penalty)


class CvarExcess(Component):
    """Conditional value at risk of the last net session returns beyond a limit.

    Source: Rockafellar & Uryasev (2002), on the empirical distribution.
    """

    kind: Literal["cvar_excess"] = "cvar_excess"
    weight: PositiveFloat = 1.0  # reward per unit of session loss beyond the limit
    limit: NonNegativeFloat = 0.02  # session loss, fraction of equity
    confidence_level: Annotated[float, Field(ge=0.85, le=0.98)] = 0.95

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        from nvtrader_pipelines.envs.rewards.realized_risk import expected_shortfalls

        def excess(outcome: StepOutcome) -> NDArray[np.float64]:
            tail_loss = expected_shortfalls(outcome.recent_returns, self.confidence_level)
            return -self.weight * np.maximum(0.0, tail_loss - self.limit)

        return Stateless(excess)


class DrawdownPenalty(Component):
    """Drawdown at the step's last close, a positive fraction of the episode's highest close.

    Source: Chekhlov, Uryasev & Zabarankin (2005), absolute drawdown.
    """

    kind: Literal["drawdown_penalty"] = "drawdown_penalty"
    weight: PositiveFloat = 0.1  # reward per unit of drawdown and step

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        return Stateless(lambda outcome: -self.weight * (1.0 - outcome.equity / outcome.peak))
