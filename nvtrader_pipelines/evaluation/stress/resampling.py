"""Stressed markets resampled from sessions on which no tested policy was trained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress.price_arrays import FloatArray, PriceArrays
from nvtrader_pipelines.evaluation.stress.scenario import ScenarioUnavailableError, StressedMarket, UnstressedMarket
from nvtrader_pipelines.market.history import apply_rolling, forward_fill, lag

VOLUME_SESSIONS = 21  # before a session, over which its usual volume is averaged


class BootstrappedWindow(Component):
    """Stationary bootstrap of past sessions, in place of those of the window.

    A drawn session keeps the overnight and intraday returns of all names, with high and low, and their volumes relative
    to the usual ones. Blocks have geometric lengths, and the pool is circular. The pool excludes sessions on which a
    policy that decides in the window was trained (its features may still look back on them), and sessions on which a
    name listed before the window has no bar, or had none the session before. Names listed later have no bar where the
    drawn session has none.

    Source: Politis & Romano (1994), resampling by `arch`.
    """

    kind: Literal["block_bootstrap"] = "block_bootstrap"
    n_worlds: Annotated[int, Field(ge=1, le=1000)] = 12
    n_sessions: Annotated[int, Field(ge=21, le=2520)] = 63  # of each sample, from the first session of the window
    mean_block: Annotated[int, Field(ge=1, le=252)] = 21  # sessions

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.kind

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> Iterator[StressedMarket]:
        """Draw `n_worlds` stressed markets.

        Raises:
            ScenarioUnavailableError: if the window or the pool of sessions is shorter than a sample.
        """
        first, last = market.window
        if last - first + 1 < self.n_sessions:
            raise ScenarioUnavailableError(
                f"samples of {self.n_sessions} sessions do not fit a window of {last - first + 1}; draw shorter ones"
            )
        oldest = max(0, first - 1 - market.choice.max_gap)  # a name lives if it has a bar from here on
        alive = np.any(market.prices.has_price[oldest:first], axis=0)
        pool, note = self._pool(market, first, alive & market.names)
        from arch.bootstrap import StationaryBootstrap  # it takes a second to import

        draws = StationaryBootstrap(self.mean_block, pool, seed=generator)
        sessions = (pool[draws.update_indices()[: self.n_sessions]] for _ in range(self.n_worlds))
        history = _History.of(market.prices)
        samples = (_resample(history, first, drawn, alive) for drawn in sessions)
        return (replace(market.stressed(self.name, prices, first, note), has_twin=False) for prices in samples)

    def _pool(self, market: UnstressedMarket, first: int, needed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], str]:
        """Sessions that may be drawn, with bars of all needed names (N,), and a note on them."""
        traded, symbols = market.prices.has_price, np.array(market.prices.symbols)
        whole, unseen = traded[1:] & traded[:-1], ~market.trained_on[1:]
        pool = 1 + np.flatnonzero(whole[:, needed].all(axis=1) & unseen)
        n_lacking = (~whole & unseen[:, None] & needed).sum(axis=0)
        most = int(n_lacking.argmax())
        lacking = f"; {symbols[most]} lacks bars for {n_lacking[most]} others" if n_lacking[most] else ""
        if len(pool) < self.n_sessions:
            raise ScenarioUnavailableError(
                f"samples of {self.n_sessions} sessions need as many to draw from, but of those up to "
                f"{market.prices.sessions[-1]} only {int(unseen.sum())} trained no policy that decides in the window, "
                f"and every name traded on {len(pool)} of them{lacking}; draw shorter samples or bring a longer history"
            )
        late_listings = symbols[market.names & ~traded[:first].any(axis=0) & traded[first:].any(axis=0)]
        left_out = f"; without {', '.join(late_listings)}, listed in the window" if len(late_listings) else ""
        return pool, f"drawn from {len(pool)} sessions{lacking}{left_out}"


@dataclass(frozen=True, eq=False)
class _History:
    """Prices from which sessions are drawn."""

    prices: PriceArrays
    returns: tuple[FloatArray, ...]  # as of `PriceArrays.returns`
    usual: FloatArray  # volumes (T, N), averaged over the sessions before
    activity: FloatArray  # volumes (T, N) relative to the usual ones; 1 where unknown

    @classmethod
    def of(cls, prices: PriceArrays) -> Self:
        """Derive returns and activity once for all samples."""
        usual = apply_rolling(lag(prices.volumes, 1), pl.all().rolling_mean(VOLUME_SESSIONS, min_samples=1))
        has_volume = np.isfinite(prices.volumes) & (usual > 0.0)
        activity = np.divide(prices.volumes, usual, out=np.ones_like(usual), where=has_volume)
        return cls(prices, prices.returns(), usual, activity)


def _resample(history: _History, first: int, drawn: NDArray[np.int64], alive: NDArray[np.bool_]) -> PriceArrays:
    """Put drawn sessions in place from session `first` on; names not alive before have no prices after."""
    prices = history.prices
    close_returns, *intraday = (returns[drawn] for returns in history.returns)
    known = ~np.isnan(close_returns)
    growth = np.multiply.accumulate(np.where(known, 1.0 + close_returns, 1.0), axis=0)
    before = np.concatenate([np.ones_like(growth[:1]), growth[:-1]])
    last = np.where(alive, forward_fill(prices.closes[:first])[-1], np.nan)
    volumes = history.usual[first] * history.activity[drawn]
    opens, highs, lows = (last * before * (1.0 + returns) for returns in intraday)
    arrays = {"opens": opens, "highs": highs, "lows": lows, "closes": last * growth, "volumes": volumes}
    resampled = {name: np.where(known & alive, values, np.nan) for name, values in arrays.items()}
    return prices.until(first + len(drawn) - 1).with_from(first, **resampled)
