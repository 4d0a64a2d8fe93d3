"""Shocks: changes of the window's prices from one session on.

`apply` raises a ScenarioUnavailableError where a shock outlasts the window, or finds too few names or prices.
"""

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.stress.price_arrays import PriceArrays
from nvtrader_pipelines.evaluation.stress.scenario import ScenarioUnavailableError, StressedMarket, UnstressedMarket
from nvtrader_pipelines.market.history import forward_fill, lag

FloatArray = NDArray[np.float64]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Loss = Annotated[float, Field(gt=0.0, le=0.99)]
Stretch = Annotated[int, Field(ge=3, le=252)]
MIN_RETURNS = 3  # of a name in a stretch: fewer have no volatility
MIN_VARIANCE = 1e-24  # of log returns; below it the price is constant but for rounding


def percent(share: float) -> str:
    """Format a share for a scenario's name."""
    return f"{100.0 * share:g}_percent"


class Gap(Component):
    """All names open lower by the same share, for good.

    The first price after the gap is the open, or the close where a source has no opens. A name without a bar on that
    session shows the gap in its next price.
    """

    kind: Literal["gap"] = "gap"
    loss: Loss = 0.2  # share of each price
    at: Share = 0.5  # share of the window before the shock

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"gap_{percent(self.loss)}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, 1)
        factor = np.full((1, len(market.prices.symbols)), 1.0 - self.loss)
        return [market.stressed(self.name, market.prices.scaled(start, factor, factor), start)]


class FlashCrash(Component):
    """All names lose the same share within a session and recover within some sessions.

    Each session of the recovery regains an equal part of the log loss between its open and its close. A name without
    a bar on the session of the crash shows the remaining loss in its next price.
    """

    kind: Literal["flash_crash"] = "flash_crash"
    loss: Loss = 0.2  # share of each price, from open to close
    recovery: Annotated[int, Field(ge=1, le=63)] = 5  # sessions until prices are back
    at: Share = 0.5  # share of the window before the shock

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"flash_crash_{percent(self.loss)}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, self.recovery + 1)
        left = 1.0 - np.arange(self.recovery + 1) / self.recovery
        closes = (1.0 - self.loss) ** left[:, None] * np.ones(len(market.prices.symbols))
        opens = np.concatenate([np.ones_like(closes[:1]), closes[:-1]])
        return [market.stressed(self.name, market.prices.scaled(start, opens, closes), start)]


class OneNameToZero(Component):
    """The past winner loses nearly everything overnight and is delisted.

    The name is the one with the highest return over `lookback` sessions up to the close before (ties: the first by
    symbol). It cannot be sold before; the share `rest` that is left is paid out once it counts as delisted.
    """

    kind: Literal["one_name_to_zero"] = "one_name_to_zero"
    lookback: Annotated[int, Field(ge=1, le=1260)] = 252  # sessions over which the returns are compared
    rest: Annotated[float, Field(gt=0.0, le=0.01)] = 1e-6  # share of the price that is left: no price is 0
    at: Share = 0.5  # share of the window before the shock

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.kind

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, 2)
        prices = market.prices
        column, gain = self._past_winner(market, start)
        fallen = np.arange(len(prices.symbols)) == column
        left = self.rest * prices.closes[start - 1]
        opens, closes = (np.where(fallen, left / array[start], 1.0)[None] for array in (prices.opens, prices.closes))
        delisted = prices.scaled(start, opens, closes).without(start + 1, len(prices.sessions), fallen)
        note = f"{prices.symbols[column]}, which had gained {gain:.0%} in {self.lookback} sessions"
        return [market.stressed(self.name, delisted, start, note)]

    def _past_winner(self, market: UnstressedMarket, start: int) -> tuple[int, float]:
        """Column and past return of the name that loses."""
        prices = market.prices
        first = start - 1 - self.lookback
        priced = market.names & prices.has_price[start - 1] & prices.has_price[start]
        before = forward_fill(prices.closes[:start])[first] if first >= 0 else np.full(len(priced), np.nan)
        gains = np.where(priced, prices.closes[start - 1] / before - 1.0, np.nan)
        if priced.sum() < 2 or np.isnan(gains).all():
            raise ScenarioUnavailableError(
                f"the highest return over {self.lookback} sessions before {prices.sessions[start]} needs two names "
                f"with a price and one that had a price that long ago, but found {int(priced.sum())} and "
                f"{int((~np.isnan(gains)).sum())}; shorten the lookback or bring a longer history"
            )
        column = int(np.nanargmax(gains))
        return column, float(gains[column])


class CorrelationToOne(Component):
    """All names move together for a stretch, each with its own mean and volatility.

    The log return of each name becomes mean + volatility * z, over the sessions of the stretch on which it has a
    price; z is the mean of the names' standardized log returns, standardized again. Only overnight returns change;
    intraday returns stay. After the stretch prices are back at their own path.
    """

    kind: Literal["correlation_to_one"] = "correlation_to_one"
    n_sessions: Stretch = 63  # length of the stretch
    at: Share = 0.5  # share of the window before the stretch

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.kind

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, self.n_sessions)
        logs, _ = _log_returns(market.prices, start, self.n_sessions)
        mean, deviation = _moments(logs)
        own = (logs - mean) / deviation  # NaN where a name has too few prices or does not move
        n_known = (~np.isnan(own)).sum(axis=1, keepdims=True)
        common = np.where(np.isnan(own), np.nan, np.nansum(own, axis=1, keepdims=True) / np.maximum(n_known, 1))
        shift, scale = _moments(common)
        if np.isnan(scale).all():
            raise ScenarioUnavailableError(
                f"no name moves in the {self.n_sessions} sessions from {market.prices.sessions[start]}, so there is no "
                "common move; choose another start"
            )
        changed = mean + deviation * (common - shift) / scale
        factor = np.exp(np.nancumsum(changed - logs, axis=0))
        return [market.stressed(self.name, market.prices.scaled(start, factor, factor), start)]


