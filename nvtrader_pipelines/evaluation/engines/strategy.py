"""Strategies of a user: what they see at a close, and the orders they give."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.evaluation.engines.bars import Bar, Bars

if TYPE_CHECKING:
    from nvtrader_pipelines.evaluation.engines.ledger import ShareAccount

FloatArray = NDArray[np.float64]


class StrategyContext(Mapping[str, Any]):
    """View of a strategy at a close: bars so far, the account, orders, and objects injected by name.

    All arrays are copies of closed bars: later bars cannot be reached from them.
    """

    def __init__(self, account: "ShareAccount", injected: Mapping[str, Any]) -> None:
        self._account, self._injected = account, dict(injected)

    @property
    def bar(self) -> Bar:
        """Last closed bar, and the account at its close."""
        return self._account.last_bar()

    def history(self, n: int) -> Bars:
        """Return copies of the last `n` closed bars; fewer where the market begins later."""
        return self._account.history(n)

    @property
    def cash(self) -> float:
        """Cash, account currency."""
        return self._account.cash

    @property
    def positions(self) -> dict[str, float]:
        """Shares held by name; 0 for names that are not held."""
        return dict(zip(self._account.panel.symbols, self._account.shares.tolist(), strict=True))

    @property
    def equity(self) -> float:
        """Value of cash and shares at the last close, account currency."""
        return self._account.value

    @property
    def weights(self) -> FloatArray:
        """Weights (N+1,) at the last close, cash last."""
        return self.bar.account.weights

    def order(self, symbol: str, shares: float, limit: float | None = None) -> None:
        """Order shares, negative to sell, for the next bar; at the market without a limit."""
        self._account.order(symbol, shares, limit)

    def order_target_percent(self, symbol: str, weight: float, limit: float | None = None) -> None:
        """Order what brings a name to a weight, a fraction of equity; a later target of the bar replaces an earlier."""
        self._account.order_target_percent(symbol, weight, limit)

    def __getitem__(self, name: str) -> Any:
        """Return an injected object."""
        return self._injected[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of injected objects."""
        return iter(self._injected)

    def __len__(self) -> int:
        """Number of injected objects."""
        return len(self._injected)


StrategyFunction = Callable[[StrategyContext], None]


class Strategy(Component):
    """Rule that gives orders at each close; an installed package may add its own."""

    @abstractmethod
    def start(self, symbols: tuple[str, ...]) -> StrategyFunction:
        """Begin a back-test over these names; the function is called at each close."""
