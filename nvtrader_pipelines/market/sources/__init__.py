"""Sources of bars: the family, and the content of `data/market.yaml`."""

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, model_validator

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from nvtrader_pipelines.market.sources.delivery import (
    LANDING,
    SERIES,
    Delivery,
    LandedFile,
    SourceUnavailable,
    UnreadableFile,
    is_of_series,
)
from nvtrader_pipelines.market.sources.landing import LandingSource
from nvtrader_pipelines.market.sources.sample import SampleSource
from nvtrader_pipelines.market.sources.yahoo import YahooSource

Source = Annotated[SampleSource | LandingSource | YahooSource, Field(discriminator="kind")]


class MarketSpec(Component):
    """Sources to ingest, in order."""

    sources: tuple[Source, ...] = Field(default=(SampleSource(), LandingSource()), min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [source.name for source in self.sources]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(f"sources must have different names, but {', '.join(twins)} occurs twice; name one anew")
        reserved = {"sample", "yahoo", SERIES} & set(self.landing_names)
        if reserved:
            raise ValueError(f"a landing source must have a name of its own, but is named {', '.join(reserved)}")
        return self

    @property
    def calendars(self) -> Calendars:
        """Calendars of the sources."""
        return Calendars({source.name: TradingCalendar(source.calendar) for source in self.sources})

    @property
    def landing_names(self) -> tuple[str, ...]:
        """Names of the sources that read the landing zone."""
        return tuple(source.name for source in self.sources if isinstance(source, LandingSource))

    def deliveries(self, landed: Sequence[LandedFile], of_named: Collection[str] = ()) -> list[Delivery]:
        """Return the deliveries of every source; a landed file belongs to the source that its folder names.

        Files in no such folder belong to the source `landing`, but not those that a named source, which was dropped
        since, has delivered (`of_named`). Outside series, in the folder `series`, belong to no source.

        Raises:
            SourceUnavailable: if a source cannot deliver.
        """
        by_name: dict[str, list[LandedFile]] = {}
        for file in (file for file in landed if not is_of_series(file.name)):
            folder = PurePosixPath(file.name).parts[0]
            if folder in self.landing_names:
                by_name.setdefault(folder, []).append(file)
            elif file.name not in of_named:
                by_name.setdefault(LANDING, []).append(file)
        return [delivery for source in self.sources for delivery in source.deliveries(by_name.get(source.name, []))]


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
