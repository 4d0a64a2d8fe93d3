"""Worlds drawn at random from sessions that no policy under test was trained on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress.prices import Prices
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, NoWorldError, StressedWorld
from nvtrader_pipelines.market.history import apply_rolling, forward_fill, lag

VOLUME_SESSIONS = 21  # before a session, whose mean volume is what it usually trades


class BlockBootstrap(Component):
    """Whole sessions of the past, in blocks drawn at random, take the place of those of the window.

    A session brings the returns by night and by day of every name, and its volume over what it usually traded, as they
    were; blocks have geometric lengths, and after the last session drawn from comes the first. Drawn are only sessions
    on which no policy that decides in the window was trained, though its features may have looked back on the year
    before those, and on which every chosen name that was alive before the window has a bar, as on the session before.
    Any other name has no bar where the session drawn has none.

    Source: Politis & Romano (1994), resampling by `arch`.
    """

    kind: Literal["block_bootstrap"] = "block_bootstrap"
    n_worlds: Annotated[int, Field(ge=1, le=1000)] = 12
    n_sessions: Annotated[int, Field(ge=21, le=2520)] = 63  # of each world, from the first of the window on
    mean_block: Annotated[int, Field(ge=1, le=252)] = 21  # sessions

    @property
    def name(self) -> str:
        """The scenario."""
        return self.kind

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> Iterator[StressedWorld]:
        """As many as asked for, each with draws of its own.

        Raises:
            NoWorldError: if the window is shorter than the worlds, or there are fewer sessions to draw from.
        """
        first, last = market.window
        if last - first + 1 < self.n_sessions:
            raise NoWorldError(
                f"worlds of {self.n_sessions} sessions do not fit a window of {last - first + 1}; draw shorter ones"
            )
        alive = _alive(market, first)
        pool, note = self._pool(market, first, alive & market.names)
        from arch.bootstrap import StationaryBootstrap  # it takes a second to import

        draws = StationaryBootstrap(self.mean_block, pool, seed=generator)
        sessions = (pool[draws.update_indices()[: self.n_sessions]] for _ in range(self.n_worlds))
        worlds = (_replaced(market.prices, first, drawn, alive) for drawn in sessions)
        return (replace(market.world(self.name, prices, first, note), has_twin=False) for prices in worlds)

    def _pool(self, market: CalmMarket, first: int, needed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], str]:
        """Sessions of the prices that may be drawn, with bars of all names needed (N,), and what to know of them."""
        traded, symbols = market.prices.has_price, np.array(market.prices.symbols)
        whole, unseen = traded[1:] & traded[:-1], ~market.trained_on[1:]
        pool = 1 + np.flatnonzero(whole[:, needed].all(axis=1) & unseen)
        n_lacking = (~whole & unseen[:, None] & needed).sum(axis=0)
        most = int(n_lacking.argmax())
        lacking = f"; {symbols[most]} lacks bars for {n_lacking[most]} others" if n_lacking[most] else ""
        if len(pool) < self.n_sessions:
            raise NoWorldError(
                f"worlds of {self.n_sessions} sessions need as many to draw from, but of those up to "
                f"{market.prices.sessions[-1]} only {int(unseen.sum())} trained no policy that decides in the window, "
                f"and every name traded on {len(pool)} of them{lacking}; draw shorter worlds or bring a longer history"
            )
        late = symbols[market.names & ~traded[:first].any(axis=0) & traded[first:].any(axis=0)]
        left_out = f"; without {', '.join(late)}, listed in the window" if len(late) else ""
        return pool, f"drawn from {len(pool)} sessions{lacking}{left_out}"


def _alive(market: CalmMarket, first: int) -> NDArray[np.bool_]:
    """Names that have a price on the session before `first` or one that is not too old, (N,)."""
    oldest = max(0, first - 1 - market.max_gap)
    return np.any(market.prices.has_price[oldest:first], axis=0)


def _replaced(prices: Prices, first: int, drawn: NDArray[np.int64], alive: NDArray[np.bool_]) -> Prices:
    """The prices with drawn sessions from session `first` on; a name that is not alive before it has none after."""
    close_returns, overnight_returns = (returns[drawn] for returns in prices.returns())
    known = ~np.isnan(close_returns)
    growth = np.multiply.accumulate(np.where(known, 1.0 + close_returns, 1.0), axis=0)
    before = np.concatenate([np.ones_like(growth[:1]), growth[:-1]])
    last = np.where(alive, forward_fill(prices.closes[:first])[-1], np.nan)
    usual = apply_rolling(lag(prices.volumes, 1), pl.all().rolling_mean(VOLUME_SESSIONS, min_samples=1))
    has_volume = np.isfinite(prices.volumes) & (usual > 0.0)
    activity = np.divide(prices.volumes, usual, out=np.ones_like(usual), where=has_volume)[drawn]
    volumes, opens, closes = (
        np.where(known & alive, values, np.nan)
        for values in (usual[first] * activity, last * before * (1.0 + overnight_returns), last * growth)
    )
    return prices.until(first + len(drawn) - 1).with_from(first, opens, closes, volumes)
