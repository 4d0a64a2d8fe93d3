"""Pack the sessions of exchanges for `nvtrader_pipelines.market.calendar`, after an update of exchange_calendars."""

import warnings
from typing import Any

import exchange_calendars
import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.market.calendar import FIRST_DAY, LAST_DAY, SESSIONS

NOT_COMPUTABLE = {"ASEX", "XBEL", "XBSE", "XCYS", "XTAE"}  # over all years, by exchange_calendars 4.13
ROUND_THE_CLOCK = {"24/5", "24/7"}


def exchange_names() -> list[str]:
    """Names of the calendars with sessions of their own."""
    return sorted({*exchange_calendars.get_calendar_names(include_aliases=False)} - NOT_COMPUTABLE - ROUND_THE_CLOCK)


def exchange_sessions(name: str) -> NDArray[np.datetime64]:
    """Compute the sessions of an exchange as (S,) days, as far as exchange_calendars knows them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Series.values returning", category=DeprecationWarning)
        known = exchange_calendars.get_calendar(name)
        earliest, latest = known.bound_min(), known.bound_max()
        start = FIRST_DAY if earliest is None else max(FIRST_DAY, earliest.date())
        end = LAST_DAY if latest is None else min(LAST_DAY, latest.date())
        return exchange_calendars.get_calendar(name, start=str(start), end=str(end)).sessions.to_numpy()


def main() -> None:
    """Write the file."""
    days = np.arange(np.datetime64(FIRST_DAY), np.datetime64(LAST_DAY) + 1)
    packed: dict[str, Any] = {name: np.packbits(np.isin(days, exchange_sessions(name))) for name in exchange_names()}
    np.savez_compressed(SESSIONS, **packed)


if __name__ == "__main__":
    main()
