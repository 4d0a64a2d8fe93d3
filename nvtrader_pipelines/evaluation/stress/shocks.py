"""Shocks: what happens to the prices of a calm window from one session on."""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress.prices import Prices
from nvtrader_pipelines.evaluation.stress.scenario import CalmMarket, NoWorldError, StressedWorld
from nvtrader_pipelines.market.history import forward_fill, lag

FloatArray = NDArray[np.float64]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Loss = Annotated[float, Field(gt=0.0, le=0.99)]
Stretch = Annotated[int, Field(ge=3, le=252)]
LEAST_RETURNS = 3  # of a name in a stretch: fewer have no volatility to keep or to multiply
SMALLEST_VARIANCE = 1e-24  # of log returns; below it is the rounding of a price that stands still


def percent(share: float) -> str:
    """A share as words of a scenario's name."""
    return f"{100.0 * share:g}_percent"


class Gap(Component):
    """Every name opens lower by the same share of its price, and stays there.

    The first price after the gap is the open, or the close where a source has no opens. A name without a bar on that
    session has the gap in its next price.
    """

    kind: Literal["gap"] = "gap"
    loss: Loss = 0.2  # share of each price
    at: Share = 0.5  # of the window that is over when it happens

    @property
    def name(self) -> str:
        """The scenario."""
        return f"gap_{percent(self.loss)}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if no name has a price on the session of the shock.
        """
        start = market.begin(self.at, 1)
        factor = np.full((1, len(market.prices.symbols)), 1.0 - self.loss)
        return [market.world(self.name, market.prices.scaled(start, factor, factor), start)]


class FlashCrash(Component):
    """Every name loses the same share within a session, and has it back some sessions later.

    Each session of the recovery brings back an equal part of it in log price, between its open and its close. A name
    without a bar on the session of the crash shows in its next price what is left of the loss by then.
    """

    kind: Literal["flash_crash"] = "flash_crash"
    loss: Loss = 0.2  # share of each price, from open to close
    recovery: Annotated[int, Field(ge=1, le=63)] = 5  # sessions until nothing is lost any more
    at: Share = 0.5  # of the window that is over when it happens

    @property
    def name(self) -> str:
        """The scenario."""
        return f"flash_crash_{percent(self.loss)}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if the recovery does not end within the window.
        """
        start = market.begin(self.at, self.recovery + 1)
        left = 1.0 - np.arange(self.recovery + 1) / self.recovery
        closes = (1.0 - self.loss) ** left[:, None] * np.ones(len(market.prices.symbols))
        opens = np.concatenate([np.ones_like(closes[:1]), closes[:-1]])
        return [market.world(self.name, market.prices.scaled(start, opens, closes), start)]


