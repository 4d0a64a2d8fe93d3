"""What a session does to a paper account: the one transition of environments and back-tests, and what part fills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.dynamics import (
    HoldingPeriod,
    Legs,
    Transition,
    drift,
    hold,
    holding_period,
    market_legs,
    resolve_fill,
)
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.transition import DELISTED, TRADABLE
from nvtrader_pipelines.execution.book import HELD
from nvtrader_pipelines.execution.prices import Prices
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostFunction, no_cost, proportional_cost, total_cost

FloatArray = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PaperMarket:
    """A panel as a paper account meets it: legs, costs and prices; `t` is the session of a decision."""

    panel: MarketPanel
    legs: Legs
    prices: Prices
    cost: CostFunction  # the spec's fees and the slippage

    @classmethod
    def of(cls, panel: MarketPanel, environment: EnvSpec, prices: Prices, slippage_bps: float = 0.0) -> Self:
        """The market of an experiment's environment."""
        fees = total_cost(environment.cost_models, panel) if environment.cost_models else no_cost
        legs = market_legs(panel, resolve_fill(environment.fill, panel))
        return cls(panel, legs, prices, _with_slippage(fees, slippage_bps * 1e-4) if slippage_bps else fees)

    def filled_at(self, t: int) -> int:
        """The session whose prices fill the orders of a decision."""
        return int(self.legs.filled_at(np.array([t]))[0])

    def fill_session(self, t: int) -> date:
        """The day of that session."""
        return self.panel.sessions[self.filled_at(t)].item()

    def fill_prices(self, t: int) -> FloatArray:
        """Prices the orders of a decision fill at, (N,); of a name that has none there, its last close."""
        at = self.filled_at(t)
        return np.where(self.tradable(t), self.prices.filled_at(self.legs.fill)[at], self.prices.last_closes[at])

    def tradable(self, t: int) -> Flags:
        """Names that have a price at the fill of a decision, (N,)."""
        return (self.legs.condition[self.filled_at(t)] & TRADABLE).astype(np.bool_)

    def delisted(self, t: int) -> Flags:
        """Names that are written off at the fill of a decision, (N,)."""
        return (self.legs.condition[self.filled_at(t)] & DELISTED).astype(np.bool_)

    def hold(self, account: Account, t: int, target: FloatArray | None, frozen: Flags | None = None) -> Transition:
        """The session after a decision; without a target nothing is traded, and names `frozen` (N,) are not."""
        wanted = account.weights if target is None else target
        period = self._period(t, frozen)
        return hold(account.weights[None, :], wanted[None, :], np.array([target is not None]), period, self.cost)

    def drift(self, account: Account, t: int) -> tuple[FloatArray, float]:
        """Weights (N+1,) and growth of the session after `t` where nothing was decided at its close."""
        held, growth = drift(account.weights[None, :], holding_period(self.legs, np.array([t]), 1))
        return held[0], float(growth[0])

    def growth_to_fill(self, account: Account, t: int) -> float:
        """Equity just before the fill of a decision over that at its close."""
        returns = self.legs.before_fill[t + 1]
        return float(account.weights[:-1] @ (1.0 + returns) + account.weights[-1])

    def filled(self, account: Account, t: int, bought: FloatArray) -> Transition:
        """The session after a decision of which only a part filled; what it costs is paid in cash.

        Args:
            account: at the decision.
            t: its session.
            bought: (N,) value bought (negative: sold) of each name, a fraction of equity before costs.
        """
        drifted, cost = self.hold(account, t, None).drifted[0, :-1], self.cost_of(bought, t)
        held = np.where(self.delisted(t), 0.0, drifted + bought)
        names = np.where(held > HELD, held, 0.0) / (1.0 - cost)
        target = np.append(names, max(0.0, 1.0 - names.sum()))
        condition = self.legs.condition.copy()
        condition[self.filled_at(t), ~self.delisted(t)] |= np.uint8(TRADABLE)  # a name without a price pays nothing
        period = holding_period(replace(self.legs, condition=condition), np.array([t]), 1)
        done = hold(account.weights[None, :], target[None, :], np.array([True]), period, _known_cost(cost))
        trades = np.append(bought, -bought.sum())
        turnover = 0.5 * np.abs(trades).sum()
        return replace(done, trades=trades[None, :], turnover=np.array([turnover]))

    def cost_of(self, bought: FloatArray, t: int) -> float:
        """The fraction of equity that trades (N,) of a decision cost."""
        return min(1.0 - 1e-9, float(self.cost(bought[None, :], np.array([self.filled_at(t)]))[0]))

    def affordable(self, account: Account, t: int, bought: FloatArray) -> float:
        """The share of the purchases among `bought` (N,) that cash pays for after the sales, with the costs of all."""
        drifted = self.hold(account, t, None).drifted[0]
        purchases, paid_out = np.maximum(bought, 0.0).sum(), drifted[:-1][self.delisted(t)].sum()
        room = drifted[-1] + paid_out - np.minimum(bought, 0.0).sum() - self.cost_of(bought, t)
        return 1.0 if purchases <= room + HELD else max(0.0, room / purchases)

    def _period(self, t: int, frozen: Flags | None) -> HoldingPeriod:
        legs = self.legs
        if frozen is not None and frozen.any():
            condition = legs.condition.copy()
            condition[self.filled_at(t), frozen] &= np.uint8(255 - TRADABLE)
            legs = replace(legs, condition=condition)
        return holding_period(legs, np.array([t]), 1)


def signed(symbols: Sequence[str], quantities: Mapping[str, float]) -> FloatArray:
    """Quantities by name as (N,), 0 where there is none."""
    return np.array([quantities.get(symbol, 0.0) for symbol in symbols])


def _known_cost(cost: float) -> CostFunction:
    def known(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:  # noqa: ARG001 - one signature
        return np.array([cost])

    return known


def _with_slippage(fees: CostFunction, rate: float) -> CostFunction:
    slippage = proportional_cost(rate)

    def both(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
        return fees(trades, filled_at) + slippage(trades, filled_at)

    return both
