"""Moves of the price of an order: a random walk, or those of a name of a market."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.worlds.almgren_chriss import FloatArray, ImpactModel
from nvtrader_pipelines.worlds.single_name import panel_of_symbol

N_WALKS = 1000  # orders of a test on random walks


class OrderMoves(NamedTuple):
    """Moves of the price around n orders."""

    moves: FloatArray  # (n, n_known + n_steps)
    arrivals: NDArray[np.int64] | None = None  # (n,) positions of the sessions of arrival; None without a market


DrawMoves = Callable[[Sequence[int], Sequence[np.random.Generator]], OrderMoves]  # by accounts, their generators


class RandomWalk(Component):
    """Independent normal moves of the model's volatility; before the order arrives, none are known."""

    kind: Literal["random_walk"] = "random_walk"

    def start(self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None) -> DrawMoves:  # noqa: ARG002 - one signature
        """Return the function that draws; the first `n_known` moves precede the order."""

        def draw(rows: Sequence[int], generators: Sequence[np.random.Generator]) -> OrderMoves:  # noqa: ARG001 - one signature
            moves = np.zeros((len(generators), n_known + model.n_steps))
            for row, generator in zip(moves, generators, strict=True):
                generator.standard_normal(out=row[n_known:])
            moves *= model.move_deviation
            return OrderMoves(moves)

        return draw

    def examine(
        self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None
    ) -> tuple[DrawMoves, int]:
        """Return the function that draws for a test, and the number of its orders."""
        return self.start(model, n_known, panel, window), N_WALKS


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
        moves, arrivals = self._orders(model, n_known, panel, window)

        def draw(rows: Sequence[int], generators: Sequence[np.random.Generator]) -> OrderMoves:  # noqa: ARG001 - one signature
            places = [generator.integers(len(arrivals)) for generator in generators]
            return OrderMoves(moves[places], arrivals[places])

        return draw

    def examine(
        self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None
    ) -> tuple[DrawMoves, int]:
        """Return the function that gives orders that share no session, the earliest first, and their number.

        Raises:
            ValueError: as `start`.
        """
        moves, arrivals = self._orders(model, n_known, panel, window)
        places = [0]
        for place, arrival in enumerate(arrivals):
            if arrival >= arrivals[places[-1]] + model.n_steps:
                places.append(place)
        apart = np.array(places)
        return lambda rows, _: OrderMoves(moves[apart[[*rows]]], arrivals[apart[[*rows]]]), len(apart)

    def _orders(
        self, model: ImpactModel, n_known: int, panel: MarketPanel | None, window: Window | None
    ) -> tuple[FloatArray, NDArray[np.int64]]:
        """Moves of every order that fits into the window, (m, n_known + n_steps), and its session of arrival, (m,)."""
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
        paths = np.lib.stride_tricks.sliding_window_view(levels, n_known + model.n_steps + 1)[arrivals]
        return model.price * np.diff(paths, axis=1) / paths[:, n_known, None], arrivals


PriceMoves = Annotated[RandomWalk | MarketMoves, Field(discriminator="kind")]
