"""Protections of a bot: locks of its trading, or of purchases of a name, after losses."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from nvtrader_pipelines.components.component import Component
from nvtrader_pipelines.components.family import Family
from nvtrader_pipelines.execution.audit import State, TradingState
from nvtrader_pipelines.execution.book import MIN_HOLDING, AccountState
from nvtrader_pipelines.execution.order_placement import KillSwitch
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.cash import ROUNDING

Loss = Annotated[float, Field(gt=0.0, lt=1.0)]
Sessions = Annotated[int, Field(ge=1, le=252)]


@dataclass(frozen=True)
class TradingLock:
    """Lock that a protection sets at a close; in force from the next session on."""

    state: State  # of the bot; active if the lock is of purchases of one name only
    symbol: str | None  # name whose purchases are locked; None: the whole account
    loss: float  # positive fraction
    session: date  # at whose close the loss reached its bound
    until: date | None  # last session of the lock; None: until a person starts the bot
    reason: str  # figure, bound and end, a sentence


class DrawdownProtection(Component):
    """Stop of the bot at a drawdown from the highest close since its start, until a person starts it again.

    Source: freqtrade's MaxDrawdown with `calculation_mode: equity`, without an end of the lock.
    """

    kind: Literal["max_drawdown"] = "max_drawdown"
    fraction: Loss = 0.2  # of equity, below its highest close since the start of the bot

    def locks(self, states: Sequence[AccountState], panel: MarketPanel, since: date) -> tuple[TradingLock, ...]:  # noqa: ARG002 - one signature for the family
        """Lock of the first close at which the drawdown reached its bound, however equity moved after it."""
        peak = 0.0
        for state in (state for state in states if state.session >= since):
            peak = max(peak, state.equity)
            loss = _loss(peak, state.equity)
            if loss >= self.fraction - ROUNDING:
                reason = (
                    f"equity on {state.session} was {loss:.2%} below its highest close since {since}, and max_drawdown "
                    f"stops the bot at {self.fraction:.2%}; it is halted until a person starts it"
                )
                return (TradingLock("halted", None, loss, state.session, None, reason),)
        return ()


class CooldownProtection(Component):
    """Pause of all growth of positions after a loss of the account over some sessions.

    Every close at which the loss reaches its bound begins the pause anew.

    Source: freqtrade's protections, with equity for closed trades: look-back, bound and end of the lock.
    """

    kind: Literal["loss_cooldown"] = "loss_cooldown"
    loss: Loss = 0.05  # of equity over `sessions`, at which the pause begins
    sessions: Sessions = 5  # look-back
    pause: Sessions = 5  # sessions after the close at which no position grows

    def locks(self, states: Sequence[AccountState], panel: MarketPanel, since: date) -> tuple[TradingLock, ...]:  # noqa: ARG002
        """Lock of the last close at which the loss reached its bound, while the pause lasts."""
        for window, until in _windows(states, self.sessions + 1, self.pause, panel.calendar):
            loss, session = _loss(window[0].equity, window[-1].equity), window[-1].session
            if loss >= self.loss - ROUNDING:
                reason = (
                    f"equity fell by {loss:.2%} over the {self.sessions} sessions up to {session}, and loss_cooldown "
                    f"begins at {self.loss:.2%}; no position grows up to and including {until}"
                )
                return (TradingLock("reducing", None, loss, session, until, reason),)
        return ()


class NameProtection(Component):
    """Pause of purchases of a name that lost while it was held.

    Source: freqtrade's LowProfitPairs, with the price of a holding for closed trades.
    """

    kind: Literal["name_pause"] = "name_pause"
    loss: Loss = 0.1  # of the price, from the first to the last of the closes
    sessions: Annotated[int, Field(ge=2, le=252)] = 5  # closes in a row at which the name is held
    pause: Sessions = 10  # sessions after the last of them in which it is not bought

    def locks(self, states: Sequence[AccountState], panel: MarketPanel, since: date) -> tuple[TradingLock, ...]:  # noqa: ARG002
        """Lock per name, of the last close at which its loss reached the bound, while the pause lasts."""
        locks: dict[str, TradingLock] = {}
        for window, until in _windows(states, self.sessions, self.pause, panel.calendar):
            session, weights = window[-1].session, [dict(zip(one.symbols, one.weights, strict=True)) for one in window]
            for symbol, loss in _price_losses(panel, window[0].session, session).items():
                is_held = all(held.get(symbol, 0.0) > MIN_HOLDING for held in weights)  # long
                if is_held and symbol not in locks and loss >= self.loss - ROUNDING:
                    reason = (
                        f"its price fell by {loss:.2%} over {self.sessions} closes up to {session} at which it was "
                        f"held, and name_pause begins at {self.loss:.2%}; it is not bought up to and including {until}"
                    )
                    locks[symbol] = TradingLock("active", symbol, loss, session, until, reason)
        return tuple(locks.values())


# `locks` takes the states of an account (oldest first, up to the decision), the panel of its market, of which no row
# after the last state is read, and the day since which the bot runs, which only max_drawdown reads.
Protection = Annotated[
    DrawdownProtection | CooldownProtection | NameProtection, Field(discriminator="kind"), Family("protections")
]


class ProtectedSwitch:
    """Kill switch of a bot's account, with the locks of its protections."""

    def __init__(
        self, switch: KillSwitch, bot: str, locks: Callable[[], Sequence[TradingLock]], halt: Callable[[str], None]
    ) -> None:
        """Add locks to a switch; `halt` engages it for a reason, and it stays engaged until a person starts the bot."""
        self._switch, self._bot, self._locks, self._halt = switch, bot, locks, halt

    def state(self) -> TradingState:
        """Return the stricter state of the switch and of the locks."""
        state, reasons = self._switch.state(), {lock.state: lock.reason for lock in self._locks()}
        if state.state != "halted" and "halted" in reasons:
            self._halt(reasons["halted"])
            return self._switch.state()
        if state.state == "active" and "reducing" in reasons:
            return TradingState(state="reducing", by=f"bot {self._bot}", reason=reasons["reducing"])
        return state


def locked_purchases(locks: Iterable[TradingLock]) -> dict[str, str]:
    """Names that may not be bought, with the reason."""
    return {lock.symbol: lock.reason for lock in locks if lock.symbol is not None}


def _windows(
    states: Sequence[AccountState], n_states: int, pause: int, calendar: TradingCalendar
) -> Iterator[tuple[Sequence[AccountState], date]]:
    """Yield the last states up to each close whose pause has not ended, and the last session of the pause."""
    days = calendar.all_sessions()
    for end in range(len(states), n_states - 1, -1):
        following = np.searchsorted(days, np.datetime64(states[end - 1].session, "D"), side="right")
        until = days[following + pause - 1].item()
        if until <= states[-1].session:
            return
        yield states[end - n_states : end], until


def _loss(before: float, after: float) -> float:
    """Loss as a positive fraction; 0 of an account that lost everything before."""
    return 1.0 - after / before if before else 0.0


def _price_losses(panel: MarketPanel, first: date, last: date) -> dict[str, float]:
    """Losses of all names from the close of one session to that of another, fractions; negative for gains."""
    days = np.array([first, last], dtype="datetime64[D]")
    begin, end = np.searchsorted(panel.sessions, days, side="right")
    growth = (1.0 + panel.close_returns[begin:end]).prod(axis=0)
    return dict(zip(panel.symbols, (1.0 - growth).tolist(), strict=True))
