"""Fill timing: when the orders of a decision fill."""

from typing import Literal

from nvtrader_pipelines.market.panel import MarketPanel

FillTiming = Literal["next_open", "next_close", "same_close"]


def resolve_fill(fill: FillTiming, panel: MarketPanel) -> FillTiming:
    """Return the supported fill timing: without opens, `next_open` becomes `next_close`.

    So it does where the market never closes: its next open is the close of the decision.
    """
    return "next_close" if fill == "next_open" and no_opens(panel) else fill


def no_opens(panel: MarketPanel) -> str:
    """Say why no order can fill at an open; empty if one can."""
    if panel.calendar.never_closes:
        return "the market never closes"
    return "the market has no opens" if panel.overnight_returns is None else ""
