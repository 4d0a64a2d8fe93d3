"""Selectors of the names that may be held; the proposal's weight of others becomes cash.

`start` raises a ValueError if the panel lacks a feature that the selector reads.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.features import Momentum, Volatility, VolumeScore
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline.risk_limits import Share
from nvtrader_pipelines.portfolio.pipeline.stage import BoolArray, FloatArray, Select, Situation, require_finite


class StaticUniverse(Component):
    """Every eligible name of the market."""

    kind: Literal["static_universe"] = "static_universe"

    def start(self, panel: MarketPanel) -> Select:
        """Return the stage for one panel."""

        def select(situation: Situation) -> tuple[BoolArray, str]:
            return panel.eligible[situation.t], "not eligible"

        return select


class Liquidity(Component):
    """Liquid names: a price in most of the last sessions, and no unusually low volume.

    A panel has no prices and so no dollar volume; a name's volume is compared with its own past, by the panel's z-score
    of log volume. The share of sessions without trading as a measure of liquidity: Lesmond, Ogden & Trzcinka (1999);
    the two thresholds are our choice.
    """

    kind: Literal["liquidity"] = "liquidity"
    volume: VolumeScore = VolumeScore(window=21)  # the panel's feature
    min_volume_score: float = -2.0  # standard deviations of the name's own log volume
    window: PositiveInt = 63  # sessions
    min_traded: Share = 0.9  # of the window's sessions with a price; sessions before the listing count as without

    @property
    def lookback(self) -> int:
        """Sessions of the window."""
        return self.window

    def start(self, panel: MarketPanel) -> Select:
        """Return the stage for one panel."""
        scores = _feature(panel, self.volume.name, "liquidity")

        def select(situation: Situation) -> tuple[BoolArray, str]:
            t = situation.t
            priced = panel.tradable[max(0, t + 1 - self.window) : t + 1].mean(axis=0)
            names = panel.eligible[t] & (priced >= self.min_traded) & (scores(t) >= self.min_volume_score)
            return names, f"not eligible, without a price too often, or with {self.volume.name} too low"

        return select


class LowVolatility(Component):
    """Eligible names with the lowest volatility, at least one; ties are broken by symbol.

    Source: Blitz & van Vliet (2007) on the volatility effect; they hold the lowest tenth of thousands of names.
    """

    kind: Literal["volatility"] = "volatility"
    volatility: Volatility = Volatility(window=63)  # the panel's feature
    lowest_fraction: Share = 0.5  # of the eligible names

    def start(self, panel: MarketPanel) -> Select:
        """Return the stage for one panel."""
        values = _feature(panel, self.volatility.name, "volatility")

        def select(situation: Situation) -> tuple[BoolArray, str]:
            eligible = panel.eligible[situation.t]
            k = max(1, round(self.lowest_fraction * eligible.sum()))
            return _lowest(values(situation.t), eligible, k), f"not of the {k} with the least {self.volatility.name}"

        return select


class MomentumTopK(Component):
    """Top k eligible names by 12-1 momentum; ties are broken by symbol.

    Source: Jegadeesh & Titman (1993).
    """

    kind: Literal["momentum_top_k"] = "momentum_top_k"
    momentum: Momentum = Momentum()  # the panel's feature
    k: PositiveInt = 10  # names, or all if fewer are eligible

    def start(self, panel: MarketPanel) -> Select:
        """Return the stage for one panel."""
        values = _feature(panel, self.momentum.name, "momentum_top_k")

        def select(situation: Situation) -> tuple[BoolArray, str]:
            names = _lowest(-values(situation.t), panel.eligible[situation.t], self.k)
            return names, f"not of the {self.k} with the highest {self.momentum.name}"

        return select


def _feature(panel: MarketPanel, name: str, kind: str) -> Callable[[int], FloatArray]:
    """Return a function of the session to the feature's values, (N,)."""
    if name not in panel.feature_names:
        raise ValueError(
            f"the selector {kind} needs the feature {name!r}, but the market of {panel.source!r} has "
            f"{', '.join(panel.feature_names) or 'none'}; choose another selector, one of these features, or a source "
            "with the data of the feature"
        )
    values = panel.feature(name)

    def at(t: int) -> FloatArray:
        require_finite(values[t], panel.symbols, f"{name} of {panel.sessions[t]}")
        return values[t]

    return at


def _lowest(values: FloatArray, eligible: BoolArray, k: int) -> BoolArray:
    """Select the k eligible names with the lowest values, (N,); ties are broken by position."""
    lowest = np.argsort(np.where(eligible, values, np.inf), kind="stable")[:k]
    chosen = np.zeros(len(eligible), dtype=np.bool_)
    chosen[lowest] = True
    return chosen & eligible


Selector = Annotated[
    StaticUniverse | Liquidity | LowVolatility | MomentumTopK, Field(discriminator="kind"), Family("selectors")
]
