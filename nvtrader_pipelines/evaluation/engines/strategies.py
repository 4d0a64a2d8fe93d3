"""Shipped strategies."""

from itertools import count
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.evaluation.engines.bridge import RL_AGENT
from nvtrader_pipelines.evaluation.engines.strategy import Strategy, StrategyContext, StrategyFunction

Share = Annotated[float, Field(ge=0.0, lt=1.0)]


class RebalanceStrategy(Strategy):
    """Rebalance every few bars to the target weights of the injected `rl_agent`."""

    kind: Literal["rebalance"] = "rebalance"
    rebal_freq: PositiveInt = 5  # bars between decisions

    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test; the first call decides."""
        bars = count()

        def rebalance(context: StrategyContext) -> None:
            if next(bars) % self.rebal_freq:
                return
            target = context[RL_AGENT].decide(context.bar)
            if target is not None:
                for symbol, weight in zip(symbols, target[:-1].tolist(), strict=True):
                    context.order_target_percent(symbol, weight)

        return rebalance


class LimitReversion(Strategy):
    """Buy each name by a limit below its last close, and sell it by a limit above."""

    kind: Literal["limit_reversion"] = "limit_reversion"
    discount: Share = 0.01  # of the last close, below which a name is bought with 1/N of equity
    premium: Share = 0.01  # of the last close, above which a holding is sold

    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test."""

        def revert(context: StrategyContext) -> None:
            positions = context.positions
            for symbol, close in zip(symbols, context.bar.closes.tolist(), strict=True):
                if positions[symbol] > 0.0:
                    context.order_target_percent(symbol, 0.0, limit=close * (1.0 + self.premium))
                else:
                    context.order_target_percent(symbol, 1.0 / len(symbols), limit=close * (1.0 - self.discount))

        return revert


BacktestStrategy = Annotated[RebalanceStrategy | LimitReversion, Field(discriminator="kind"), Family("strategies")]
