"""Accounts: a family of choices of where orders go and how they are made."""

from typing import Annotated, Literal, Self

from pydantic import Field, HttpUrl, NonNegativeFloat, NonNegativeInt, PositiveFloat, ValidationError, model_validator

from nvtrader_pipelines.components.component import Component

Weight = Annotated[float, Field(ge=0.0, le=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
KEY_ID, SECRET_KEY = "APCA_API_KEY_ID", "APCA_API_SECRET_KEY"  # variables of Alpaca's keys, as its own tools call them
LIVE_HOST = "api.alpaca.markets"
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class PaperAccountSpec(Component):
    """An account that is kept here: orders are filled by the bars, at the spec's fill timing and costs."""

    kind: Literal["paper"] = "paper"
    capital: PositiveFloat = 1_000_000.0  # account currency, at the opening
    whole_shares: bool = False  # orders are rounded down to whole shares
    min_order: NonNegativeFloat = 0.0  # account currency; a smaller order is not placed
    skip_below: Weight = 0.0  # absolute change of weight; a smaller one makes no order
    slippage_bps: Annotated[float, Field(ge=0.0, le=500.0)] = 0.0  # of the price, against every order
    volume_share: Share | None = None  # of the session's volume that an order may fill; None: all it asks for

    @property
    def kept_at(self) -> str:
        """Who has the account; its book is of no other."""
        return "here"


class AlpacaAccountSpec(Component):
    """An account at Alpaca; its keys come from the environment, never from a file."""

    kind: Literal["alpaca"] = "alpaca"
    paper: bool = True  # Alpaca's paper trading; False trades with money
    whole_shares: bool = False  # orders are rounded down to whole shares
    min_order: NonNegativeFloat = 1.0  # US dollars; Alpaca refuses fractional orders below one
    skip_below: Weight = 0.0  # absolute change of weight; a smaller one makes no order
    timeout_s: PositiveFloat = 10.0  # seconds that one request may take
    retries: NonNegativeInt = 3  # of a request without an answer, before the step gives up
    base_url: str | None = None  # of another server that speaks Alpaca's REST API; None: Alpaca's own

    @property
    def kept_at(self) -> str:
        """Who has the account; its book is of no other."""
        return "at Alpaca, on paper" if self.paper else "at Alpaca, with money"

    @model_validator(mode="after")
    def _keys_go_where_they_may(self) -> Self:
        if self.base_url is None:
            return self
        try:
            url = HttpUrl(self.base_url)  # as browsers read it: host in small letters, without tricks
        except ValidationError:
            url = None
        host = (url.host or "").rstrip(".") if url is not None else ""
        if url is None or url.username or url.password or (url.scheme != "https" and host not in LOOPBACK):
            raise ValueError(
                f"base_url must be an https address, since keys are sent to it, but is {self.base_url!r}; http is for "
                "this machine only"
            )
        if self.paper and host == LIVE_HOST:
            raise ValueError(f"base_url {self.base_url!r} trades with money, but paper is true; leave base_url out")
        return self


AccountSpec = Annotated[PaperAccountSpec | AlpacaAccountSpec, Field(discriminator="kind")]
