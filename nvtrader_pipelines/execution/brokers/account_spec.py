"""Account specs: where an account's orders go, and how they are sized."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, HttpUrl, NonNegativeFloat, NonNegativeInt, PositiveFloat, ValidationError, model_validator

from nvtrader_pipelines.components.component import Component

if TYPE_CHECKING:
    from collections.abc import Callable

    from nvtrader_pipelines.envs.spec import EnvSpec
    from nvtrader_pipelines.execution.book import AccountBook, AccountState
    from nvtrader_pipelines.execution.brokers.broker import Broker
    from nvtrader_pipelines.execution.brokers.venue import Venue
    from nvtrader_pipelines.execution.orders import PanelPrices
    from nvtrader_pipelines.market.panel import MarketPanel

    Prices = tuple[MarketPanel, PanelPrices]
    Connect = Callable[["AlpacaAccountSpec"], Broker]

Weight = Annotated[float, Field(ge=0.0, le=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Currency = Annotated[str, Field(pattern=r"^[A-Z]{3,4}$")]  # code by ISO 4217, or of a coin
KEY_ID, SECRET_KEY = "APCA_API_KEY_ID", "APCA_API_SECRET_KEY"  # environment variables, named as in Alpaca's tools
LIVE_HOST = "api.alpaca.markets"
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}


class SimulatedAccountSpec(Component):
    """Simulated account: the bars fill its orders, at the experiment's fill timing and costs."""

    kind: Literal["simulated"] = "simulated"
    is_live: ClassVar[bool] = False  # whether orders go to a broker
    capital: PositiveFloat = 1_000_000.0  # account currency, at the opening
    currency: Currency = "USD"  # of the market's prices, and so of the account
    whole_shares: bool = False  # orders are rounded down to whole shares
    min_order: NonNegativeFloat = 0.0  # account currency; a smaller order is not placed
    skip_below: Weight = 0.0  # absolute change of weight; a smaller one makes no order
    slippage_bps: Annotated[float, Field(ge=0.0, le=500.0)] = 0.0  # of the price, against every order
    volume_share: Share | None = None  # maximum share of the session's volume per order; None: no limit
    acknowledge: bool = False  # runs of Dagster acknowledge soft findings, which otherwise wait for a person
    first_plan_turnover: NonNegativeFloat = 0.0  # one-way, up to which a policy's first plan waits for nobody

    @property
    def kept_at(self) -> str:
        """Custodian of the account, recorded in its book."""
        return "here"

    def custody(self, opened: "AccountState | None" = None) -> str:
        """Custodian and capital of an opened account, by default of the spec; neither changes."""
        custodian = opened or self
        return f"kept {custodian.kept_at} with a capital of {custodian.capital:,}"

    def open_venue(self, market: "Prices", environment: "EnvSpec", book: "AccountBook", _: "Connect") -> "Venue":
        """Open the account in its book, filled by the bars."""
        from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
        from nvtrader_pipelines.execution.brokers.simulated_venue import SimulatedVenue

        panel, prices = market
        return SimulatedVenue(
            SimulatedMarket.from_environment(panel, environment, prices, self.slippage_bps), book, self
        )


class AlpacaAccountSpec(Component):
    """Account at Alpaca; its keys come from the environment, never from a file."""

    kind: Literal["alpaca"] = "alpaca"
    is_live: ClassVar[bool] = True
    slippage_bps: ClassVar[float] = 0.0  # its fills are the broker's
    acknowledge: ClassVar[bool] = False  # soft findings wait for a person
    currency: ClassVar[str] = "USD"
    paper: bool = True  # Alpaca's paper trading; False trades with money
    whole_shares: bool = False  # orders are rounded down to whole shares
    min_order: NonNegativeFloat = 1.0  # US dollars; Alpaca rejects fractional orders below one
    skip_below: Weight = 0.0  # absolute change of weight; a smaller one makes no order
    first_plan_turnover: NonNegativeFloat = 0.0  # one-way, up to which a policy's first plan waits for nobody
    timeout_s: PositiveFloat = 10.0  # seconds per request
    retries: NonNegativeInt = 3  # of a request without an answer, before the step fails
    base_url: str | None = None  # of another server with Alpaca's REST API; None: Alpaca's own

    @property
    def kept_at(self) -> str:
        """Custodian of the account, recorded in its book."""
        return "at Alpaca, on paper" if self.paper else "at Alpaca, with money"

    def custody(self, opened: "AccountState | None" = None) -> str:
        """Custodian of an opened account, by default of the spec; it does not change."""
        return f"kept {(opened or self).kept_at}"

    def open_venue(self, market: "Prices", _: "EnvSpec", book: "AccountBook", connect: "Connect") -> "Venue":
        """Connect to the broker that holds the account.

        Raises:
            ExecutionError: if it cannot be reached.
        """
        from nvtrader_pipelines.execution.brokers.live_venue import LiveVenue

        return LiveVenue(connect(self), market, book, self)

    @model_validator(mode="after")
    def _require_safe_url(self) -> Self:
        if self.base_url is None:
            return self
        try:
            url = HttpUrl(self.base_url)  # normalized as in browsers, so that no spelling hides the host
        except ValidationError:
            url = None
        host = (url.host or "").rstrip(".") if url is not None else ""
        if url is None or url.username or url.password or (url.scheme != "https" and host not in LOOPBACK):
            raise ValueError(
                f"base_url must be an https address, since keys are sent to it, but is {self.base_url!r}; use http for "
                "this machine only"
            )
        if self.paper and host == LIVE_HOST:
            raise ValueError(
                f"an account with paper: true must not trade with money, but base_url {self.base_url!r} does; remove "
                "base_url"
            )
        return self


AccountSpec = Annotated[SimulatedAccountSpec | AlpacaAccountSpec, Field(discriminator="kind")]
