"""Accounts that an engine steps from close to close, and the result that all engines share."""

from abc import ABC, abstractmethod
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import polars as pl

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.components.columns import Column, TableSchema
from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.accounts import Accounts, environment_legs
from nvtrader_pipelines.envs.dynamics import hold, holding_period
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.account_tables import EQUITY
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import no_cost

CURVE = EQUITY.only("session", "equity", "net_return", "drawdown", "turnover", "cost", "cash")
ORDERS = TableSchema(
    Column("decided_on", pl.Date, "session at whose close the order was given"),
    Column("session", pl.Date, "session in which it filled or ended"),
    Column("symbol", pl.String, "name"),
    Column("side", pl.String, "buy or sell"),
    Column("quantity", pl.Float64, "shares filled; null in an engine of weights"),
    Column("price", pl.Float64, "price of the fill; null in an engine of weights, or without a fill"),
    Column("limit", pl.Float64, "limit; null: at the market"),
    Column("change", pl.Float64, "change of the name's weight by the fill"),
    Column("status", pl.String, "filled or ended"),
    Column("reason", pl.String, "why it was cut or ended; empty for a complete fill"),
)
SessionFigures = namedtuple("SessionFigures", CURVE)  # of one close
OrderOutcome = namedtuple("OrderOutcome", ORDERS)


@dataclass(frozen=True, eq=False)
class EngineResult:
    """Result of a back-test, the same for every engine."""

    curve: pl.DataFrame  # `CURVE`, a row per close after the first decision
    weights: FloatArray  # (S, N+1) at each close, cash last
    orders: pl.DataFrame  # `ORDERS`


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
        curve = pl.DataFrame(self.figures, schema=CURVE, orient="row")
        return EngineResult(curve, weights, pl.DataFrame(self.orders, schema=ORDERS, orient="row"))

    def record_close(self, weights: FloatArray, equity: float, turnover: float, cost: float) -> None:
        """Move to the next close, with its weights (N+1,), equity, and the session's turnover and cost."""
        before = self.figures[-1].equity if self.figures else 1.0
        self.t, self.peak = self.t + 1, max(self.peak, equity)
        session, net_return = self.panel.sessions[self.t].item(), equity / before - 1.0 if before > 0.0 else 0.0
        drawdown, cash = 1.0 - equity / self.peak, float(weights[-1])
        self.figures.append(SessionFigures(session, equity, net_return, drawdown, turnover, cost, cash))
        self._weights.append(weights)


class TransitionAccount(EngineAccount):
    """Account of weights, stepped by the environment's transition."""

    def __init__(self, panel: MarketPanel, environment: EnvSpec, t: int) -> None:
        super().__init__(panel, t)
        self._accounts = Accounts(panel, environment, 1, t=t, tracks_positions=True)
        self._legs = environment_legs(panel, environment, tracks_exposure=True)

    @property
    def account(self) -> Account:
        """State at the last close."""
        return self._accounts.account(0)

    def trade(self, target: FloatArray | None, n_sessions: int) -> list[SessionFigures]:
        """Trade to target weights (N+1,), or not at all for None, and hold; returns the figures of each close."""
        at, held = self._accounts.t, self._accounts.weights
        is_trading = np.array([target is not None and self._accounts.equity[0] > 0.0])  # ruin stays in cash
        wanted = held if target is None else target[None, :]
        step = self._accounts.trade(wanted, is_trading, n_sessions)
        done, exposures = step.transition, step.transition.exposures
        turnover, cost = exposures.cap_turnover[0].copy(), exposures.cap_cost[0].copy()
        turnover[0] += done.turnover[0]
        cost[0] += done.cost[0]
        for k, figures in enumerate(zip(step.path[0].tolist(), turnover.tolist(), cost.tolist(), strict=True)):
            weights = hold(held, wanted, is_trading, holding_period(self._legs, at, k + 1), no_cost).weights[0]
            self.record_close(weights if figures[0] > 0.0 else opening_account(len(weights) - 1).weights, *figures)
        self.orders += self.order_outcomes(self.panel, int(at[0]), self._legs.fill != "same_close", done.trades[0])
        return self.figures[-n_sessions:]

    @staticmethod
    def order_outcomes(panel: MarketPanel, t: int, n_later: int, trades: FloatArray) -> list[OrderOutcome]:
        """Orders of a decision at session `t` that fill `n_later` sessions later, from changes of weight (N+1,)."""
        days = panel.sessions[[t, t + n_later]].tolist()
        return [
            OrderOutcome(*days, symbol, "buy" if change > 0.0 else "sell", None, None, None, change, "filled", "")
            for symbol, change in zip(panel.symbols, trades[:-1].tolist(), strict=True)
            if change
        ]
