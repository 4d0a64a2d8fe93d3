"""Bridge from a policy to strategies, which ask it for target weights."""

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.engines.bars import Bar
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Policy

RL_AGENT = "rl_agent"  # name of the bridge in a strategy's context


class RLAgentBridge:
    """Policy as an agent in a strategy's context; it decides from the panel up to the bar."""

    def __init__(self, policy: Policy, panel: MarketPanel) -> None:
        self._policy, self._panel = policy, panel

    def decide(self, bar: Bar) -> NDArray[np.float64] | None:
        """Return target weights (N+1,) at the bar's close, cash last; None for no trade."""
        t = self._panel.index_of(np.datetime64(bar.session))
        return self._policy.decide(self._panel, t, bar.account).target
