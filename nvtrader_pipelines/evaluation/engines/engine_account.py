"""Account that an engine steps from close to close, and the result that all engines share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import date
from typing import Literal, NamedTuple, Self

import numpy as np
import polars as pl

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.evaluation.account_tables import EQUITY
from nvtrader_pipelines.market.panel import MarketPanel

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
