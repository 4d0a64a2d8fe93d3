"""Fill timing: when the orders of a decision fill."""

from typing import Literal

from nvtrader_pipelines.market.panel import MarketPanel

FillTiming = Literal["next_open", "next_close", "same_close"]


def resolve_fill(fill: FillTiming, panel: MarketPanel) -> FillTiming:
    """Return the supported fill timing: without opens, `next_open` becomes `next_close`."""
    return "next_close" if fill == "next_open" and panel.overnight_returns is None else fill
