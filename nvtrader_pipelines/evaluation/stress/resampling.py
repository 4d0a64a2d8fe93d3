"""Worlds drawn at random from sessions that no policy under test was trained on."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import polars as pl
from arch.bootstrap import StationaryBootstrap
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components import Component
from nvtrader_pipelines.evaluation.stress.prices import Prices
from nvtrader_pipelines.evaluation.stress.world import CalmMarket, NoWorldError, StressedWorld
from nvtrader_pipelines.market.history import lagged, rolling

VOLUME_SESSIONS = 21  # before a session, whose mean volume is what it usually trades


class BlockBootstrap(Component):
    """Whole sessions of the past, in blocks drawn at random, take the place of those of the window.

    A session brings the returns by night and by day of every name, and its volume over what it usually traded, as they
    were; blocks have geometric lengths, and after the last session drawn from comes the first. Drawn are only sessions
    on which no policy that decides in the window was trained, and on which every name priced before the window traded.

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
            NoWorldError: if the window is shorter than the worlds, there are fewer sessions to draw from, or a name was
                listed in the window.
        """
        first, last = market.window
        if last - first + 1 < self.n_sessions:
            raise NoWorldError(
                f"worlds of {self.n_sessions} sessions do not fit a window of {last - first + 1}; draw shorter ones"
            )
        pool, priced = self._pool(market, first)
        draws = StationaryBootstrap(self.mean_block, pool, seed=generator)
        sessions = (pool[draws.update_indices()[: self.n_sessions]] for _ in range(self.n_worlds))
        worlds = (_replaced(market.prices, first, drawn, priced) for drawn in sessions)
        note = f"drawn from {len(pool)} sessions"
        return (replace(market.world(self.name, prices, first, note), has_twin=False) for prices in worlds)

    def _pool(self, market: CalmMarket, first: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Sessions of the prices that may be drawn, and the names that had a price before the window (N,)."""
        traded, sessions = market.prices.traded, market.prices.sessions
        priced = traded[first - 1]
        late = market.names & ~traded[:first].any(axis=0)
        if late.any():
            raise NoWorldError(
                f"sessions are drawn for names listed before {sessions[first]}, but "
                f"{market.prices.symbols[int(late.argmax())]} was listed later; leave it out or bring more sessions"
            )
        whole = traded[1:][:, priced].all(axis=1) & traded[:-1][:, priced].all(axis=1)
        unseen = ~market.trained_on[1:]
        pool = 1 + np.flatnonzero(whole & unseen)
        if len(pool) < self.n_sessions:
            raise NoWorldError(
                f"worlds of {self.n_sessions} sessions need as many to draw from, but of those up to {sessions[-1]} "
                f"only {int(unseen.sum())} trained no policy that decides in the window, and every name traded on "
                f"{len(pool)} of them; draw shorter worlds or bring a longer history"
            )
        return pool, priced


def _replaced(prices: Prices, first: int, drawn: NDArray[np.int64], priced: NDArray[np.bool_]) -> Prices:
    """The prices with drawn sessions from session `first` on; a name without a price before it has none after."""
    close_returns, overnight_returns = prices.returns()
    growth = np.multiply.accumulate(1.0 + close_returns[drawn], axis=0)
    before = np.concatenate([np.ones_like(growth[:1]), growth[:-1]])
    last = np.where(priced, prices.closes[first - 1], np.nan)
    usual = rolling(lagged(prices.volumes, 1), pl.all().rolling_mean(VOLUME_SESSIONS, min_samples=1))
    known = np.isfinite(prices.volumes) & (usual > 0.0)
    activity = np.divide(prices.volumes, usual, out=np.ones_like(usual), where=known)
    volumes = np.where(priced, usual[first] * activity[drawn], np.nan)
    past = prices.until(first + len(drawn) - 1)
    return past.with_from(first, last * before * (1.0 + overnight_returns[drawn]), last * growth, volumes)
