"""Market of a desk: the active policy on current data, prices, limits, and the account."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np

from nvtrader_pipelines.desk.account_access import connect_account, read_account, require_same_account
from nvtrader_pipelines.desk.account_backtests import open_deployment
from nvtrader_pipelines.desk.traded_policy import Bot, bot_of, read_traded
from nvtrader_pipelines.execution.book import AccountBook, AccountState
from nvtrader_pipelines.execution.brokers.account_spec import AccountSpec
from nvtrader_pipelines.execution.brokers.venue import Venue
from nvtrader_pipelines.execution.compliance import ComplianceData, compliance_findings, purchase_bans, tightest_limits
from nvtrader_pipelines.execution.errors import ExecutionError, NotReconciled
from nvtrader_pipelines.execution.journal import Journal, Proposal
from nvtrader_pipelines.execution.orders import PanelPrices
from nvtrader_pipelines.execution.plan import Finding, RebalancePlan
from nvtrader_pipelines.execution.proposals import target_volatility
from nvtrader_pipelines.execution.reconciliation import open_differences
from nvtrader_pipelines.experiments.deployment import Deployment
from nvtrader_pipelines.experiments.progress import Progress, Stage
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.promotion.active_policy import (
    ActivePolicy,
    read_active_run,
    require_every_activation,
)
from nvtrader_pipelines.promotion.eligibility import market_mismatch_error
from nvtrader_pipelines.promotion.recency import MAX_TEST_AGE, require_evaluation
from nvtrader_pipelines.storage.compliance_files import read_compliance, read_limits
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.panel_prices import read_prices
from nvtrader_pipelines.storage.panels import pinned_snapshots
from nvtrader_pipelines.storage.store import Store


@dataclass(frozen=True, eq=False)
class TradedMarket:
    """Account with its deployed policy, prices and limits; `t` is the position of a panel session."""

    name: str  # account name
    account: AccountSpec
    deployment: Deployment
    tested_to: date
    activated_at: datetime
    prices: PanelPrices
    limits: RiskLimits
    compliance: ComplianceData
    n_ended: int  # sessions ended by the clock; bars of a session in progress are not a close
    bot: Bot | None  # that trades the account

    @property
    def panel(self) -> MarketPanel:
        """Panel of the policy."""
        return self.deployment.panel

    @property
    def is_live(self) -> bool:
        """Whether orders go to a broker."""
        return self.account.is_live

    def day(self, t: int) -> date:
        """Date of session `t`."""
        return self.panel.sessions[t].item()

    def index_of(self, day: date) -> int:
        """Position of a session of the account.

        Raises:
            ExecutionError: if the market lacks the session.
        """
        t = self.panel.index_of(np.datetime64(day))
        if t >= len(self.panel.sessions) or self.day(t) != day:
            raise ExecutionError(
                f"the account {self.name} is at the close of {day}, which the market lacks: it runs from {self.day(0)} "
                f"to {self.day(len(self.panel.sessions) - 1)}; deliver its bars and run the market job"
            )
        return t

    def last_session(self, first: date | None, last: date | None) -> int:
        """Position of the last ended session up to a day.

        Raises:
            ExecutionError: if the day precedes the first one.
        """
        if first is not None and last is not None and last < first:
            raise ExecutionError(f"the last session to trade, {last}, is before the first, {first}; choose a later one")
        end = self.day(self.n_ended - 1)
        end = end if last is None else min(last, end)
        return int(np.searchsorted(self.panel.sessions, np.datetime64(end), side="right")) - 1

    def opening(self, first: date | None, opened: date | None) -> int:
        """Position of the session at whose close an account opens to trade `first` or the next one, or was opened.

        Raises:
            ExecutionError: if the policy may not decide there, the session has not ended, or the account was opened at
                another one.
        """
        earliest = self.deployment.first
        if first is None:
            return self.n_ended - 1 if opened is None else self.index_of(opened)
        t = self.panel.index_of(np.datetime64(first))
        if t >= self.n_ended:
            raise ExecutionError(
                f"sessions can be traded once they have ended and their bars are delivered, but the market ends on "
                f"{self.day(self.n_ended - 1)}, before {first}; deliver the bars, or begin earlier"
            )
        if t - 1 < earliest:
            raise ExecutionError(
                f"{self.deployment.policy} of run {self.deployment.run_id} may trade from {self.day(earliest + 1)} on, "
                f"the first session its policies were not trained on, but was to begin on {first}; begin later"
            )
        if opened is not None and opened != self.day(t - 1):
            raise ExecutionError(
                f"the account {self.name} was opened at {opened} and continues from its last close, so it cannot begin "
                f"on {first}; omit the first session, or use another account"
            )
        return t - 1

    def require_recent(self, proposals: Sequence[Proposal], as_of: date) -> None:
        """Raise if the policy was tested too long ago to trade the account.

        On a simulated account without a bot only its first trade since the activation is checked, else every trade.

        Raises:
            ExecutionError: with the last tested session.
        """
        own = (self.deployment.run_id, self.deployment.policy)
        in_force = [proposal for proposal in proposals if proposal.at >= self.activated_at]
        begun = [state.session for state in in_force if (state.run_id, state.policy) == own]
        since = begun[0] if begun and not (self.is_live or self.bot) else as_of
        gap = self.panel.index_of(np.datetime64(since)) + 1 - self.panel.index_of(np.datetime64(self.tested_to))
        if gap > MAX_TEST_AGE:
            raise ExecutionError(
                f"a policy must have been tested within {MAX_TEST_AGE} sessions of what it trades, but {own[1]} of run "
                f"{own[0]} was tested to {self.tested_to}, {gap} sessions before; train and test it on the current "
                "market, and activate that run"
            )

    def venue(self, book: AccountBook) -> Venue:
        """Open the venue that holds the account.

        Raises:
            StorageError: if the book was opened at another broker or with another capital.
            ExecutionError: if the broker cannot be reached.
        """
        require_same_account(self.name, self.account, book.last())
        market, connect = (self.panel, self.prices), partial(connect_account, self.name)
        return self.account.open_venue(market, self.deployment.spec.environment, book, connect)

    def findings(self, plan: RebalancePlan, t: int) -> tuple[Finding, ...]:
        """Compliance findings on a plan decided at the close of session `t`."""
        return compliance_findings(plan, self.limits, self.compliance, target_volatility(plan, self.panel, t))

    def purchase_bans(self, session: date) -> Mapping[str, str]:
        """Symbols that may not be bought in a session, with reasons."""
        return purchase_bans(self.limits, self.compliance, session)


def require_fresh(market: TradedMarket, now: datetime) -> None:
    """Raise if the bars are stale for orders at a broker.

    Raises:
        ExecutionError: if they do not end on the last ended session, or the exchange has opened since.
    """
    if not market.is_live:
        return
    calendar = market.panel.calendar
    ended = calendar.last_ended(now)
    known = market.day(len(market.panel.sessions) - 1)
    if known < ended:
        raise ExecutionError(
            f"orders at a broker need the bars of the last session, {ended}, but the market ends on {known}; "
            "deliver the bars and run the market job"
        )
    if known > ended:
        raise ExecutionError(
            f"orders at a broker need bars of ended sessions, the last of them {ended}, but the market ends on "
            f"{known}; wait for its close and deliver its bars again, or remove bars of the future"
        )
    opens = calendar.decision_deadline(known)
    if now >= opens:
        raise ExecutionError(
            f"orders from the bars of {known} must be placed before the exchange opens on {opens.date()}, which "
            "it has; deliver the bars of that session after its close, and trade then"
        )


def require_last_close(market: TradedMarket, state: AccountState) -> None:
    """Raise if the fill session of the account's plan has passed.

    Raises:
        ExecutionError: with the last session of the market.
    """
    known = market.day(len(market.panel.sessions) - 1)
    if state.session < known:
        raise ExecutionError(
            f"the account {market.name} is at the close of {state.session} and the market at that of {known}, so the "
            "fill session of its plan has passed; trade the account and decide on its next plan"
        )


def progress_of(market: TradedMarket, stage: Stage, message: str, at: datetime, **figures: Any) -> Progress:
    """Progress step of the account of a market."""
    run_id = market.deployment.run_id
    return Progress(task_id=market.name, run_id=run_id, stage=stage, message=message, timestamp=at, **figures)


def _n_ended(panel: MarketPanel, now: datetime) -> int:
    """Number of ended sessions of a panel."""
    ended = panel.calendar.last_ended(now)
    n_ended = int(np.searchsorted(panel.sessions, np.datetime64(ended), side="right"))
    if n_ended == 0:
        raise ExecutionError(
            f"sessions can be traded once they have ended, but by the clock the last ended one is {ended}, and the "
            f"market begins on {panel.sessions[0]}; set the clock"
        )
    return n_ended


def require_active(store: Store, account: str) -> ActivePolicy:
    """Read the active policy of an account.

    Raises:
        StorageError: if there is none, its bot was not started, or the audit lacks an activation.
    """
    require_every_activation(store)
    bot = bot_of(store, account)
    if bot and bot.problem:
        raise StorageError(f"{bot.problem}; until then nothing trades its account {account}")
    active = read_traded(store, account)
    if active is None:
        raise StorageError("no policy is active, so nothing trades; `nvtrader policies activate` activates one")
    return active


def open_traded_market(store: Store, active: ActivePolicy, name: str, now: datetime) -> TradedMarket:
    """Open the market of an account for the active policy.

    Raises:
        ExecutionError: if no session of the market has ended, or the account is at a broker and the policy may sell
            short or borrow.
        StorageError: if the policy's files changed, it was never tested to the end, it cannot decide on the current
            market, or the account, the limits or the market cannot be read.
    """
    account, run = read_account(store.home, name), read_active_run(store, active)
    require_evaluation(store, active)
    try:
        deployment = open_deployment(store, active.run_id, active.policy)
    except ValueError as error:
        raise market_mismatch_error(run, active.policy, error) from error
    _require_tradable(name, account, deployment)
    bot = bot_of(store, name)
    if bot and (problem := calendar_problem(store, name, active)):
        raise ExecutionError(problem)
    return TradedMarket(
        name=name,
        account=account,
        deployment=deployment,
        tested_to=run.as_parent.window[1],
        activated_at=active.activated_at,
        prices=read_prices(store.tables, deployment.panel),
        limits=_limits(store, deployment),
        compliance=read_compliance(store.home),
        n_ended=_n_ended(deployment.panel, now),
        bot=bot,
    )


def calendar_problem(store: Store, account: str, active: ActivePolicy) -> str:
    """Reason why a policy's market has another calendar than an account; empty if it has the same."""
    calendar, last = store.calendar_of(active.partition_key), store.book(account).last()
    traded = NEW_YORK if read_account(store.home, account).is_live else calendar
    if last is not None and not read_account(store.home, account).is_live:
        traded = store.read_calendars().of(store.ledger.run(last.run_id).source)
    if traded == calendar:
        return ""
    return (
        f"a bot's policy must trade on the calendar of its account, but {active.policy} of run {active.run_id} trades "
        f"on {calendar.name} and the account {account} on {traded.name}; name another account in its file"
    )


