"""Engines of back-tests: the base of the family, and what an engine can run."""

from abc import ABC, abstractmethod
from typing import ClassVar

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.engine_account import EngineAccount, EngineResult
from nvtrader_pipelines.evaluation.engines.strategy import Strategy
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable

Decider = Policy | Strategy | WeightsTable


class Engine(Component, ABC):
    """Back-test of one account on a panel, under an environment's costs and fills."""

    supports_rl_injection: ClassVar[bool]  # whether an agent can decide during the run

    @abstractmethod
    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> EngineAccount:
        """Open an account in cash with equity 1 at the close of session `t`, to be stepped by the caller."""

    @abstractmethod
    def run(
        self, panel: MarketPanel, environment: EnvSpec, decider: Decider, window: Window | None = None
    ) -> EngineResult:
        """Run an account from cash at the window's first close to its last.

        Policies and weights decide every `environment.rebal_freq` sessions, beginning at the first close.

        Args:
            panel: the market.
            environment: costs, fills and the frequency of decisions.
            decider: a policy, a strategy or dated weights.
            window: first and last session; None for the whole panel.

        Raises:
            ValueError: if the engine cannot run the decider or environment, or the window is not in the panel.
        """


def require_window(panel: MarketPanel, window: Window | None) -> Window:
    """Window in the panel; the whole panel for None.

    Raises:
        ValueError: if it has no session after its first, or is not in the panel.
    """
    first, last = window or (0, len(panel.sessions) - 1)
    if not 0 <= first < last < len(panel.sessions):
        raise ValueError(
            f"a back-test needs a window of at least two sessions within 0..{len(panel.sessions) - 1}, but it is "
            f"{first}..{last}; choose sessions of the panel"
        )
    return first, last


def require_long_only(environment: EnvSpec, engine: Engine) -> None:
    """Raise if the environment may borrow or sell short.

    Raises:
        ValueError: if it may.
    """
    if environment.is_levered:
        raise ValueError(
            f"{kind_of(type(engine))} holds neither debt nor short positions, but the action "
            f"{environment.action.kind} may; choose the engine walk, or a long-only action"
        )


def as_policy(decider: Policy | WeightsTable, panel: MarketPanel) -> Policy:
    """Policy of a decider: of dated weights, the one that trades to each row on its day."""
    return WeightsPolicy(*decider.decisions(panel)) if isinstance(decider, WeightsTable) else decider
