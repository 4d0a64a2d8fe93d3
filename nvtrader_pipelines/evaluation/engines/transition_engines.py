"""Engines of weights, by the environment's transition: a compiled pass over given ones, and a walk by a policy."""

from itertools import chain
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import FloatArray
from nvtrader_pipelines.envs.account import Account, opening_account
from nvtrader_pipelines.envs.accounts import Accounts, environment_legs
from nvtrader_pipelines.envs.dynamics import drift, hold, holding_period
from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.engine import (
    Decider,
    Engine,
    as_policy,
    require_long_only,
    require_window,
)
from nvtrader_pipelines.evaluation.engines.engine_account import (
    EngineAccount,
    EngineResult,
    OrderOutcome,
    SessionFigures,
)
from nvtrader_pipelines.evaluation.engines.strategy import Strategy
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.market.panel import MarketPanel, Window, concat_windows
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.portfolio.costs import no_cost


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
        t, held = self.t, self._accounts.weights
        wanted, trading = held if target is None else target[None, :], np.array([target is not None])
        if not self._accounts.equity[0] > 0.0:
            wanted, trading = held, np.array([False])  # an account that lost all is in cash to its end
        step = self._accounts.trade(wanted, trading, n_sessions)
        done, exposures = step.transition, step.transition.exposures
        turnover, cost = exposures.cap_turnover[0].copy(), exposures.cap_cost[0].copy()
        turnover[0] += done.turnover[0]
        cost[0] += done.cost[0]
        for k, weights in enumerate(self._closes(held, wanted, trading, n_sessions)):
            equity = float(step.path[0, k])
            shown = weights if equity > 0.0 else opening_account(len(self.panel.symbols)).weights
            self.record_close(shown, equity, (float(turnover[k]), float(cost[k])))
        self.orders += _trade_outcomes(self.panel, t, t + (self._accounts.fill != "same_close"), done.trades[0])
        return self.figures[-n_sessions:]

    def _closes(
        self, held: FloatArray, target: FloatArray, trading: NDArray[np.bool_], n_sessions: int
    ) -> list[FloatArray]:
        """Weights (N+1,) at each close; costs are pro rata and change none."""
        t = np.array([self.t])
        closes = [hold(held, target, trading, holding_period(self._legs, t, 1), no_cost).weights]
        for later in range(1, n_sessions):
            closes.append(drift(closes[-1], holding_period(self._legs, t + later, 1), no_cost).weights)
        return [weights[0] for weights in closes]


def _trade_outcomes(panel: MarketPanel, t: int, filled_at: int, trades: FloatArray) -> list[OrderOutcome]:
    """Orders of a decision at session `t`, from the changes of weight (N+1,)."""
    on, at = panel.sessions[t].item(), panel.sessions[filled_at].item()
    return [
        OrderOutcome(on, at, symbol, "buy" if change > 0.0 else "sell", None, None, None, change, "filled", "")
        for symbol, change in zip(panel.symbols, trades[:-1].tolist(), strict=True)
        if change
    ]


class Walk(Engine):
    """Account of weights that a policy decides step by step, by the environment's transition."""

    supports_rl_injection: ClassVar[bool] = True

    kind: Literal["walk"] = "walk"

    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> EngineAccount:
        """Open an account in cash with equity 1 at the close of session `t`."""
        return TransitionAccount(panel, environment, t)

    def run(
        self, panel: MarketPanel, environment: EnvSpec, decider: Decider, window: Window | None = None
    ) -> EngineResult:
        """Run a policy or dated weights from the window's first close to its last."""
        if isinstance(decider, Strategy):
            raise ValueError(
                f"walk takes a policy or weights, but {type(decider).__name__} is a strategy, which gives orders; "
                "choose the engine event_driven"
            )
        first, last = require_window(panel, window)
        policy, account = as_policy(decider, panel), self.open(panel, environment, first)
        for t in range(first, last, environment.rebal_freq):
            decision = policy.decide(panel, t, account.account)
            account.trade(decision.target, min(environment.rebal_freq, last - t))
        return account.result()


class Vectorized(Engine):
    """Account of given weights, in one compiled pass that calls no policy."""

    supports_rl_injection: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ("vectorised",)

    kind: Literal["vectorized"] = "vectorized"

    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> EngineAccount:
        """Open an account in cash with equity 1 at the close of session `t`; its steps are those of `walk`."""
        return TransitionAccount(panel, environment, t)

    def run(
        self, panel: MarketPanel, environment: EnvSpec, decider: Decider, window: Window | None = None
    ) -> EngineResult:
        """Run dated weights from the window's first close to its last."""
        require_long_only(environment, self)
        if not isinstance(decider, WeightsTable):
            raise ValueError(
                f"vectorized calls nothing and takes weights, but was given a {type(decider).__name__}; choose the "
                "engine walk for a policy, or event_driven for a policy or strategy"
            )
        first, last = require_window(panel, window)
        policy, cash = as_policy(decider, panel), opening_account(len(panel.symbols))
        panel = concat_windows(panel, [(0, last)])
        decided = ((t, policy.decide(panel, t, cash).target) for t in range(first, last, environment.rebal_freq))
        rows = {t: target for t, target in decided if target is not None}
        execution = Execution(fill=environment.fill, costs=environment.cost_models, financing=environment.financing)
        path = weights_backtest(panel, np.array([*rows.values()]), execution, sessions=panel.sessions[[*rows]])
        columns = path.sessions, path.equity, path.net_returns, path.drawdown, path.turnover, path.cost, path.cash
        filled_later = resolve_fill(environment.fill, panel) != "same_close"
        orders = [
            _trade_outcomes(panel, t, t + filled_later, trades) for t, trades in zip(rows, path.trades, strict=True)
        ]
        figures = [SessionFigures(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        return EngineResult.from_rows(figures, path.weights, [*chain.from_iterable(orders)])
