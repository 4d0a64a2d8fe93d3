"""Sources of bars: the family."""

from typing import Annotated

from pydantic import Field

from nvtrader_pipelines.market.sources.delivery import Delivery, LandedFile, SourceUnavailable, UnreadableFile
from nvtrader_pipelines.market.sources.landing import LandingSource
from nvtrader_pipelines.market.sources.sample import SampleSource
from nvtrader_pipelines.market.sources.yahoo import YahooSource

Source = Annotated[SampleSource | LandingSource | YahooSource, Field(discriminator="kind")]

__all__ = [
    "Delivery",
    "LandedFile",
    "LandingSource",
    "SampleSource",
    "Source",
    "SourceUnavailable",
    "UnreadableFile",
    "YahooSource",
]
