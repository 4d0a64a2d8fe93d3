"""Risk limits of compliance; the pipeline's limits may be tighter."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat, StringConstraints, model_validator

from nvtrader_pipelines.components.component import Component

Share = Annotated[float, Field(gt=0.0, le=1.0)]
MAX_GROSS = 4.0  # of any account: intraday buying power of a US margin account over its equity (FINRA Rule 4210)
Gross = Annotated[float, Field(gt=0.0, le=MAX_GROSS)]
Turnover = Annotated[float, Field(gt=0.0, le=2.0 * MAX_GROSS)]  # one-way, at most from all long to all short


def _require_ticker(name: str) -> str:
    if not TICKER.fullmatch(name):
        raise ValueError(f"a restricted name must be a symbol in capitals, such as BRK.B, but is {name!r}")
    return name


TICKER = re.compile(r"[A-Z0-9^][A-Z0-9^./=-]*")
Ticker = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_require_ticker)]


class RiskLimits(Component):
    """Limits of a portfolio; weights are fractions of equity, cash is no position.

    The default is long-only without debt: a gross above 1 allows debt, and `max_short` short positions.
    """

    max_position: Share = 0.25  # of one name, long or short; a plan above it is blocked
    max_short: Annotated[float, Field(ge=0.0, le=1.0, exclude_if=lambda share: share == 0.0)] = (
        0.0  # of one name sold short, as a positive fraction; 0: long-only
    )
    max_gross: Gross = 1.0  # sum of absolute weights
    max_net: Gross = 1.0  # sum of weights
    min_net: Annotated[float, Field(ge=-MAX_GROSS, le=MAX_GROSS)] = 0.0  # sum of weights; negative: net short
    max_sector: Gross = 0.45  # of one sector, in absolute weights; a plan above it waits for acknowledgement
    max_turnover: Turnover = 0.20  # one-way, of one plan; a plan above it waits for acknowledgement
    min_names: NonNegativeInt = 4  # with weight; fewer raise a warning
    max_volatility: PositiveFloat = 0.22  # realized, per year; more raises a warning
    wash_sale_days: NonNegativeInt = (
        30  # calendar days after a sale at a loss in which the name may not be bought; 0: none
    )
    restricted: tuple[Ticker, ...] = ()  # names that may not be bought

    @model_validator(mode="after")
    def _require_net_range(self) -> Self:
        if self.min_net > self.max_net:
            raise ValueError(f"min_net must be at most max_net, but they are {self.min_net} and {self.max_net}")
        return self
