"""Bots: started by a person, and the state of each."""

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.components.text import short_id
from nvtrader_pipelines.desk.bot_files import ACTIVE, BotSpec, read_bot, read_bots
from nvtrader_pipelines.desk.halt import resume
from nvtrader_pipelines.desk.rebalancing import market_end, replay_reason
from nvtrader_pipelines.desk.risk_controls import bot_locks
from nvtrader_pipelines.desk.traded_market import calendar_problem, open_traded_market
from nvtrader_pipelines.desk.traded_policy import Bot, BotState, account_of_bot, bot_of, read_traded
from nvtrader_pipelines.execution.audit import AuditEvent, event_id
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.protections import ProtectedSwitch
from nvtrader_pipelines.market.calendar import NEW_YORK, TradingCalendar
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active, read_active_run
from nvtrader_pipelines.promotion.policy_cards import find_policy
from nvtrader_pipelines.promotion.promote import mirror_active, new_activation
from nvtrader_pipelines.promotion.recency import require_evaluation, start_deadline
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.store import Store

Clock = Callable[[], datetime]


class BotStatus(Document):
    """State of a bot."""

    bot: str
    account: str
    policy: str  # as its file names it
    schedule: str  # after_close, or a cron expression in the time zone of its market
    state: BotState
    reason: str  # of a state other than active
    trades: str  # policy and run that it trades; empty without one
    session: date | None  # last close of the account; null before its first
    equity: float | None  # as a multiple of the opening
    drawdown: float | None
    locks: tuple[str, ...]  # protections in force
    problem: str  # why it cannot trade; empty if it can


def start_bot(store: Store, name: str, by: str, reason: str, clock: Clock) -> BotStatus:
    """Start a bot: activate the policy that it names for its account, and let the account trade.

    Its protections count from the last close of the account. Nothing is written unless it may trade.

    Raises:
        NotFoundError: if there is no such bot or policy.
        StorageError: if its file is not valid, or its policy or market cannot be read.
        ExecutionError: if its policy was tested too long ago, or trades on another calendar than its account.
    """
    spec, at = read_bot(store.home, name), clock()
    candidate = _candidate(store, name, spec, (by, reason), at)
    market, last = open_traded_market(store, candidate, spec.account, at), store.book(spec.account).last()
    as_of = last.session if last else market.day(market.n_ended - 1)
    market.require_recent(Journal(store.audit, spec.account).proposals(), as_of)
    activation = [candidate.event] if candidate.bot else []
    since = (last.session if last else date.min).isoformat()
    detail = {"bot": name, "policy": spec.policy, "activation": "".join(event.event_id for event in activation)}
    started = AuditEvent(
        event_id=event_id("started", spec.account, name, at.isoformat(), since),
        kind="started",
        at=at,
        by=by,
        account=spec.account,
        reason=reason,
        detail={**detail, "since": since},
    )
    store.audit.append([*activation, started])
    resume(store, by, reason, clock, spec.account)
    mirror_active(store)
    return bot_status(store, name, spec)


def _candidate(store: Store, name: str, spec: BotSpec, author: tuple[str, str], at: datetime) -> ActivePolicy:
    """Active policy of a bot's account, or the activation of the policy that its file names."""
    if spec.policy != ACTIVE:
        activation = new_activation(store, find_policy(store, spec.policy), *author, at, spec.account)
        return activation.model_copy(update={"bot": name})
    active = read_active(store, spec.account)
    if active is None:
        raise StorageError("no policy is active, so a bot of the active policy cannot start; activate one first")
    return active


def list_bots(store: Store) -> list[BotStatus]:
    """State of every bot, sorted by name; one whose file cannot be used has its problem only."""
    bots = read_bots(store.home)
    refused = {path.stem: problem for path, problem in bots.problems.items()}
    return [
        _refused(store, name, refused[name]) if name in refused else bot_status(store, name, bots.specs[name])
        for name in sorted({*bots.specs, *refused})
    ]


def bot_status(store: Store, name: str, spec: BotSpec | None = None) -> BotStatus:
    """State of a bot, whose file is read unless its content is given; no broker is contacted.

    Raises:
        NotFoundError: if there is no such bot.
        StorageError: if its file is not valid.
    """
    spec = spec or read_bot(store.home, name)
    bot, trading = bot_of(store, spec.account) or Bot(name, spec, None), store.switch_of(spec.account).state()
    problem, locks, trades, last = bot.problem, (), "", None
    try:
        active, states = read_traded(store, spec.account), store.book(spec.account).states()
        last = states[-1] if states else None
        if active is not None:
            trades = f"{active.policy} of run {short_id(active.run_id)}"
            problem = problem or _problem(store, spec.account, active)
        if active is not None and spec.limits:
            panel = store.panels.read(store.ledger.read(active.partition_key).market)
            in_force = bot_locks(bot, states, panel)
            locks = tuple(f"{lock.symbol or 'account'}: {lock.reason}" for lock in in_force)
            trading = ProtectedSwitch(store.switch_of(spec.account), name, lambda: in_force, lambda _: None).state()
    except (StorageError, ValueError) as error:
        problem = problem or str(error)
    return BotStatus(
        bot=name,
        account=spec.account,
        policy=spec.policy,
        schedule=spec.schedule,
        state="stopped" if bot.problem else trading.state,
        reason=bot.problem or trading.reason,
        trades=trades,
        session=last.session if last else None,
        equity=last.equity if last else None,
        drawdown=last.drawdown if last else None,
        locks=locks,
        problem=problem,
    )


def bot_calendar(store: Store, spec: BotSpec) -> TradingCalendar:
    """Calendar of a bot's market; New York's while no policy is known.

    Raises:
        StorageError: if the policy or `data/market.yaml` cannot be read.
    """
    active = read_active(store, spec.account) if spec.policy == ACTIVE else None
    if active is not None:
        return store.calendar_of(active.partition_key)
    try:
        ref = None if spec.policy == ACTIVE else find_policy(store, spec.policy)
    except NotFoundError:  # not trained yet
        ref = None
    return store.read_calendars().of(store.ledger.run(ref.run_id).source) if ref else NEW_YORK


def _problem(store: Store, account: str, active: ActivePolicy) -> str:
    """Reason why an account's bot cannot trade its policy, without opening its networks; empty if it can."""
    require_evaluation(store, active)
    tested_to = read_active_run(store, active).as_parent.window[1]
    last, (_, ends) = store.book(account).last(), market_end(store, active)
    until, as_of = start_deadline(tested_to, store.calendar_of(active.partition_key)), last.session if last else ends
    if as_of is not None and as_of >= until:
        return (
            f"its policy was tested to {tested_to} and may trade until {until}; run its experiment, and start it again"
        )
    return calendar_problem(store, account, active) or replay_reason(store, account) or ""


def _refused(store: Store, name: str, problem: str) -> BotStatus:
    """State of a bot whose file cannot be used."""
    unknown = dict.fromkeys(("account", "policy", "schedule", "trades"), "")
    with suppress(StorageError):
        unknown["account"] = account_of_bot(store, name)
    figures = dict.fromkeys(("session", "equity", "drawdown"))
    return BotStatus.model_validate(
        {"bot": name, "state": "stopped", "reason": problem, "problem": problem, "locks": (), **unknown, **figures}
    )
