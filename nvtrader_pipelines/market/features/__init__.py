"""Point-in-time features of a name at the close of a session: the family.

Each feature has a `name` (its column) and `values(history)`, (T, N) with NaN where it is not known; the
value at a session depends on nothing after it.
"""

from collections.abc import Sequence
from typing import Annotated

import polars as pl
from pydantic import Field

from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, Calendars, TradingCalendar
from nvtrader_pipelines.market.features.cross_section import CrossSectionalRank
from nvtrader_pipelines.market.features.formula import Formula
from nvtrader_pipelines.market.features.moving_average import MACD, BollingerBand, MovingAverage
from nvtrader_pipelines.market.features.outside_series import Fundamental, Vix
from nvtrader_pipelines.market.features.price_change import AdjustedClose, Drawdown, LogReturn, Momentum
from nvtrader_pipelines.market.features.price_range import CommodityChannelIndex, DirectionalIndex
from nvtrader_pipelines.market.features.relative_strength import RelativeStrength
from nvtrader_pipelines.market.features.unusual_returns import Turbulence
from nvtrader_pipelines.market.features.volatility import Volatility, VolumeScore
from nvtrader_pipelines.market.history import LOOK_BACK, positions, price_history
from nvtrader_pipelines.market.tables import BAR

Feature = Annotated[
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
    | Turbulence
    | AdjustedClose
    | Fundamental
    | Vix
    | CrossSectionalRank
    | Formula,
    Field(discriminator="kind"),
    Family("features"),
]

FEATURES: tuple[Feature, ...] = (
    Momentum(months=12, skip=1),
    Momentum(months=6, skip=1),
    LogReturn(window=1),
    LogReturn(window=5),
    LogReturn(window=21),
    Volatility(window=21),
    Volatility(window=63),
    Volatility(window=252),
    Drawdown(window=252),
    RelativeStrength(window=14),
    VolumeScore(window=21),
    CrossSectionalRank(of=LogReturn(window=5)),
    CrossSectionalRank(of=LogReturn(window=21)),
    CrossSectionalRank(of=Momentum(months=12, skip=1)),
    CrossSectionalRank(of=Volatility(window=63)),
)


def feature_schema(more: Sequence[Feature] = ()) -> TableSchema:
    """The columns of `gold.features`, and of `more` features."""
    docs = {feature.name: (feature.__doc__ or feature.name).splitlines()[0] for feature in (*FEATURES, *more)}
    return TableSchema(BAR, *(Column(name, pl.Float64, doc) for name, doc in docs.items()))


def compute_features(
    returns: pl.DataFrame,
    more: Sequence[Feature] = (),
    calendars: Calendars = ALL_NEW_YORK,
    series: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Compute `gold.features` and `more` features of every bar, in the row order of `returns`.

    The rows of `gold.returns` are the whole history of any number of sources; `series` are rows of `silver.series`.
    """
    parts = [feature_schema(more).to_frame()]
    for rows in returns.partition_by("source", maintain_order=True):
        calendar = calendars.of(rows["source"][0])
        parts.append(add_features(rows, rows.select(*BAR), (*FEATURES, *more), calendar, series))
    return pl.concat(parts)


def add_features(
    returns: pl.DataFrame,
    features: pl.DataFrame,
    more: Sequence[Feature],
    calendar: TradingCalendar,
    series: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Add `more` features to a source's rows of `gold.features`, from those of `gold.returns` and `silver.series`."""
    if not more:
        return features
    history = price_history(returns, calendar, series)
    rows, columns = positions(features, history.sessions, history.symbols)
    return features.with_columns(
        history.pick(rows, columns, history.values_of(feature)).alias(feature.name) for feature in more
    )


__all__ = [
    "FEATURES",
    "LOOK_BACK",
    "MACD",
    "AdjustedClose",
    "BollingerBand",
    "CommodityChannelIndex",
    "CrossSectionalRank",
    "DirectionalIndex",
    "Drawdown",
    "Feature",
    "Formula",
    "Fundamental",
    "LogReturn",
    "Momentum",
    "MovingAverage",
    "RelativeStrength",
    "Turbulence",
    "Vix",
    "Volatility",
    "VolumeScore",
    "add_features",
    "compute_features",
    "feature_schema",
]
