"""A strategy of back-tests."""

from typing import Literal

from pydantic import PositiveInt

from nvtrader_pipelines.evaluation.engines import Strategy, StrategyContext, StrategyFunction


class DipBuyer(Strategy):
    """Hold equal weights of the names that closed below their mean."""

    kind: Literal["dip_buyer"] = "dip_buyer"
    window: PositiveInt = 21  # sessions of the mean

    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test."""

        def buy_dips(context: StrategyContext) -> None:
            closes = context.history(self.window).closes
            below = closes[-1] < closes.mean(axis=0)
            for symbol, is_held in zip(symbols, below, strict=True):
                context.order_target_percent(symbol, is_held / len(symbols))

        return buy_dips
