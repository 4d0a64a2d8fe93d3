"""Penalties for trading and holding: turnover, implementation shortfall, inventory."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards.term import RewardFunction, Stateless, StepOutcome
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import no_cost


class TurnoverPenalty(Component):
    """One-way turnover of the step's trade, beyond the costs already paid in the net return.

    In training through the pipeline, a guard may replace the weight.
    """

    kind: Literal["turnover_penalty"] = "turnover_penalty"
    weight: PositiveFloat = 0.01  # reward per unit of one-way turnover

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""

        def penalty(outcome: StepOutcome) -> NDArray[np.float64]:
            guards, turnover = outcome.turnover_penalties, outcome.transition.turnover
            if guards is None:
                return -self.weight * turnover
            return -np.where(np.isnan(guards), self.weight, guards) * turnover

        return Stateless(penalty)


class ImplementationShortfall(Component):
    """Return of a paper portfolio filled at the decision's close, less the net return.

    Both start from the weights held at the decision and are held to the step's last close, so the shortfall includes
    cost, the move from decision to fill, and trades that did not fill. It is negative if the delay helped, and 0 for an
    account that does not trade. Fraction of equity. Source: Perold (1988).
    """

    kind: Literal["implementation_shortfall"] = "implementation_shortfall"
    weight: PositiveFloat = 1.0  # reward per unit of shortfall

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        from nvtrader_pipelines.envs.dynamics import hold, holding_period, market_legs

        legs = market_legs(panel, "same_close")

        def shortfall(outcome: StepOutcome) -> NDArray[np.float64]:
            period = holding_period(legs, outcome.t, outcome.period.n_sessions)
            paper = hold(outcome.weights, outcome.target, outcome.is_trading, period, no_cost)
            return np.where(outcome.is_trading, self.weight * (outcome.transition.growth - paper.growth), 0.0)

        return Stateless(shortfall)


class RunningInventory(Component):
    """Running inventory penalty phi * q^2: the sum of squared weights at each close of the step.

    Source: Cartea, Jaimungal & Penalva (2015), with weights as inventory and a session as the unit of time.
    """

    kind: Literal["running_inventory"] = "running_inventory"
    weight: PositiveFloat = 1e-3  # phi: reward per unit of squared weight and session

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        from nvtrader_pipelines.envs.dynamics import hold_to_closes

        def penalty(outcome: StepOutcome) -> NDArray[np.float64]:
            total = np.zeros(len(outcome.t))
            for weights, _ in hold_to_closes(outcome.transition.executed, outcome.period):
                total += (weights[:, :-1] ** 2).sum(axis=1)
            return -self.weight * total

        return Stateless(penalty)
