"""Rewards for growth of equity, net of costs."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.envs.rewards.term import RewardFunction, Stateless, StepOutcome
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.anchors import Anchor, VolatilityTargetAnchor
from nvtrader_pipelines.portfolio.costs import no_cost


def exponential_utility(returns: NDArray[np.float64], risk_aversion: float) -> NDArray[np.float64]:
    """Utility (1 - exp(-a * r)) / a of returns r; near r for small returns, never above r."""
    return -np.expm1(-risk_aversion * returns) / risk_aversion


class LogGrowth(Component):
    """Log growth of equity over the step, net of costs (Kelly)."""

    kind: Literal["log_growth"] = "log_growth"
    weight: PositiveFloat = 1.0

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""
        from nvtrader_pipelines.envs.rewards.log_growth import log_growth

        return Stateless(lambda outcome: self.weight * log_growth(outcome.transition.session_growth))


class BenchmarkRelative(Component):
    """Log growth net of costs less a benchmark's log growth from the same state without costs.

    The benchmark's growth does not depend on the action, so the optimum is that of log growth, with less market noise.
    """

    kind: Literal["benchmark_relative"] = "benchmark_relative"
    weight: PositiveFloat = 100.0
    benchmark: Anchor = VolatilityTargetAnchor()

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel; computes the benchmark once."""
        from nvtrader_pipelines.envs.dynamics import hold
        from nvtrader_pipelines.envs.rewards.log_growth import log_growth

        benchmark = self.benchmark.weights(panel)

        def relative(outcome: StepOutcome) -> NDArray[np.float64]:
            trade = np.ones(len(outcome.t), dtype=bool)
            held = hold(outcome.weights, benchmark[outcome.t], trade, outcome.period, no_cost)
            return self.weight * (log_growth(outcome.transition.session_growth) - log_growth(held.session_growth))

        return Stateless(relative)


class ExponentialUtility(Component):
    """Constant absolute risk aversion: utility (1 - exp(-a * r)) / a of the step's net return r.

    Near zero it is r - a * r^2 / 2. Source: Pratt (1964); Arrow (1965).
    """

    kind: Literal["exponential_utility"] = "exponential_utility"
    aliases: ClassVar[tuple[str, ...]] = ("exp_utility",)
    weight: PositiveFloat = 1.0
    risk_aversion: Annotated[float, Field(gt=0.0, le=20.0)] = 5.0  # a, per unit of return

    def start(self, panel: MarketPanel, n_accounts: int) -> RewardFunction:  # noqa: ARG002 - one signature
        """Return the term for one panel."""

        def utility(outcome: StepOutcome) -> NDArray[np.float64]:
            return self.weight * exponential_utility(outcome.transition.growth - 1.0, self.risk_aversion)

        return Stateless(utility)
