"""Financing: interest on borrowed cash and fees on borrowed names, by calendar days."""

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from nvtrader_pipelines.components.component import Component

DAYS_PER_YEAR = 360.0  # ACT/360, the money market's day count for the US dollar


class Financing(Component):
    """Yearly rates on borrowed cash and on short positions, by calendar days over 360 (ACT/360).

    A position held at a close pays for the calendar days to the next close (three from a Friday), on its value at that
    close; a position opened and closed within a session pays nothing. A negative weight of cash is borrowed, so only
    above gross 1. Cash earns nothing, and the proceeds of a short sale may buy other names.

    Source: FINRA Rule 4210 on margin accounts; rates near those US brokers publish for large margin loans (the
    overnight rate plus 1 to 1.5 %) and for easily borrowed large companies (0.25 to 0.5 %). The defaults are our
    choice within these ranges.
    """

    margin_rate: NonNegativeFloat = 0.05  # per year, on borrowed cash
    borrow_fee: NonNegativeFloat = 0.005  # per year, on the value of names sold short

    def charges(self, sessions: NDArray[np.datetime64]) -> NDArray[np.float64]:
        """Charges per session as fractions of borrowed cash and of short value, (T, 2)."""
        days = np.diff(sessions.astype("datetime64[D]").astype(np.int64), prepend=0)
        days[:1] = 0
        return days[:, None] / DAYS_PER_YEAR * np.array([self.margin_rate, self.borrow_fee])


STANDARD_FINANCING = Financing()
