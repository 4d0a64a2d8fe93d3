"""Shocks: changes of the window's prices from one session on.

`apply` raises a ScenarioUnavailableError where a shock outlasts the window, or no name has a price.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress.scenario import StressedMarket, UnstressedMarket

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Loss = Annotated[float, Field(gt=0.0, le=0.99)]


def percent(share: float) -> str:
    """Format a share for a scenario's name."""
    return f"{100.0 * share:g}_percent"


class Gap(Component):
    """All names open lower by the same share, for good.

    The first price after the gap is the open, or the close where a source has no opens. A name without a bar on that
    session shows the gap in its next price.
    """

    kind: Literal["gap"] = "gap"
    loss: Loss = 0.2  # share of each price
    at: Share = 0.5  # share of the window before the shock

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"gap_{percent(self.loss)}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, 1)
        factor = np.full((1, len(market.prices.symbols)), 1.0 - self.loss)
        return [market.stressed(self.name, market.prices.scaled(start, factor, factor), start)]


class FlashCrash(Component):
    """All names lose the same share within a session and recover within some sessions.

    Each session of the recovery regains an equal part of the log loss between its open and its close. A name without
    a bar on the session of the crash shows the remaining loss in its next price.
    """

    kind: Literal["flash_crash"] = "flash_crash"
    loss: Loss = 0.2  # share of each price, from open to close
    recovery: Annotated[int, Field(ge=1, le=63)] = 5  # sessions until prices are back
    at: Share = 0.5  # share of the window before the shock

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"flash_crash_{percent(self.loss)}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, self.recovery + 1)
        left = 1.0 - np.arange(self.recovery + 1) / self.recovery
        closes = (1.0 - self.loss) ** left[:, None] * np.ones(len(market.prices.symbols))
        opens = np.concatenate([np.ones_like(closes[:1]), closes[:-1]])
        return [market.stressed(self.name, market.prices.scaled(start, opens, closes), start)]
