"""Moves of the price of an order: a random walk, or those of a name of a market."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.worlds.almgren_chriss import FloatArray, ImpactModel
from nvtrader_pipelines.worlds.single_name import panel_of_symbol

DrawMoves = Callable[[Sequence[np.random.Generator]], FloatArray]  # an order's moves per generator, (n, n_known + N)


class RandomWalk(Component):
    """Independent normal moves of the model's volatility; before the order arrives, none are known."""

    kind: Literal["random_walk"] = "random_walk"

    def start(self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None) -> DrawMoves:  # noqa: ARG002 - one signature
        """Return the function that draws; the first `n_known` moves precede the order."""

        def draw(generators: Sequence[np.random.Generator]) -> FloatArray:
            moves = np.zeros((len(generators), n_known + model.n_steps))
            for row, generator in zip(moves, generators, strict=True):
                generator.standard_normal(out=row[n_known:])
            moves *= model.move_deviation
            return moves

        return draw


class MarketMoves(Component):
    """Moves between the closes of a name, from an arrival that is drawn, scaled to the order's price; a step a session.

    Only arrivals count that have a price in every session until the last move, all of them within the window.
    """

    kind: Literal["market"] = "market"
    symbol: str | None = None  # None: the first of the market

    def start(self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None) -> DrawMoves:
        """Return the function that draws; the first `n_known` moves precede the order.

        Raises:
            ValueError: if there is no market, it lacks the symbol, or no order fits into the window.
        """
        if panel is None or window is None:
            raise ValueError("moves of a market need a panel and a window; give both, or choose random_walk")
        alone = panel_of_symbol(panel, self.symbol)
        first, last = window
        tradable = alone.tradable[:, 0]
        starts = range(first, last - model.n_steps + 1)
        arrivals = np.array([t for t in starts if tradable[t : t + model.n_steps + 1].all()], np.int64)
        if not len(arrivals):
            raise ValueError(
                f"an order of {model.n_steps} sales needs {model.n_steps + 1} sessions with prices of "
                f"{alone.symbols[0]} in a row, but {panel.sessions[first]} to {panel.sessions[last]} have none; "
                "choose more days, fewer sales, or another symbol"
            )
        levels = np.cumprod(1.0 + np.where(tradable, alone.close_returns[:, 0], 0.0))
        levels = np.append(np.full(n_known, levels[0]), levels)  # no moves before the market
        paths = np.lib.stride_tricks.sliding_window_view(levels, n_known + model.n_steps + 1)

        def draw(generators: Sequence[np.random.Generator]) -> FloatArray:
            places = arrivals[[generator.integers(len(arrivals)) for generator in generators]]
            path: NDArray[np.float64] = paths[places]
            return model.price * np.diff(path, axis=1) / path[:, n_known, None]

        return draw


PriceMoves = Annotated[RandomWalk | MarketMoves, Field(discriminator="kind")]
