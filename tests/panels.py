"""Panels with gaps, late listings and delistings, and panels with another future."""

from nvtrader_pipelines.market.look_ahead import cut_after as cut
from nvtrader_pipelines.market.look_ahead import with_other_future
from nvtrader_pipelines.testing.synthetic_panels import (
    DELISTED,
    FIRST_ELIGIBLE,
    GAP,
    GAPPY,
    INELIGIBLE,
    LAST_PRICE,
    LATE,
    LISTED_AT,
    MAX_GAP,
    NEVER,
    STEADY,
    eventful_panel,
)

__all__ = [
    "DELISTED",
    "FIRST_ELIGIBLE",
    "GAP",
    "GAPPY",
    "INELIGIBLE",
    "LAST_PRICE",
    "LATE",
    "LISTED_AT",
    "MAX_GAP",
    "NEVER",
    "STEADY",
    "cut",
    "eventful_panel",
    "with_other_future",
]
