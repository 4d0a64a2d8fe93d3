"""Cross-sectional ranks of features."""

from typing import Annotated, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.features.price_change import Drawdown, LogReturn, Momentum
from nvtrader_pipelines.market.features.relative_strength import RelativeStrength
from nvtrader_pipelines.market.features.volatility import Volatility, VolumeScore
from nvtrader_pipelines.market.history import PriceHistory

Ranked = Annotated[
    Momentum | LogReturn | Volatility | Drawdown | RelativeStrength | VolumeScore,
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
        values = np.where(history.is_listed_for(self.min_history), self.of.values(history), np.nan)
        rows, columns = np.nonzero(~np.isnan(values))
        known = pl.DataFrame({"row": rows, "value": values[rows, columns]})
        rank, count = pl.col("value").rank("average").over("row"), pl.len().over("row")
        scaled = pl.when(count > 1).then(2.0 * (rank - 1.0) / (count - 1.0) - 1.0).otherwise(0.0)
        ranks = np.full_like(values, np.nan)
        ranks[rows, columns] = known.select(scaled.alias("rank"))["rank"].to_numpy()
        return ranks