class OneNameToZero(Component):
    """The name that rose most loses all but a millionth overnight, and has no bar after that session.

    Nobody can sell before; what is left is paid out once the name counts as delisted. It is the chosen name with the
    highest return over `lookback` sessions up to the close before, of equal ones the first by its symbol.
    """

    kind: Literal["one_name_to_zero"] = "one_name_to_zero"
    lookback: Annotated[int, Field(ge=1, le=1260)] = 252  # sessions over which the returns are compared
    rest: Annotated[float, Field(gt=0.0, le=0.01)] = 1e-6  # share of the price that is left: no price is 0
    at: Share = 0.5  # of the window that is over when it happens

    @property
    def name(self) -> str:
        """The scenario."""
        return self.kind

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if fewer than two names have a price there, or none one long enough ago.
        """
        start = market.begin(self.at, 2)
        prices = market.prices
        column, gain = self._highest(market, start)
        fallen = np.arange(len(prices.symbols)) == column
        left = self.rest * prices.closes[start - 1]
        opens, closes = (np.where(fallen, left / array[start], 1.0)[None] for array in (prices.opens, prices.closes))
        gone = prices.scaled(start, opens, closes).without(start + 1, len(prices.sessions), fallen)
        note = f"{prices.symbols[column]}, which had gained {gain:.0%} in {self.lookback} sessions"
        return [market.world(self.name, gone, start, note)]

    def _highest(self, market: CalmMarket, start: int) -> tuple[int, float]:
        """Column and return of the name."""
        prices = market.prices
        first = start - 1 - self.lookback
        there = market.names & prices.has_price[start - 1] & prices.has_price[start]
        before = forward_fill(prices.closes[:start])[first] if first >= 0 else np.full(len(there), np.nan)
        gains = np.where(there, prices.closes[start - 1] / before - 1.0, np.nan)
        if there.sum() < 2 or np.isnan(gains).all():
            raise NoWorldError(
                f"the highest return over {self.lookback} sessions before {prices.sessions[start]} needs two names "
                f"that have a price there and one that had one that long ago, too, but found {int(there.sum())} and "
                f"{int((~np.isnan(gains)).sum())}; shorten the lookback or bring a longer history"
            )
        column = int(np.nanargmax(gains))
        return column, float(gains[column])


class CorrelationToOne(Component):
    """For a stretch all names move together: each keeps its mean and volatility, and loses what was its own.

    The log return of each name becomes mean + volatility * z, over the sessions of the stretch on which it has a
    price; z is the mean of the names' standardised log returns, standardised again. The change comes overnight: what a
    name earned from open to close stays. After the stretch prices are where they were.
    """

    kind: Literal["correlation_to_one"] = "correlation_to_one"
    n_sessions: Stretch = 63  # how long it lasts
    at: Share = 0.5  # of the window that is over when it begins

    @property
    def name(self) -> str:
        """The scenario."""
        return self.kind

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if the stretch does not end within the window, or no name moves in it.
        """
        start = market.begin(self.at, self.n_sessions)
        logs, _ = _log_returns(market.prices, start, self.n_sessions)
        mean, deviation = _moments(logs)
        own = (logs - mean) / deviation  # NaN where a name hardly has a price, or does not move
        n_known = (~np.isnan(own)).sum(axis=1, keepdims=True)
        common = np.where(np.isnan(own), np.nan, np.nansum(own, axis=1, keepdims=True) / np.maximum(n_known, 1))
        shift, scale = _moments(common)
        if np.isnan(scale).all():
            raise NoWorldError(
                f"no name moves in the {self.n_sessions} sessions from {market.prices.sessions[start]} on, so there is "
                "nothing to move together with; begin on another session"
            )
        changed = mean + deviation * (common - shift) / scale
        factor = np.exp(np.nancumsum(changed - logs, axis=0))
        return [market.world(self.name, market.prices.scaled(start, factor, factor), start)]


class VolatilityTimes(Component):
    """For a stretch every name's log returns are a multiple as far from their mean, by night and by day.

    Mean log returns stay, so prices are where they were after the stretch; simple returns stay above -1. Where fewer
    than three nights of a name are known, they stay as they were.
    """

    kind: Literal["volatility_times"] = "volatility_times"
    factor: Annotated[float, Field(gt=1.0, le=10.0)] = 3.0  # by which volatility is multiplied
    n_sessions: Stretch = 63  # how long it lasts
    at: Share = 0.5  # of the window that is over when it begins

    @property
    def name(self) -> str:
        """The scenario."""
        return f"{self.kind}_{self.factor:g}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:  # noqa: ARG002
        """The one world of it.

        Raises:
            NoWorldError: if the stretch does not end within the window.
        """
        start = market.begin(self.at, self.n_sessions)
        whole, night = (
            (self.factor - 1.0) * (logs - _moments(logs)[0])
            for logs in _log_returns(market.prices, start, self.n_sessions)
        )
        shifted = np.nancumsum(whole, axis=0)
        before = np.concatenate([np.zeros_like(shifted[:1]), shifted[:-1]])
        prices = market.prices.scaled(start, np.exp(before + np.nan_to_num(night)), np.exp(shifted))
        return [market.world(self.name, prices, start)]


