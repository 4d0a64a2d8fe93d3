"""cuFOLIO: Mean-CVaR rebalancing on scenarios of a kernel density, every few sessions."""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PrivateAttr, model_validator

from nvtrader_pipelines.components.component import Component

FloatArray = NDArray[np.float64]
CashShare = Annotated[float, Field(ge=0.0, le=1.0)]
MAX_MAGNITUDE = 1e100  # products of larger numbers overflow


def require_risk_aversion(value: float) -> float:
    """Return the risk aversion if products with it neither vanish nor overflow.

    Raises:
        ValueError: if it is too small or too large.
    """
    if not 1.0 / MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        raise ValueError(
            f"risk_aversion must be from {1.0 / MAX_MAGNITUDE:g} to {MAX_MAGNITUDE:g}, but is {value}; "
            "1 weighs CVaR as the mean"
        )
    return value


RiskAversion = Annotated[PositiveFloat, AfterValidator(require_risk_aversion)]


class NoPortfolioError(ValueError):
    """No portfolio meets the CVaR limit, or none is proven to be optimal."""


@dataclass(frozen=True, eq=False)
class Rebalance:
    """Inputs of a rebalance: names with history, and what the account holds beside them."""

    past: FloatArray  # (T, M) simple session returns, latest last
    held: FloatArray  # (M,) weights before the trade
    other_held: float = 0.0  # sum of the held weights of all other names
    other_kept: float = 0.0  # the part of it that stays; the rest is sold
    center: FloatArray | None = None  # (M,) weights to stay close to
    max_distance: float = 1.0  # one-way, from the center

    @property
    def columns(self) -> list[str]:
        """Columns of the program: the names, and one for all others if any of them is held or kept."""
        others = ["others"] if self.other_held or self.other_kept else []
        return [*(str(i) for i in range(len(self.held))), *others]

    @property
    def current(self) -> FloatArray:
        """Held weights by column."""
        return np.append(self.held, [self.other_held] * (len(self.columns) - len(self.held)))


class CufolioProgram(Component):
    """Rebalance to the best mean less CVaR over the next `cufolio_hold_days` sessions; hold in between.

    It maximizes mean - risk_aversion * CVaR - cost - volatility_penalty * volatility, or with `max_cvar` the same
    without the CVaR term, on scenarios of a kernel density. Ties are broken by the smallest Euclidean norm (with
    `max_cvar`, in the two portfolios whose mixture reaches it). A cap comes before the turnover budget: if drifted
    weights must be sold to reach cap and cash, that much is traded.

    Source: NVIDIA's cuFOLIO for the program, with its knobs' names and bounds of NVTrader; Rockafellar & Uryasev
    (2000). History, costs and cash defaults are our choice.
    """

    cvar_alpha: Annotated[float, Field(ge=0.85, le=0.99)] = 0.95  # confidence level of the CVaR
    max_position_pct: Annotated[float, Field(ge=0.02, le=0.30)] = 0.25  # largest weight of a name, a fraction of 1
    n_scenarios: Annotated[int, Field(ge=1_000, le=10_000)] = 5_000
    cufolio_hold_days: Annotated[int, Field(ge=5, le=60)] = 20  # sessions: horizon, and grid of the rebalances
    history: Annotated[int, Field(ge=63)] = 504  # sessions of returns from which scenarios are drawn
    cash_floor: CashShare = 0.0
    cash_ceiling: CashShare | None = None  # null: as little cash as floor and caps leave, as cash has no tail
    max_turnover: Annotated[float, Field(gt=0.0, le=1.0)] | None = None  # one-way, from the held weights
    cost_bps: Annotated[float, Field(ge=0.0, le=500.0)] = 10.0  # of the absolute change of each weight
    volatility_penalty: NonNegativeFloat = 0.0  # units of mean per unit of volatility over the horizon
    risk_aversion: RiskAversion = 1.0  # units of mean per unit of CVaR
    max_cvar: PositiveFloat | None = None  # over the horizon, a hard limit; null: CVaR is priced instead
    _scenario_seed: int = PrivateAttr(default=0)  # one for all draws, so that weights change only with the past

    @model_validator(mode="after")
    def _require_cash_range(self) -> Self:
        if self.cash_ceiling is not None and self.cash_floor > self.cash_ceiling:
            raise ValueError(
                f"cash_floor must be at most cash_ceiling, but they are {self.cash_floor} and {self.cash_ceiling}; "
                "swap or lower them"
            )
        return self

    @property
    def scenario_seed(self) -> int:
        """Seed of every draw: 0 but for a repetition."""
        return self._scenario_seed

    def with_scenario_seed(self, seed: int) -> Self:
        """Return the program on other draws: a repetition, equal in settings and hash."""
        program = self.model_copy()
        program._scenario_seed = seed  # noqa: SLF001 - its own
        return program

    @property
    def lookback(self) -> int:
        """Sessions of the history."""
        return self.history

    @property
    def has_free_cash(self) -> bool:
        """Whether the program chooses how much cash it holds."""
        return self.cash_ceiling is not None and self.cash_ceiling > self.cash_floor

    def require_reachable(self, n_names: int) -> None:
        """Raise if the caps of all names leave more cash than the ceiling.

        Raises:
            ValueError: with the numbers.
        """
        most = n_names * self.max_position_pct
        if self.cash_ceiling is not None and most < 1.0 - self.cash_ceiling - 1e-9:
            raise ValueError(
                f"cufolio must invest at least 1 - cash_ceiling = {1.0 - self.cash_ceiling:g}, but {n_names} names of "
                f"at most max_position_pct = {self.max_position_pct:g} hold {most:g}; raise one of the two"
            )

    def require_cap_within(self, field: str, max_position: float) -> None:
        """Raise if the cap is above that of the desk.

        Raises:
            ValueError: with both numbers, and `field` as the place of the cap.
        """
        if self.max_position_pct > max_position:
            raise ValueError(
                f"{field}.max_position_pct is {self.max_position_pct:g}, above the {max_position:g} of "
                "pipeline.risk_limits.max_position, above which compliance stops a plan; lower the first or raise the "
                "second"
            )

    def invested_range(self, attainable: float) -> tuple[float, float]:
        """Least and largest sum of the names' weights, if their caps sum to `attainable`."""
        most = min(1.0 - self.cash_floor, attainable)
        return (most if self.cash_ceiling is None else min(most, 1.0 - self.cash_ceiling)), most
