"""Sources of bars: the family, and the content of `data/market.yaml`."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.sources.delivery import Delivery, LandedFile, SourceUnavailable, UnreadableFile
from nvtrader_pipelines.market.sources.landing import LandingSource
from nvtrader_pipelines.market.sources.sample import SampleSource
from nvtrader_pipelines.market.sources.yahoo import YahooSource

Source = Annotated[SampleSource | LandingSource | YahooSource, Field(discriminator="kind")]


class MarketSpec(Component):
    """Sources to ingest, in order."""

    sources: tuple[Source, ...] = Field(default=(SampleSource(), LandingSource()), min_length=1)


__all__ = [
    "Delivery",
    "LandedFile",
    "LandingSource",
    "MarketSpec",
    "SampleSource",
    "Source",
    "SourceUnavailable",
    "UnreadableFile",
    "YahooSource",
]