class VolatilityTimes(Component):
    """Multiply the volatility of every name for a stretch, overnight and intraday.

    Mean log returns stay, so prices are back at their own path after the stretch; simple returns stay above -1. Names
    with fewer than three known overnight returns keep those.
    """

    kind: Literal["volatility_times"] = "volatility_times"
    factor: Annotated[float, Field(gt=1.0, le=10.0)] = 3.0  # of the volatility
    n_sessions: Stretch = 63  # length of the stretch
    at: Share = 0.5  # share of the window before the stretch

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"{self.kind}_{self.factor:g}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:  # noqa: ARG002
        """Return the one stressed market."""
        start = market.shock_start(self.at, self.n_sessions)
        whole, night = (
            (self.factor - 1.0) * (logs - _moments(logs)[0])
            for logs in _log_returns(market.prices, start, self.n_sessions)
        )
        shifted = np.nancumsum(whole, axis=0)
        before = np.concatenate([np.zeros_like(shifted[:1]), shifted[:-1]])
        prices = market.prices.scaled(start, np.exp(before + np.nan_to_num(night)), np.exp(shifted))
        return [market.stressed(self.name, prices, start)]


class MissingData(Component):
    """Randomly drawn names have no bars for some sessions, then continue unchanged.

    Features that need a bar on each of their sessions stay unknown for as long afterwards, so a name that is missing
    for a week is not eligible for about a month. Names are drawn among those with a bar on the first session, except
    those whose gap would become longer than `max_gap` because bars beside the stretch are missing too.
    """

    kind: Literal["missing_data"] = "missing_data"
    n_sessions: Annotated[int, Field(ge=1, le=21)] = 5  # without a bar, at most the market's max_gap
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0  # of the names with a bar on the first session, at least one
    at: Share = 0.5  # share of the window before the stretch

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return f"{self.kind}_{percent(self.share)}"

    def apply(self, market: UnstressedMarket, generator: np.random.Generator) -> list[StressedMarket]:
        """Return the one stressed market."""
        start = market.shock_start(self.at, self.n_sessions + 1)
        symbols, traded = np.array(market.prices.symbols), market.prices.has_price
        priced = market.names & traded[start]
        spared = priced & (_gaps(traded, start, start + self.n_sessions) > market.choice.max_gap)
        drawable, n_names = np.flatnonzero(priced & ~spared), int(priced.sum())
        if not len(drawable):
            raise ScenarioUnavailableError(
                f"a gap of {self.n_sessions} sessions from {market.prices.sessions[start]} exceeds max_gap "
                f"({market.choice.max_gap}) for every name; shorten it or raise max_gap"
            )
        n_drawn = min(len(drawable), max(1, round(self.share * n_names)))
        missing = np.isin(np.arange(len(priced)), generator.choice(drawable, n_drawn, replace=False))
        gapped = market.prices.without(start, start + self.n_sessions, missing)
        stressed = market.stressed(self.name, gapped, start)
        excluded = f"; never {', '.join(symbols[spared])}, whose gap would be too long" if spared.any() else ""
        back = _return_note(stressed, symbols[missing], self.n_sessions)
        return [replace(stressed, note=f"{n_drawn} of {n_names} names{excluded}; {back}")]


def _gaps(traded: NDArray[np.bool_], start: int, stop: int) -> NDArray[np.int64]:
    """Length of each name's gap (N,) if it has no bars in a stretch; 0 for names that never return."""
    before = np.argmax(traded[:start][::-1], axis=0)
    after = np.argmax(traded[stop:], axis=0)
    resumes = traded[:start].any(axis=0) & traded[stop:].any(axis=0)
    return np.where(resumes, before + stop - start + after, 0)


def _return_note(stressed: StressedMarket, symbols: NDArray[np.str_], n_sessions: int) -> str:
    """Say when all the missing names (sorted) are eligible again."""
    first = n_sessions + (stressed.shock or 0)
    together = stressed.panel.eligible[first:, np.isin(stressed.panel.symbols, symbols)].all(axis=1)
    if not together.any():
        return "not all of them eligible again in the window"
    return f"not all of them eligible until {stressed.panel.sessions[first + int(together.argmax())]}"


def _log_returns(prices: PriceArrays, start: int, n_sessions: int) -> tuple[FloatArray, FloatArray]:
    """Log returns from the last known close to each close and each open of a stretch, (n, N); NaN if unknown."""
    stretch = slice(start, start + n_sessions)
    before = lag(forward_fill(prices.closes[: stretch.stop]), 1)[stretch]
    return np.log(prices.closes[stretch] / before), np.log(prices.opens[stretch] / before)


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation (ddof 1) of the known values per column (N,); NaN if too few or constant."""
    n_known = (~np.isnan(values)).sum(axis=0)
    enough = n_known >= MIN_RETURNS
    mean = np.where(enough, np.nansum(values, axis=0) / np.maximum(n_known, 1), np.nan)
    variance = np.nansum((values - mean) ** 2, axis=0) / np.maximum(n_known - 1, 1)
    moves = enough & (variance > MIN_VARIANCE)
    return mean, np.where(moves, np.sqrt(variance), np.nan)
