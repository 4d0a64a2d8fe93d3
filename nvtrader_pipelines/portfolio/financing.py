"""Margin interest and stock-borrow fees."""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.portfolio.costs import FloatArray

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

    kind: Literal["margin_loan"] = "margin_loan"
    margin_rate: NonNegativeFloat = 0.05  # per year, on borrowed cash
    borrow_fee: NonNegativeFloat = 0.005  # per year, on the value of names sold short

    def charges(self, sessions: NDArray[np.datetime64]) -> FloatArray:
        """Charges per session as fractions of borrowed cash, short value and gross above 1, (T, 3)."""
        return _charges(sessions, self.margin_rate, self.borrow_fee, 0.0)


class GrossFinancing(Component):
    """Yearly rate on gross exposure above 1, long and short alike, by calendar days over 360 (ACT/360).

    Long-only accounts pay what a margin loan at the same rate costs. Accounts with short positions pay on these, too,
    though their proceeds buy the long ones.

    Source: lee101/stock-prediction (gymrl), whose 6.5 % is charged per step, on what exceeds the base gross.
    """

    kind: Literal["gross_above_one"] = "gross_above_one"
    rate: NonNegativeFloat = 0.065  # per year, on the sum of absolute weights above 1
    borrow_fee: NonNegativeFloat = 0.0  # per year, on the value of names sold short, on top

    def charges(self, sessions: NDArray[np.datetime64]) -> FloatArray:
        """Charges per session as fractions of borrowed cash, short value and gross above 1, (T, 3)."""
        return _charges(sessions, 0.0, self.borrow_fee, self.rate)


FinancingModel = Annotated[Financing | GrossFinancing, Field(discriminator="kind"), Family("financing")]
STANDARD_FINANCING = Financing()


def _charges(sessions: NDArray[np.datetime64], *yearly: float) -> FloatArray:
    days = np.diff(sessions.astype("datetime64[D]").astype(np.int64), prepend=0)
    days[:1] = 0
    return days[:, None] / DAYS_PER_YEAR * np.array(yearly)
