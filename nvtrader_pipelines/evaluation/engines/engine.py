"""Engines of back-tests: given weights in one pass, a walk by a policy, and orders of a strategy."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.envs.account import opening_account
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.engine_account import (
    CURVE,
    ORDERS,
    EngineAccount,
    EngineResult,
    TransitionAccount,
)
from nvtrader_pipelines.evaluation.engines.ledger import LedgerSettings, ShareAccount
from nvtrader_pipelines.evaluation.engines.strategy import (
    RL_AGENT,
    RebalanceStrategy,
    RLAgentBridge,
    Strategy,
    StrategyContext,
)
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.market.panel import MarketPanel, Window, concat_windows
from nvtrader_pipelines.policies.policy import Policy
from nvtrader_pipelines.policies.weights_table import WeightsPolicy, WeightsTable

Decider = Policy | Strategy | WeightsTable


class Engine(Component):
    """Back-test of one account on a panel, under an environment's costs and fills; by default, of weights."""

    supports_rl_injection: ClassVar[bool] = True  # whether an agent can decide during the run

    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> EngineAccount:
        """Open an account in cash with equity 1 at the close of session `t`, to be stepped by the caller."""
        return TransitionAccount(panel, environment, t)

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
        policy, (first, last) = _as_policy(self, decider, panel), _require_window(panel, window)
        account = self.open(panel, environment, first)
        for t in range(first, last, environment.rebal_freq):
            account.trade(policy.decide(panel, t, account.account).target, min(environment.rebal_freq, last - t))
        return account.result()


class Walk(Engine):
    """Account of weights that a policy decides step by step, by the environment's transition."""

    kind: Literal["walk"] = "walk"


class Vectorized(Engine):
    """Account of given weights, in one compiled pass that calls no policy; its steps are those of `walk`."""

    supports_rl_injection: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ("vectorised",)

    kind: Literal["vectorized"] = "vectorized"

    def run(
        self, panel: MarketPanel, environment: EnvSpec, decider: Decider, window: Window | None = None
    ) -> EngineResult:
        """Run dated weights from the window's first close to its last."""
        _require_long_only(self, environment)
        policy, (first, last) = _as_policy(self, decider, panel), _require_window(panel, window)
        cash, panel = opening_account(len(panel.symbols)), concat_windows(panel, [(0, last)])
        decided = ((t, policy.decide(panel, t, cash).target) for t in range(first, last, environment.rebal_freq))
        rows = {t: target for t, target in decided if target is not None}
        execution = Execution(fill=environment.fill, costs=environment.cost_models, financing=environment.financing)
        path = weights_backtest(panel, np.array([*rows.values()]), execution, sessions=panel.sessions[[*rows]])
        columns = path.sessions, path.equity, path.net_returns, path.drawdown, path.turnover, path.cost, path.cash
        orders = []
        for t, trades in zip(rows, path.trades, strict=True):
            orders += TransitionAccount.order_outcomes(panel, t, environment.fill != "same_close", trades)
        curve = pl.DataFrame(dict(zip(CURVE, columns, strict=True)), schema=CURVE)
        return EngineResult(curve, path.weights, pl.DataFrame(orders, schema=ORDERS, orient="row"))


class EventDriven(LedgerSettings, Engine):
    """Account of shares and cash, traded bar by bar by a strategy's orders.

    Both timings decide from bars up to the last close and fill in the next bar. With `next_open`, backtrader's
    cheat-on-open, the value and price that size a target weight are those of the fill.
    """

    kind: Literal["event_driven"] = "event_driven"

    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> ShareAccount:
        """Open an account in cash with equity 1 at the close of session `t`.

        Raises:
            ValueError: if the environment is levered, or fills at the close of the decision.
        """
        _require_long_only(self, environment)
        if environment.fill == "same_close":
            raise ValueError(
                "event_driven fills orders in the bar after their decision, but environment.fill is same_close; set it "
                "to next_open or next_close"
            )
        return ShareAccount(panel, environment, t, self)

    def run(
        self,
        panel: MarketPanel,
        environment: EnvSpec,
        decider: Decider,
        window: Window | None = None,
        injected: Mapping[str, Any] | None = None,
    ) -> EngineResult:
        """Run a strategy, or a policy or weights as a rebalance; `injected` holds the strategy's objects by name."""
        first, last = _require_window(panel, window)
        account = self.open(panel, environment, first)
        if not isinstance(decider, Strategy):
            injected = {RL_AGENT: RLAgentBridge(_as_policy(self, decider, panel), panel)}
            decider = RebalanceStrategy(rebal_freq=environment.rebal_freq)
        give_orders, context = decider.start(panel.symbols), StrategyContext(account, injected or {})
        for _ in range(first, last):
            give_orders(context)
            account.advance()
        return account.result()


def _require_window(panel: MarketPanel, window: Window | None) -> Window:
    """Window of at least two sessions in the panel; the whole panel for None."""
    first, last = window or (0, len(panel.sessions) - 1)
    if not 0 <= first < last < len(panel.sessions):
        raise ValueError(
            f"a back-test needs a window of at least two sessions within 0..{len(panel.sessions) - 1}, but it is "
            f"{first}..{last}; choose sessions of the panel"
        )
    return first, last


def _require_long_only(engine: Engine, environment: EnvSpec) -> None:
    """Raise if the environment may borrow or sell short."""
    if environment.is_levered:
        raise ValueError(
            f"{kind_of(type(engine))} holds neither debt nor short positions, but the action "
            f"{environment.action.kind} may; choose the engine walk, or a long-only action"
        )


def _as_policy(engine: Engine, decider: Decider, panel: MarketPanel) -> Policy:
    """Policy that an engine calls: of dated weights, the one that trades to each row on its day."""
    if isinstance(decider, WeightsTable):
        return WeightsPolicy(*decider.decisions(panel))
    if isinstance(decider, Strategy) or not engine.supports_rl_injection:
        raise ValueError(
            f"{kind_of(type(engine))} takes {'policies or ' if engine.supports_rl_injection else ''}weights, but was "
            f"given a {type(decider).__name__}; choose walk for a policy, or event_driven for a policy or strategy"
        )
    return decider
