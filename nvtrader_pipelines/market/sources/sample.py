"""Sample prices in every installation: 20 S&P 500 names, 1990 to 2022, shipped with skfolio."""

import hashlib
from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

import numpy as np
import polars as pl

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.market.sources.delivery import (
    DeliveredRows,
    Delivery,
    LandedFile,
    with_delivered_columns,
)

FILE = "sp500_dataset.csv"


class SampleSource(Component):
    """Daily adjusted closes of 20 large US names that survived 33 years: survivorship-biased."""

    kind: Literal["sample"] = "sample"
    name: Literal["sample"] = "sample"
    calendar: Literal["XNYS"] = "XNYS"

    def deliveries(self, landed: Sequence[LandedFile]) -> list[Delivery]:  # noqa: ARG002 - the family's signature
        """Return the sample's one file; the landing zone is not read."""
        prices = _prices()
        closes = np.ascontiguousarray(prices.drop("date").to_numpy())
        head = "\n".join([*prices.columns, *prices["date"].cast(pl.String)]).encode()
        digest = hashlib.sha256(head + closes.tobytes()).hexdigest()
        return [Delivery(self.name, FILE, digest, len(head) + closes.nbytes, partial(_rows, prices))]


@cache
def _prices() -> pl.DataFrame:
    from skfolio.datasets import load_sp500_dataset  # seconds to import, and only needed here

    frame = load_sp500_dataset()
    dates = pl.Series("date", frame.index.to_numpy().astype("datetime64[D]"))
    return pl.DataFrame([dates, *(pl.Series(str(name), frame[name].to_numpy()) for name in frame.columns)])


def _rows(prices: pl.DataFrame) -> DeliveredRows:
    numbered = prices.with_row_index("line", offset=2)  # the header is line 1
    rows = numbered.unpivot(index=["line", "date"], variable_name="symbol", value_name="close")
    text = rows.with_columns(pl.col("date", "close").cast(pl.String)).with_columns(adj_close="close")
    return DeliveredRows(with_delivered_columns(text.sort("line", "symbol")))
