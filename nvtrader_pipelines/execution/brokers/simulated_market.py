"""Market of a simulated account: the transition of environments and back-tests, also for partial fills."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account
from nvtrader_pipelines.envs.accounts import environment_legs
from nvtrader_pipelines.envs.dynamics import HoldingPeriod, Legs, Transition, drift, hold, holding_period
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.envs.transition import BEFORE_FILL, DELISTED, TRADABLE
from nvtrader_pipelines.execution.book import MIN_HOLDING
from nvtrader_pipelines.execution.orders import PanelPrices
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.costs import CostFunction, no_cost, proportional_cost, total_cost

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SimulatedMarket:
    """Panel with legs, costs and prices for a simulated account; `t` is the session of a decision."""

    panel: MarketPanel
    legs: Legs
    prices: PanelPrices
    cost: CostFunction  # fees of the environment, and slippage

    @classmethod
    def from_environment(
        cls, panel: MarketPanel, environment: EnvSpec, prices: PanelPrices, slippage_bps: float = 0.0
    ) -> Self:
        """Make the market of an experiment's environment."""
        fees = total_cost(environment.cost_models, panel) if environment.cost_models else no_cost
        legs = environment_legs(panel, environment)
        return cls(panel, legs, prices, _with_slippage(fees, slippage_bps * 1e-4) if slippage_bps else fees)

    @property
    def is_levered(self) -> bool:
        """Whether the account may have short positions and debt."""
        return self.legs.tracks_exposure

    def filled_at(self, t: int) -> int:
        """Position of the session whose prices fill the orders of a decision."""
        return int(self.legs.filled_at(np.array([t]))[0])

    def fill_session(self, t: int) -> date:
        """Day of the session whose prices fill the orders of a decision."""
        return self.panel.sessions[self.filled_at(t)].item()

    def fill_prices(self, t: int) -> FloatArray:
        """Fill prices (N,) of a decision's orders; the last close of a name without a price."""
        at = self.filled_at(t)
        return np.where(self.tradable(t), self.prices.fill_prices(self.legs.fill)[at], self.prices.last_closes[at])

    def tradable(self, t: int) -> Flags:
        """Names with a price at the fill of a decision, (N,)."""
        return (self.legs.condition[self.filled_at(t)] & TRADABLE).astype(np.bool_)

    def delisted(self, t: int) -> Flags:
        """Names that are delisted at the fill of a decision, (N,)."""
        return (self.legs.condition[self.filled_at(t)] & DELISTED).astype(np.bool_)

    def hold(self, account: Account, t: int, target: FloatArray | None, frozen: Flags | None = None) -> Transition:
        """Return the transition after a decision; None as target trades nothing, `frozen` (N,) names never trade."""
        weights = account.weights if target is None else target
        period = self._period(t, frozen)
        return hold(account.weights[None, :], weights[None, :], np.array([target is not None]), period, self.cost)

    def drift(self, account: Account, t: int) -> Transition:
        """Return the transition of the session after `t` without a decision at its close."""
        return drift(account.weights[None, :], holding_period(self.legs, np.array([t]), 1), self.cost)

    def growth_to_fill(self, account: Account, t: int) -> float:
        """Growth of equity from the close of a decision to just before its fill."""
        weights, cash = account.weights[:-1], account.weights[-1]
        short = np.maximum(-weights, 0.0).sum()
        bases = np.array([max(0.0, -cash), short, max(0.0, 2.0 * short - cash)])  # debt, short value, gross above 1
        charge = self.legs.charges[BEFORE_FILL, t + 1] @ bases
        return max(0.0, float(weights @ (1.0 + self.legs.before_fill[t + 1]) + cash - charge))

    def partial_fill(self, account: Account, t: int, bought: FloatArray) -> Transition:
        """Return the transition after a partly filled decision at session `t`; cash pays the costs.

        `bought` (N,) is the value bought of each name, negative if sold, a fraction of equity before costs.
        """
        drifted, cost = self.hold(account, t, None).drifted[0, :-1], self.cost_of(bought, t)
        held = np.where(self.delisted(t), 0.0, drifted + bought)
        size = np.abs(held) if self.is_levered else held
        names = np.where(size > MIN_HOLDING, held, 0.0) / (1.0 - cost)
        cash = 1.0 - names.sum()
        target = np.append(names, cash if self.is_levered else max(0.0, cash))
        condition = self.legs.condition.copy()
        condition[self.filled_at(t), ~self.delisted(t)] |= np.uint8(TRADABLE)  # names without a price pay no cost
        legs = replace(self.legs, condition=condition, close_cap=np.inf)
        period = holding_period(legs, np.array([t]), 1)
        transition = hold(account.weights[None, :], target[None, :], np.array([True]), period, _constant_cost(cost))
        transition = self._cap_gross(transition, t) if self.is_levered else transition
        trades = np.append(bought, -bought.sum())
        turnover = 0.5 * np.abs(trades).sum()
        return replace(transition, trades=trades[None, :], turnover=np.array([turnover]))

    def _cap_gross(self, transition: Transition, t: int) -> Transition:
        """Add the trades of the cap on gross at the close, which names without a price do not take part in."""
        legs = replace(self.legs, returns=np.zeros_like(self.legs.returns), charges=np.zeros_like(self.legs.charges))
        capped = drift(transition.weights, holding_period(legs, np.array([t]), 1), self.cost)
        return replace(
            transition,
            session_growth=transition.session_growth * capped.session_growth,
            session_cash=capped.session_cash,
            weights=capped.weights,
            tracked=capped.exposures._replace(financing=transition.exposures.financing),
            capped=capped.capped,
        )

    def cost_of(self, bought: FloatArray, t: int) -> float:
        """Cost of a decision's trades (N,), a fraction of equity."""
        return min(1.0 - 1e-9, float(self.cost(bought[None, :], np.array([self.filled_at(t)]))[0]))

    def affordable_share(self, account: Account, t: int, bought: FloatArray, planned_cash: float) -> float:
        """Share of the purchases in `bought` (N,) that cash and a planned debt pay for after all sales and costs."""
        drifted = self.hold(account, t, None).drifted[0]
        purchases, paid_out = np.maximum(bought, 0.0).sum(), drifted[:-1][self.delisted(t)].sum()
        room = drifted[-1] + paid_out - np.minimum(bought, 0.0).sum() - self.cost_of(bought, t) - min(0.0, planned_cash)
        return 1.0 if purchases <= max(0.0, room) + MIN_HOLDING else max(0.0, room) / purchases

    def _period(self, t: int, frozen: Flags | None) -> HoldingPeriod:
        legs = self.legs
        if frozen is not None and frozen.any():
            condition = legs.condition.copy()
            condition[self.filled_at(t), frozen] &= np.uint8(255 - TRADABLE)
            legs = replace(legs, condition=condition)
        return holding_period(legs, np.array([t]), 1)


def to_vector(symbols: Sequence[str], quantities: Mapping[str, float]) -> FloatArray:
    """Quantities by name as an array (N,), 0 for missing names."""
    return np.array([quantities.get(symbol, 0.0) for symbol in symbols])


def _constant_cost(cost: float) -> CostFunction:
    def constant(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:  # noqa: ARG001 - one signature
        return np.array([cost])

    return constant


def _with_slippage(fees: CostFunction, rate: float) -> CostFunction:
    slippage = proportional_cost(rate)

    def total(trades: FloatArray, filled_at: NDArray[np.int64]) -> FloatArray:
        return fees(trades, filled_at) + slippage(trades, filled_at)

    return total
