"""Engine of shares and cash, which a strategy trades by orders."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.engines.engine import (
    Decider,
    Engine,
    as_policy,
    require_long_only,
    require_window,
)
from nvtrader_pipelines.evaluation.engines.engine_account import EngineResult
from nvtrader_pipelines.evaluation.engines.ledger import LedgerSettings, ShareAccount
from nvtrader_pipelines.evaluation.engines.strategy import (
    RL_AGENT,
    RebalanceStrategy,
    RLAgentBridge,
    Strategy,
    StrategyContext,
)
from nvtrader_pipelines.market.panel import MarketPanel, Window


class EventDriven(Engine):
    """Account of shares and cash, traded bar by bar by a strategy's orders.

    Both timings decide from bars up to the last close and fill in the next bar. With `next_open`, backtrader's
    cheat-on-open, the value and price that size a target weight are those of the fill.
    """

    supports_rl_injection: ClassVar[bool] = True

    kind: Literal["event_driven"] = "event_driven"
    timing: Literal["next", "next_open"] = "next"  # target weights are sized at the decision's close, or at the open
    whole_shares: bool = False
    capital: PositiveFloat = 1_000_000.0  # account currency
    first_closes: dict[str, PositiveFloat] = Field(default={})  # of the panel's first session, else near 100

    def open(self, panel: MarketPanel, environment: EnvSpec, t: int = 0) -> ShareAccount:
        """Open an account in cash with equity 1 at the close of session `t`.

        Raises:
            ValueError: if the environment is levered, or fills at the close of the decision.
        """
        require_long_only(environment, self)
        if environment.fill == "same_close":
            raise ValueError(
                "event_driven fills orders in the bar after their decision, but environment.fill is same_close; set it "
                "to next_open or next_close"
            )
        settings = LedgerSettings(self.timing, self.whole_shares, self.capital, self.first_closes)
        return ShareAccount(panel, environment, t, settings)

    def run(
        self,
        panel: MarketPanel,
        environment: EnvSpec,
        decider: Decider,
        window: Window | None = None,
        injected: Mapping[str, Any] | None = None,
    ) -> EngineResult:
        """Run a strategy, or a policy or weights as a rebalance; `injected` holds the strategy's objects by name."""
        first, last = require_window(panel, window)
        account = self.open(panel, environment, first)
        strategy, injected = decider, injected or {}
        if not isinstance(strategy, Strategy):
            injected = {RL_AGENT: RLAgentBridge(as_policy(strategy, panel), panel)}
            strategy = RebalanceStrategy(rebal_freq=environment.rebal_freq)
        give_orders, context = strategy.start(panel.symbols), StrategyContext(account, injected)
        for _ in range(first, last):
            give_orders(context)
            account.advance()
        return account.result()
