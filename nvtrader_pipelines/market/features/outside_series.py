"""Features of outside series: fundamentals of a name, and the VIX or another series of the whole market."""

from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.history import PriceHistory, forward_fill
from nvtrader_pipelines.market.series import FIELD, SeriesUnavailable, require_series

FieldName = Annotated[str, Field(pattern=FIELD)]


class Fundamental(Component):
    """Last published value of a field of outside series, such as a ratio of a balance sheet, per name.

    A restated value counts from its own publication on.
    """

    kind: Literal["fundamental"] = "fundamental"
    aliases: ClassVar[tuple[str, ...]] = ("FundamentalBuilder",)
    field: FieldName = "pe"  # field of `silver.series`

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return f"fundamental_{self.field}"

    @property
    def series_fields(self) -> tuple[str, ...]:
        """Fields of outside series that the feature reads."""
        return (self.field,)

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N); NaN before the first publication.

        Raises:
            SeriesUnavailable: if the field was not delivered.
        """
        return history.mask_unpriced(forward_fill(require_series(history.series, self.field, self.kind)))


class Vix(Component):
    """Last published value of a series of the whole market, by default the VIX, the same for all names."""

    kind: Literal["vix"] = "vix"
    field: FieldName = "vix"  # field of `silver.series`
    max_age: PositiveInt = 5  # most sessions after a value until the next; more are a gap

    @property
    def name(self) -> str:
        """Name of the feature's column."""
        return self.kind

    @property
    def series_fields(self) -> tuple[str, ...]:
        """Fields of outside series that the feature reads."""
        return (self.field,)

    def values(self, history: PriceHistory) -> NDArray[np.float64]:
        """Compute the feature at each session and symbol, (T, N); NaN before the first publication.

        Raises:
            SeriesUnavailable: if the field was not delivered, or has a gap, with its first and last session.
        """
        published = require_series(history.series, self.field, self.kind)
        self._require_no_gap(history.sessions, np.flatnonzero(np.any(~np.isnan(published), axis=1)))
        return history.mask_unpriced(forward_fill(published))

    def _require_no_gap(self, sessions: NDArray[np.datetime64], known: NDArray[np.int64]) -> None:
        """Raise if sessions pass without a new value, which become known at the sessions `known`."""
        edges = np.append(known, len(sessions))
        gaps = np.flatnonzero(np.diff(edges) - 1 > self.max_age)
        if len(gaps):
            without = sessions[edges[gaps[0]] + 1 : edges[gaps[0] + 1]].tolist()
            raise SeriesUnavailable(
                self.field,
                f"{self.kind} needs a value of {self.field!r} at least every {self.max_age + 1} sessions, but none "
                f"became known from {without[0]} to {without[-1]}; deliver the missing values to data/landing/series, "
                "or raise max_age",
                (without[0], without[-1]),
            )
