"""Engines of back-tests: what an account does in a session, and the result that all engines share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.account_tables import EQUITY
from nvtrader_pipelines.evaluation.engines.strategy import Strategy
from nvtrader_pipelines.market.panel import MarketPanel, Window
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable

FloatArray = NDArray[np.float64]
Decider = Policy | Strategy | WeightsTable
CURVE = EQUITY.only("session", "equity", "net_return", "drawdown", "turnover", "cost", "cash")


class SessionFigures(NamedTuple):
    """Figures of an account at one close."""

    session: date
    equity: float  # 1 at the start
    net_return: float
    drawdown: float  # positive fraction
    turnover: float  # one-way
    cost: float  # fraction of equity
    cash: float  # weight


class OrderOutcome(NamedTuple):
    """Order, and how it ended; a row of a result's orders."""

    decided_on: date
    session: date  # in which it filled or ended
    symbol: str
    side: Literal["buy", "sell"]
    quantity: float | None  # shares filled; None in an engine of weights
    price: float | None  # of the fill; None in an engine of weights, or without a fill
    limit: float | None  # None: at the market
    change: float  # of the name's weight, by the fill
    status: Literal["filled", "ended"]
    reason: str  # why it was cut or ended; empty for a complete fill


_DTYPES = (pl.Date, pl.Date, pl.String, pl.String, *[pl.Float64] * 4, pl.String, pl.String)
ORDERS = pl.Schema(dict(zip(OrderOutcome._fields, _DTYPES, strict=True)))


@dataclass(frozen=True, eq=False)
class EngineResult:
    """Result of a back-test, the same for every engine."""

    curve: pl.DataFrame  # `SessionFigures` of each close after the first decision
    weights: FloatArray  # (S, N+1) at each close, cash last
    orders: pl.DataFrame  # `OrderOutcome`, a row per order

    @classmethod
    def from_rows(cls, figures: list[SessionFigures], weights: FloatArray, orders: list[OrderOutcome]) -> Self:
        """Build the result from rows, and weights (S, N+1)."""
        curve = pl.DataFrame(figures, schema=CURVE, orient="row")
        return cls(curve, weights, pl.DataFrame(orders, schema=ORDERS, orient="row"))


class EngineAccount(ABC):
    """One account of an engine, opened in cash with equity 1 at the close of session `t`."""

    def __init__(self, panel: MarketPanel, t: int) -> None:
        self.panel, self.t = panel, t
        self.figures: list[SessionFigures] = []
        self.orders: list[OrderOutcome] = []
        self._weights: list[FloatArray] = []
        self.peak = 1.0  # highest equity so far

    @property
    @abstractmethod
    def account(self) -> Account:
        """State at the last close, as policies see it."""

    @abstractmethod
    def trade(self, target: FloatArray | None, n_sessions: int) -> list[SessionFigures]:
        """Trade to target weights (N+1,), or not at all for None, and hold; returns the figures of each close."""

    def result(self) -> EngineResult:
        """Figures, weights and orders of all sessions so far."""
        weights = np.array(self._weights).reshape(-1, len(self.panel.symbols) + 1)
        return EngineResult.from_rows(self.figures, weights, self.orders)

    def record_close(self, weights: FloatArray, equity: float, traded: tuple[float, float]) -> None:
        """Move to the next close, with its weights (N+1,), equity, and the session's turnover and cost."""
        before = self.figures[-1].equity if self.figures else 1.0
        self.t, self.peak = self.t + 1, max(self.peak, equity)
        net_return = equity / before - 1.0 if before > 0.0 else 0.0
        drawdown, cash = 1.0 - equity / self.peak, float(weights[-1])
        session = self.panel.sessions[self.t].item()
        self.figures.append(SessionFigures(session, equity, net_return, drawdown, *traded, cash))
        self._weights.append(weights)


class Engine(Component, ABC):
    """Back-test of one account on a panel, under an environment's costs and fills."""

    supports_rl_injection: ClassVar[bool]  # whether an agent can decide during the run

    @abstractmethod
    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> EngineAccount:
        """Open an account in cash with equity 1 at the close of session `t`, to be stepped by the caller."""

    @abstractmethod
    def run(
        self, panel: MarketPanel, environment: EnvSpec, decider: Decider, window: Window | None = None
    ) -> EngineResult:
        """Run an account from cash at the window's first close to its last.

        Policies and weights decide every `environment.rebal_freq` sessions, beginning at the first close.

        Args:
            panel: the market.
            environment: costs, fills and the frequency of decisions.
            decider: a policy, a strategy or dated weights.
            window: first and last session; None for the whole panel.

        Raises:
            ValueError: if the engine cannot run the decider or environment, or the window is not in the panel.
        """


def require_window(panel: MarketPanel, window: Window | None) -> Window:
    """Window in the panel; the whole panel for None.

    Raises:
        ValueError: if it has no session after its first, or is not in the panel.
    """
    first, last = window or (0, len(panel.sessions) - 1)
    if not 0 <= first < last < len(panel.sessions):
        raise ValueError(
            f"a back-test needs a window of at least two sessions within 0..{len(panel.sessions) - 1}, but it is "
            f"{first}..{last}; choose sessions of the panel"
        )
    return first, last


def require_long_only(environment: EnvSpec, engine: Engine) -> None:
    """Raise if the environment may borrow or sell short.

    Raises:
        ValueError: if it may.
    """
    if environment.is_levered:
        raise ValueError(
            f"{kind_of(type(engine))} holds neither debt nor short positions, but the action "
            f"{environment.action.kind} may; choose the engine walk, or a long-only action"
        )


def as_policy(decider: Policy | WeightsTable, panel: MarketPanel) -> Policy:
    """Policy of a decider: of dated weights, the one that trades to each row on its day."""
    return WeightsPolicy(*decider.decisions(panel)) if isinstance(decider, WeightsTable) else decider
