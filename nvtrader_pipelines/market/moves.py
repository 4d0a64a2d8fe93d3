"""Price moves that neither volume nor a split explains."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.rules import MAX_MOVE


def unexplained_moves(bars: pl.DataFrame) -> NDArray[np.bool_]:
    """Which bars moved more than 60 % from the bar before with no volume to show for it, as (rows,).

    The move is that of the adjusted close, in which a split is no move. A refused bar never becomes the
    yardstick of the next one, unless that next bar confirms its level: so a spike costs one bar, not two,
    and a new level is refused once and then believed. Only bars up to the judged one are looked at.

    Args:
        bars: sorted by source, symbol and session, with `parsed_adj_close` and `parsed_volume`.
    """
    price = bars["parsed_adj_close"].to_numpy()
    begins = bars.select(pl.struct("source", "parsed_symbol").rle_id())
    name = begins.to_series().to_numpy()
    traded = bars["parsed_volume"].fill_null(0.0).to_numpy() > 0.0
    refused = np.zeros(len(price), dtype=bool)
    suspects = np.flatnonzero((name[1:] == name[:-1]) & _far(price[1:], price[:-1]) & ~traded[1:]) + 1
    yardstick = -1
    for bar in suspects:  # a handful: only bars far from their predecessor
        if refused[bar - 1]:
            refused[bar] = bool(_far(price[bar], price[yardstick]))
        else:
            refused[bar], yardstick = True, bar - 1
    return refused


def _far(price: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(price / before - 1.0) > MAX_MOVE