def require_ready(store: Store, active: ActivePolicy, account: str, at: datetime) -> None:
    """Raise the errors that trading an account would raise before its first order; no broker is contacted.

    Raises:
        StorageError: if files of the policy, its tests, the account, the limits or the market are missing or damaged,
            or the policy cannot decide on the current market.
        ExecutionError: if its tests, or at a broker its bars, are too old, or its book is incomplete.
        NotReconciled: if the account has differences that no person accepted.
    """
    market, book = open_traded_market(store, active, account, at), store.book(account)
    require_fresh(market, at)
    journal = Journal(store.audit, account)
    journal.require_book_covers_audit(book.index())
    state = book.last()
    as_of = state.session if state else market.day(market.opening(None, None))
    market.require_recent(journal.proposals(), as_of)
    if state is not None and (differences := open_differences(state, journal)):
        raise NotReconciled(account, state.session, differences)


def refresh(store: Store, market: TradedMarket, now: datetime) -> TradedMarket:
    """Return a copy with the account, limits and compliance data read again from their files.

    Raises:
        ExecutionError: if no session has ended, or the account is at a broker and the policy may sell short or borrow.
        StorageError: if a file cannot be read.
    """
    account = read_account(store.home, market.name)
    _require_tradable(market.name, account, market.deployment)
    return replace(
        market,
        account=account,
        bot=bot_of(store, market.name),
        limits=_limits(store, market.deployment),
        compliance=read_compliance(store.home),
        n_ended=_n_ended(market.panel, now),
    )


def _require_tradable(name: str, account: AccountSpec, deployment: Deployment) -> None:
    """Raise if an account at a broker would trade a policy that may sell short or borrow."""
    if account.is_live and deployment.spec.environment.is_levered:
        raise ExecutionError(
            f"an account at a broker is long-only, but {deployment.policy} of run {deployment.run_id}, which {name} "
            f"would trade, may sell short or borrow (action: {deployment.spec.environment.action.kind}); activate a "
            "policy on the simplex, or trade a simulated account"
        )


def cache_key(store: Store, active: ActivePolicy, source: str) -> object:
    """Key that changes when the active policy or its market changes."""
    return active.model_dump_json(), tuple(sorted(pinned_snapshots(store.tables, source).items()))


def _limits(store: Store, deployment: Deployment) -> RiskLimits:
    """Tighter of the policy's and the desk's limits, field by field."""
    return tightest_limits(deployment.spec.pipeline.risk_limits, read_limits(store.home))
