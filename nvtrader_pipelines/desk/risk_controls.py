"""Risk controls of an account: its limits and kill switch, and the protections of its bot."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime

from nvtrader_pipelines.desk.halt import Scope, halt
from nvtrader_pipelines.desk.traded_market import TradedMarket
from nvtrader_pipelines.desk.traded_policy import Bot
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.order_placement import RiskControls
from nvtrader_pipelines.execution.protections import ProtectedSwitch, TradingLock, locked_purchases
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.storage.account_book import AccountBook
from nvtrader_pipelines.storage.store import Store

Clock = Callable[[], datetime]


def account_controls(
    store: Store, market: TradedMarket, book: AccountBook, author: tuple[str, Clock], replayed_to: date | None
) -> RiskControls:
    """Risk controls of an account, whose audit events have the author and the clock."""
    (by, clock), bot = author, market.bot
    controls = RiskControls(
        switch=store.switch_of(market.name),
        findings=market.findings,
        purchase_bans=market.purchase_bans,
        clock=clock,
        by=by,
        replayed_to=replayed_to,
        first_plan_turnover=market.account.first_plan_turnover,
        bot=bot.name if bot else "",
    )
    return _protect(store, market, book, controls, bot) if bot and bot.spec.limits else controls


def _protect(store: Store, market: TradedMarket, book: AccountBook, controls: RiskControls, bot: Bot) -> RiskControls:
    """Add the protections of a bot."""
    by, of_account = f"bot {bot.name}", Scope(market.name)

    def stop(reason: str) -> None:
        halt(store, by, reason, controls.clock, of_account)

    locks = _Locks(market, book)
    bans = controls.purchase_bans
    return replace(
        controls,
        switch=ProtectedSwitch(controls.switch, bot.name, locks, stop),
        purchase_bans=lambda session: {**bans(session), **locked_purchases(locks())},
    )


def bot_locks(bot: Bot, states: Sequence[AccountState], panel: MarketPanel) -> Sequence[TradingLock]:
    """Locks of a bot's protections at the last close; closes before its start do not count."""
    since = bot.start.since if bot.start else date.min
    counted = [state for state in states if state.session >= since]
    limits = bot.spec.limits if counted else ()
    return [lock for protection in limits for lock in protection.locks(counted, panel, counted[0].session)]


class _Locks:
    """Locks of a bot's protections at the last close of its account, computed once per close."""

    def __init__(self, market: TradedMarket, book: AccountBook) -> None:
        self._market, self._book = market, book
        self._known: tuple[date | None, Sequence[TradingLock]] = None, ()

    def __call__(self) -> Sequence[TradingLock]:
        bot, last = self._market.bot, self._book.last()
        if bot is None or last is None:
            return ()
        if self._known[0] != last.session:
            self._known = last.session, bot_locks(bot, self._book.states(), self._market.panel)
        return self._known[1]