class MissingData(Component):
    """Some names, drawn by the seed, have no bars for some sessions, and then go on as they were.

    Features that need a bar on each of their sessions are not known for as long afterwards, so a name that is missing
    for a week is not eligible for about a month. Drawn are names that have a bar on the first session, but none whose
    own missing bars beside the stretch would make its gap longer than the market bears.
    """

    kind: Literal["missing_data"] = "missing_data"
    n_sessions: Annotated[int, Field(ge=1, le=21)] = 5  # without a bar; at most the market's max_gap
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # of the names that have a bar there, at least one
    at: Share = 0.5  # of the window that is over when it begins

    @property
    def name(self) -> str:
        """The scenario."""
        return f"{self.kind}_{percent(self.share)}"

    def worlds(self, market: CalmMarket, generator: np.random.Generator) -> list[StressedWorld]:
        """The one world of it.

        Raises:
            NoWorldError: if the bars do not come back within the window, or the market bears no such gap.
        """
        start = market.begin(self.at, self.n_sessions + 1)
        symbols, traded = np.array(market.prices.symbols), market.prices.has_price
        there = market.names & traded[start]
        spared = there & (_gaps(traded, start, start + self.n_sessions) > market.max_gap)
        able, n_names = np.flatnonzero(there & ~spared), int(there.sum())
        if not len(able):
            raise NoWorldError(
                f"{self.n_sessions} sessions without bars from {market.prices.sessions[start]} on are more than the "
                f"market bears (max_gap {market.max_gap}) of any name; miss fewer or raise max_gap"
            )
        n_drawn = min(len(able), max(1, round(self.share * n_names)))
        missing = np.isin(np.arange(len(there)), generator.choice(able, n_drawn, replace=False))
        gone = market.prices.without(start, start + self.n_sessions, missing)
        world = market.world(self.name, gone, start)
        never = f"; never {', '.join(symbols[spared])}, whose gap would be too long" if spared.any() else ""
        back = _back(world, symbols[missing], self.n_sessions)
        return [replace(world, note=f"{n_drawn} of {n_names} names{never}; {back}")]


def _gaps(traded: NDArray[np.bool_], start: int, stop: int) -> NDArray[np.int64]:
    """Sessions that names (N,) have no bar if they have none in a stretch, too; 0 of one that never comes back."""
    before = np.argmax(traded[:start][::-1], axis=0)
    after = np.argmax(traded[stop:], axis=0)
    resumes = traded[:start].any(axis=0) & traded[stop:].any(axis=0)
    return np.where(resumes, before + stop - start + after, 0)


def _back(world: StressedWorld, symbols: NDArray[np.str_], n_sessions: int) -> str:
    """When names (sorted) that were missing from the shock on may be given weight again."""
    first = n_sessions + (world.shock or 0)
    together = world.panel.eligible[first:, np.isin(world.panel.symbols, symbols)].all(axis=1)
    if not together.any():
        return "not all of them eligible again in the window"
    return f"not all of them eligible until {world.panel.sessions[first + int(together.argmax())]}"


def _log_returns(prices: Prices, start: int, n_sessions: int) -> tuple[FloatArray, FloatArray]:
    """Log returns from the last known close to each close and to each open of a stretch, (n, N); NaN where unknown."""
    stretch = slice(start, start + n_sessions)
    before = lag(forward_fill(prices.closes[: stretch.stop]), 1)[stretch]
    return np.log(prices.closes[stretch] / before), np.log(prices.opens[stretch] / before)


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation (ddof 1) of the known values of each column (N,); NaN for few or equal ones."""
    n_known = (~np.isnan(values)).sum(axis=0)
    enough = n_known >= LEAST_RETURNS
    mean = np.where(enough, np.nansum(values, axis=0) / np.maximum(n_known, 1), np.nan)
    variance = np.nansum((values - mean) ** 2, axis=0) / np.maximum(n_known - 1, 1)
    moves = enough & (variance > SMALLEST_VARIANCE)
    return mean, np.where(moves, np.sqrt(variance), np.nan)
