"""Price moves without volume or a split to explain them."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.market.rules import MAX_MOVE


def unexplained_moves(bars: pl.DataFrame) -> NDArray[np.bool_]:
    """Flag bars that moved more than 60 % since the previous bar without volume, as (rows,).

    Moves are of the adjusted close, so a split is no move. After a flagged bar, the next bar is compared with the last
    good bar, unless it confirms the flagged level: a spike costs one bar, not two, and a new level is flagged once
    and then accepted. The flag of a bar does not depend on later bars.

    Args:
        bars: sorted by source, symbol and session, with `parsed_adj_close` and `parsed_volume`.
    """
    price = bars["parsed_adj_close"].to_numpy()
    name = bars.select(pl.struct("source", "parsed_symbol").rle_id()).to_series().to_numpy()
    traded = bars["parsed_volume"].fill_null(0.0).to_numpy() > 0.0
    flagged = np.zeros(len(price), dtype=bool)
    suspects = np.flatnonzero((name[1:] == name[:-1]) & _is_far(price[1:], price[:-1]) & ~traded[1:]) + 1
    reference = -1
    for bar in suspects:  # few: only bars far from their predecessor
        if flagged[bar - 1]:
            flagged[bar] = bool(_is_far(price[bar], price[reference]))
        else:
            flagged[bar], reference = True, bar - 1
    return flagged


def _is_far(price: NDArray[np.float64], before: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(price / before - 1.0) > MAX_MOVE
