"""A reward term."""

from typing import Literal

from pydantic import PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards import RewardFunction
from nvtrader_pipelines.envs.rewards.term import Stateless
from nvtrader_pipelines.market.panel import MarketPanel


class WorstSession(Component):
    """Loss of the step's worst session, net of costs."""

    kind: Literal["worst_session"] = "worst_session"
    weight: PositiveFloat = 0.1  # reward per unit of loss

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:
        """Return the term for one panel."""
        return Stateless(
            lambda outcome: -self.weight * (1.0 - outcome.transition.session_growth).max(axis=1).clip(min=0.0)
        )
