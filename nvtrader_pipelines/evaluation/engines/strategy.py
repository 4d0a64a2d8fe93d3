"""Strategies: what they see at a close, the orders they give, and the shipped ones."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import count
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.engines.bars import Bar, Bars
from nvtrader_pipelines.evaluation.engines.ledger import ShareAccount
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.policies.policy import Policy

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
RL_AGENT = "rl_agent"  # name of a policy's bridge in a strategy's context


class RLAgentBridge:
    """Policy as an agent in a strategy's context; it decides from the panel up to the bar."""

    def __init__(self, policy: Policy, panel: MarketPanel) -> None:
        self._policy, self._panel = policy, panel
        self.account: ShareAccount | None = None  # of the run, which sets it

    def decide(self, bar: Bar) -> FloatArray | None:
        """Return target weights (N+1,) at the bar's close, cash last; None for no trade.

        Raises:
            ValueError: if the bar is not closed yet.
        """
        t = self._panel.index_of(np.datetime64(bar.session))
        if self.account is not None and t > self.account.t:
            closed = self._panel.sessions[self.account.t]
            raise ValueError(f"an agent decides at a closed bar, but {bar.session} is after {closed}; pass context.bar")
        return self._policy.decide(self._panel, t, bar.account).target


class StrategyContext(dict[str, Any]):
    """View of a strategy at a close: closed bars, the account, orders, and objects injected by name.

    All arrays are copies: later bars cannot be reached from them.
    """

    def __init__(self, account: ShareAccount, injected: Mapping[str, Any]) -> None:
        super().__init__(injected)
        self._account = account
        for agent in injected.values():
            if isinstance(agent, RLAgentBridge):
                agent.account = account

    def __missing__(self, name: str) -> Any:
        """Raise a ValueError that names the object to inject."""
        hint = "name a policy by --agent, or pass it to the run" if name == RL_AGENT else "pass it to the run"
        raise ValueError(f"the strategy needs an injected {name!r}, but has {[*self]}; {hint}")

    def order(self, symbol: str, shares: float, limit: float | None = None) -> None:
        """Order shares, negative to sell, for the next bar; at the market without a limit."""
        self._account.order(symbol, shares, limit)

    def order_target_percent(self, symbol: str, weight: float, limit: float | None = None) -> None:
        """Order a weight, a fraction of equity, for the next bar, in place of an earlier target."""
        self._account.order_target_percent(symbol, weight, limit)

    def history(self, n: int) -> Bars:
        """Return copies of the last `n` closed bars; fewer where the market begins later."""
        return self._account.bars.history(self._account.t, n)

    @property
    def bar(self) -> Bar:
        """Last closed bar, and the account at its close, with its weights and its equity from 1."""
        sessions, *prices = self.history(1)
        return Bar(sessions[0].item(), *(price[0] for price in prices), account=self._account.account)

    @property
    def cash(self) -> float:
        """Cash, account currency."""
        return self._account.cash

    @property
    def equity(self) -> float:
        """Value of cash and shares at the last close, account currency."""
        return self._account.value

    @property
    def positions(self) -> dict[str, float]:
        """Shares held, by name; 0 for a name that is not held."""
        return dict(zip(self._account.panel.symbols, self._account.shares.tolist(), strict=True))


StrategyFunction = Callable[[StrategyContext], None]


class Strategy(Component):
    """Rule that gives orders at each close; an installed package may add its own."""

    @abstractmethod
    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test over the names; the function is called at each close."""


class RebalanceStrategy(Strategy):
    """Rebalance every few bars to the target weights of the injected `rl_agent`."""

    kind: Literal["rebalance"] = "rebalance"
    rebal_freq: PositiveInt = 5  # bars between decisions

    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test, with a decision at the first close."""
        bars = count()

        def rebalance(context: StrategyContext) -> None:
            target = None if next(bars) % self.rebal_freq else context[RL_AGENT].decide(context.bar)
            if target is not None:
                for symbol, weight in zip(symbols, target[:-1].tolist(), strict=True):
                    context.order_target_percent(symbol, weight)

        return rebalance


class LimitReversion(Strategy):
    """Buy each name by a limit below its last close, and sell it by a limit above."""

    kind: Literal["limit_reversion"] = "limit_reversion"
    discount: Share = 0.01  # below the last close, at which a name is bought with 1/N of equity
    premium: Share = 0.01  # above the last close, at which a holding is sold

    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test."""

        def revert(context: StrategyContext) -> None:
            positions = context.positions
            for symbol, close in zip(symbols, context.bar.close.tolist(), strict=True):
                if positions[symbol] > 0.0:
                    context.order_target_percent(symbol, 0.0, limit=close * (1.0 + self.premium))
                else:
                    context.order_target_percent(symbol, 1.0 / len(symbols), limit=close * (1.0 - self.discount))

        return revert
