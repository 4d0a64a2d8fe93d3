"""Rebalancing of accounts: reasons to skip a session, and reference equity curves."""

from contextlib import suppress
from datetime import date

import polars as pl

from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.desk.account_access import DEFAULT_ACCOUNT, read_account
from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment
from nvtrader_pipelines.desk.bot_files import read_bots
from nvtrader_pipelines.desk.traded_market import require_ready
from nvtrader_pipelines.desk.traded_policy import bot_of, read_traded
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, MARKET_PANEL

_MIN_CURVE_SESSIONS = 2


def skip_reason(
    store: Store, account: str, session: date, calendar: TradingCalendar, bot: str | None = None
) -> str | None:
    """Reason to skip the rebalance of an account, by a bot or by none, after a session; None where it is due.

    Where the active policy trades on another calendar, that one's schedule rebalances. An account at a broker is never
    skipped for another reason: a failed run is visible, unattended holdings are not. A simulated account catches up
    session by session once its bars are delivered.

    Raises:
        StorageError: if the active policy or the account's book cannot be read.
    """
    trading = bot_of(store, account)
    if (trading.name if trading else None) != bot:
        return f"the bot {trading.name} trades the account {account}" if trading else f"the bot {bot} has no file now"
    if trading and trading.problem:
        return trading.problem
    active = read_traded(store, account)
    traded = store.calendar_of(active.partition_key) if active else calendar
    if traded != calendar and bot:
        return f"the policy of the bot {bot} trades on {traded.name} since; restart `nvtrader ui`"
    if traded != calendar:
        return f"the active policy trades on {traded.name}, after whose sessions another schedule rebalances"
    if read_account(store.home, account).is_live:
        return None
    if active is None:
        return (
            f"the account {account} needs an active policy to be rebalanced, but none was ever activated; run "
            "`nvtrader policies activate` or the job `promotion`"
        )
    return stale_reason(store, active, account, session) or replay_reason(store, account)


def stale_reason(store: Store, active: ActivePolicy, account: str, session: date) -> str | None:
    """Reason why an account lacks bars of the session before `session`; None if it has them."""
    source, ends = market_end(store, active)
    before = store.calendar_of(active.partition_key).previous_session(session)
    if ends is not None and ends >= before:  # bars of the session itself may be delivered while the run waits
        return None
    return (
        f"the account {account} needs the bars of {before}, the session before {session}, but its market {source} "
        f"ends on {ends}; deliver the bars and run the job `market`; the next rebalance catches up"
    )


def replay_reason(store: Store, account: str) -> str | None:
    """Reason why only a person may continue an account: a replay traded it last; else None."""
    state = store.book(account).last()
    if state is None or not state.in_replay:
        return None
    return (
        f"a replay traded the account {account} to {state.session}, so schedules and sensors do not continue it "
        "until `nvtrader trade` without days has traded it to the last session"
    )


def server_message(store: Store) -> str:
    """Describe what the server of `nvtrader ui` trades by itself, and how to stop it."""
    bots = [*read_bots(store.home).specs]
    return (
        f"{_default_message(store)}; bots trade by themselves: {', '.join(bots)}" if bots else _default_message(store)
    )


def _default_message(store: Store) -> str:
    """Describe the trading of the account `paper`."""
    try:
        if bot := bot_of(store, DEFAULT_ACCOUNT):
            return bot.problem or f"the bot {bot.name} trades the account {DEFAULT_ACCOUNT}"
        active = read_traded(store, DEFAULT_ACCOUNT)
        if active is None:
            return "no policy is active, so nothing trades"
        if halted := store.switch_of(DEFAULT_ACCOUNT).halt_reason():
            return f"nothing trades while trading is stopped: {halted}"
        if reason := replay_reason(store, DEFAULT_ACCOUNT):
            return reason
        if (state := store.book(DEFAULT_ACCOUNT).last()) and state.ruin:
            return state.ruin
        require_ready(store, active, DEFAULT_ACCOUNT, now())
        calendar = store.calendar_of(active.partition_key)
        following = calendar.next_session(calendar.last_ended(now()))
    except (StorageError, ValueError) as error:
        return f"`nvtrader ui` cannot trade the account {DEFAULT_ACCOUNT} now: {error}"
    return (
        f"`nvtrader ui` trades {active.policy} of run {short_id(active.run_id)} on the account {DEFAULT_ACCOUNT} by "
        f"itself, next after the close of {following}, and no other account without a bot; `nvtrader halt` stops all "
        "trading; to stop only this, turn off policy_activated and eod_rebalance under Automation"
    )


def market_end(store: Store, active: ActivePolicy) -> tuple[str, date | None]:
    """Source and last session of the active policy's market; None without a panel."""
    source = store.ledger.read(active.partition_key).market.source
    ends = store.tables.read(MARKET_PANEL, columns=["source", "last_session"]).filter(pl.col("source") == source)
    return source, max(ends["last_session"].to_list(), default=None)


def reference_curves(store: Store, states: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Equity curves to compare an account with: its backtest, and 1/N from the tests of its policy.

    An account traded by several policies has none; without a market that fits its policy it has no backtest.
    """
    traded = states.select("run_id", "policy", "spec_hash").unique()
    if len(states) < _MIN_CURVE_SESSIONS or len(traded) != 1:
        return {}
    run_id, policy, spec_hash = traded.row(0)
    first, last = states["session"][0], states["session"][-1]
    where = {"spec_hash": [spec_hash], "run_id": [run_id]}
    curves = store.tables.read(EQUITY_CURVES, where, ["policy", "session", "equity"])
    references = {"equal weight": curves.filter(pl.col("policy") == "equal_weight")}
    with suppress(ValueError):  # the policy of the account may not fit the current market
        references = {"back-test": account_backtest(open_deployment(store, run_id, policy), first, last), **references}
    return references
