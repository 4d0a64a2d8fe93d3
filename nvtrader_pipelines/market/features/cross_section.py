"""Cross-sectional ranks of features."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.features.moving_average import MACD, BollingerBand, MovingAverage
from nvtrader_pipelines.market.features.outside_series import Fundamental
from nvtrader_pipelines.market.features.price_change import AdjustedClose, Drawdown, LogReturn, Momentum
from nvtrader_pipelines.market.features.price_range import CommodityChannelIndex, DirectionalIndex
from nvtrader_pipelines.market.features.relative_strength import RelativeStrength
from nvtrader_pipelines.market.features.volatility import Volatility, VolumeScore
from nvtrader_pipelines.market.history import PriceHistory

Ranked = Annotated[
    Momentum
    | LogReturn
    | Volatility
    | Drawdown
    | RelativeStrength
    | VolumeScore
    | MACD
    | BollingerBand
    | CommodityChannelIndex
    | DirectionalIndex
    | MovingAverage
    | AdjustedClose
    | Fundamental,
    Field(discriminator="kind"),
    Family("features"),
]


class CrossSectionalRank(Component):
    """Rank of another feature among a session's names, from -1 (lowest) to 1 (highest).

    Only names with a price in the session and one at least `min_history` sessions earlier are ranked, as these are
    the eligible ones. Ties share their mean rank, and a single name has rank 0.
    """

    kind: Literal["rank"] = "rank"
    of: Ranked = LogReturn(window=5)
    min_history: NonNegativeInt = 252  # sessions

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"rank_{self.of.name}"

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N)."""
        values = np.where(history.is_listed_for(self.min_history), history.values_of(self.of), np.nan)
        return centered_ranks(values)


def centered_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank each row of (T, N) from -1 (lowest) to 1; ties share their mean rank, a single value has rank 0."""
    is_known = ~np.isnan(values)
    last = np.maximum(is_known.sum(axis=1, keepdims=True) - 1.0, 0.0)  # rank from 0
    scaled = np.where(last > 0.0, 2.0 * _mean_ranks(values) / np.maximum(last, 1.0) - 1.0, 0.0)
    return np.where(is_known, scaled, np.nan)


def _mean_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank from 0 in each row, (T, N); ties share their mean rank, and NaN ranks last."""
    order = np.argsort(values, axis=1)
    ordered, places = np.take_along_axis(values, order, axis=1), np.arange(values.shape[1])
    differs = ordered[:, 1:] != ordered[:, :-1]
    has_ties = ~differs.all(axis=1)
    is_first, is_last = np.ones((2, int(has_ties.sum()), len(places)), dtype=bool)
    is_first[:, 1:] = is_last[:, :-1] = differs[has_ties]
    first = np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(is_last, places, len(places))[:, ::-1], axis=1)[:, ::-1]
    ordered[:] = places
    ordered[has_ties] = 0.5 * (first + last)
    ranks = np.empty_like(values)
    np.put_along_axis(ranks, order, ordered, axis=1)
    return ranks
