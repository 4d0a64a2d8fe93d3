"""Financing: what borrowed cash and borrowed names cost by elapsed calendar time."""

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from nvtrader_pipelines.components.component import Component

DAYS_PER_YEAR = 360.0  # ACT/360, the money market's day count for the US dollar


class Financing(Component):
    """Yearly rates on borrowed cash and on the value of short positions, by calendar days over 360 (ACT/360).

    A position held at a close pays for the calendar days to the next close, Friday's for three, on its value at that
    close; one opened and closed within a session pays nothing. Cash is borrowed where its weight is negative, so only
    above gross 1. Cash earns nothing, and the proceeds of a short sale are cash that pays for other names.

    Source: FINRA Rule 4210 on margin accounts; rates near those US brokers publish for large margin loans (the
    overnight rate plus 1 to 1.5 %) and for easily borrowed large companies (0.25 to 0.5 %). The defaults are our
    choice within both.
    """

    margin_rate: NonNegativeFloat = 0.05  # per year, on borrowed cash
    borrow_fee: NonNegativeFloat = 0.005  # per year, on the value of names sold short

    def charges(self, sessions: NDArray[np.datetime64]) -> NDArray[np.float64]:
        """Fractions of borrowed cash and of short value charged from the session before to each, (T, 2); 0 at first."""
        days = np.diff(sessions.astype("datetime64[D]").astype(np.int64), prepend=0)
        days[:1] = 0
        return days[:, None] / DAYS_PER_YEAR * np.array([self.margin_rate, self.borrow_fee])


STANDARD_FINANCING = Financing()
