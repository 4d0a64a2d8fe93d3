"""Sources of the market: the content of `data/market.yaml`."""

from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.sources import LandingSource, SampleSource, Source


class MarketSpec(Component):
    """Sources to ingest, in order."""

    sources: tuple[Source, ...] = Field(default=(SampleSource(), LandingSource()), min_length=1)
