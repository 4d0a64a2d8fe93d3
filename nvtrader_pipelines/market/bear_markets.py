"""Bull and bear markets of an index, as known at each session."""

import numpy as np
from numpy.typing import NDArray

TURN = 0.2  # fall from the high of a bull market, or rise from the low of a bear market, that ends it


def bear_market_sessions(levels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether an index (T,) is in a bear market at each session, from levels up to that session alone.

    A bear market begins at the first close 20 % below the high of the bull market, and ends at the first close 20 %
    above its own low; the history begins as a bull market. Between two changes the index moves by 20 %, so the state
    does not flicker as the sign of a trailing return does.

    Source: the filter of Lunde & Timmermann (2004), "Duration Dependence in Stock Prices", with 20 % both ways.
    """
    is_bear, extreme, states = False, levels[0], []
    for level in levels.tolist():
        extreme = min(extreme, level) if is_bear else max(extreme, level)
        if level >= (1.0 + TURN) * extreme if is_bear else level <= (1.0 - TURN) * extreme:
            is_bear, extreme = not is_bear, level
        states.append(is_bear)
    return np.array(states)
