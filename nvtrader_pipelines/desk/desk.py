"""The desk: an account with the active policy and its market, operated by a person or a schedule."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta

import polars as pl

from nvtrader_pipelines.desk.account_access import lock_account, read_account, require_same_account
from nvtrader_pipelines.desk.mirror import mirror
from nvtrader_pipelines.desk.open_orders import CancelRequest, cancel_account_orders
from nvtrader_pipelines.desk.plan_inputs import require_unchanged_inputs
from nvtrader_pipelines.desk.portfolio_rows import plan_rows
from nvtrader_pipelines.desk.risk_controls import account_controls
from nvtrader_pipelines.desk.traded_market import (
    TradedMarket,
    cache_key,
    open_traded_market,
    progress_of,
    refresh,
    require_active,
    require_fresh,
    require_last_close,
)
from nvtrader_pipelines.evaluation.formats import pluralize
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.decisions import record_decision, replacement_events, require_no_orders, reset_event
from nvtrader_pipelines.execution.edited_plans import make_edited_plan
from nvtrader_pipelines.execution.errors import ExecutionError, TradingHalted
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.order_placement import OTHER_NAMES
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.plan_decision import Approve, DecisionEvent, Override, PlanDecision
from nvtrader_pipelines.execution.reconciliation import acceptance_event, open_differences
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.account_book import AccountBook
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import REBALANCE_PLAN

Clock = Callable[[], datetime]


class Desk:
    """Account with its active policy; one process at a time trades it."""

    def __init__(self, store: Store, account: str = "paper", clock: Clock = now, by: str = "nvtrader") -> None:
        """Open the desk of an account; data is read on first use."""
        self.store, self.account, self._clock, self._by = store, account, clock, by
        self._market: tuple[object, TradedMarket] | None = None
        self._switch = store.switch_of(account)

    def due(self) -> list[date]:
        """Sessions the account still has to trade, oldest first; for an unopened account, its first session.

        Raises:
            StorageError: if there is no active policy that may trade it.
        """
        with self._locked_session() as (trader, market, book):
            return [market.day(t) for t in _due_sessions(trader, market, book.last())]

    def trade(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        acknowledge: bool = False,
        until_waiting: bool = False,
    ) -> Generator[Progress, None, None]:
        """Trade every due session up to `last` and yield a progress step for each.

        A session whose holdings differ from the expected ones is the last: it is reported before a decision at its
        close, and trading continues once the difference is corrected or a person accepts it.

        Args:
            first: first session to trade of an unopened account, which opens in cash at the close before; an account
                opened there continues. None opens it at the last known session.
            last: last session to trade; None for the last known one. With `first` or `last` the trading is a replay of
                history, which schedules and sensors do not continue; without, they do once it reaches the last session.
            acknowledge: whether the replay acknowledges soft findings, with an `approved` event each.
            until_waiting: whether to stop after a session whose plan waits for a person.

        Raises:
            ExecutionError: if the session cannot be traded, such as a replay at a broker; nothing was written.
            TradingHalted: if trading is stopped before a session that is not the market's last one.
            NotReconciled: if the account differs, at the session just reported or before.
            StorageError: if there is no active policy, no recent evaluation, or another process has the account.
        """
        if first is not None:
            self.require_simulated("begins in the past")
        if acknowledge:
            self.require_simulated("has its soft findings acknowledged by the replay")
        self._cancel_if_halted()
        with self._locked_session(is_replay=(first, last) != (None, None)) as (trader, market, book):
            trader.require_reconciled()
            end = market.last_session(first, last)
            self._open(trader, market, book, first)
            due = [t for t in _due_sessions(trader, market, book.last(), acknowledge=acknowledge) if t <= end]
            done = 0
            for done, t in enumerate(due, start=1):
                self._require_tradable(market, book, t)
                state = _run_session(trader, t, acknowledge=acknowledge)
                figures = {"equity": state.equity, "drawdown": state.drawdown, "turnover": state.turnover}
                message, share = f"{state.session}: equity {state.equity:.4f}", done / len(due)
                yield progress_of(market, "equity.update", message, self._clock(), share=share, metrics=figures)
                trader.require_reconciled()
                if until_waiting and trader.is_waiting(t):
                    break
            yield progress_of(
                market, "done", f"{pluralize(done, 'close')} of the account {self.account}", self._clock()
            )

    def require_simulated(self, purpose: str) -> None:
        """Raise if the account is at a broker; `purpose` follows "an account that" in the message."""
        if (kind := read_account(self.store.home, self.account).kind) != "simulated":
            raise ExecutionError(
                f"an account that {purpose} must be simulated, but {self.account} is at a broker (kind: {kind}); trade "
                "it session by session, and decide on its plans yourself"
            )

    def execute(self) -> list[AuditEvent]:
        """Place and fill the orders of the last due session, after trading earlier due sessions in full.

        Raises:
            NotReconciled: if the account differs after or before one of those; then nothing is placed.
        """
        self._cancel_if_halted()
        with self._locked_session() as (trader, market, book):
            self._open(trader, market, book)
            *before, t = _due_sessions(trader, market, book.last()) or [market.index_of(_require_open(book).session)]
            for earlier in before:
                self._require_tradable(market, book, earlier)
                _run_session(trader, earlier, acknowledge=False)
            trader.require_reconciled()
            return trader.execute(t)

    def settle(self) -> AccountState:
        """Mark the account to the close of the session and write its state to the book."""
        with self._locked_session() as (trader, market, book):
            t = _current_session(trader, market, _require_open(book))
            self._require_tradable(market, book, t)
            trader.execute(t)  # records events that a killed step missed, before the state is written
            return trader.settle(t)

    def propose(self) -> RebalancePlan | None:
        """Decide the plan at the close of the session; None where none is due."""
        with self._locked_session() as (trader, market, book):
            return trader.propose(_current_session(trader, market, _require_open(book)))

    def clear(self) -> list[AuditEvent]:
        """Check the session's plan for compliance and place it where it may trade at once."""
        with self._locked_session() as (trader, market, book):
            return trader.clear(_current_session(trader, market, _require_open(book)))

    def require_reconciled(self) -> None:
        """Raise if the account differs from the expected holdings and no person has accepted it.

        Raises:
            NotReconciled: with the differences and the remedy.
        """
        with self._locked_session() as (trader, _, _):
            trader.require_reconciled()

    def open_differences(self) -> tuple[str, ...]:
        """Unaccepted differences at the last close, from the book; no broker is contacted."""
        last = self.store.book(self.account).last()
        return open_differences(last, Journal(self.store.audit, self.account))

    def accept(self, by: str, reason: str) -> AuditEvent:
        """Accept the actual holdings where they differ from the expected ones, so that trading continues.

        Raises:
            ExecutionError: if nothing differs, or there is no reason.
            StorageError: if there is no such account.
        """
        read_account(self.store.home, self.account)
        with lock_account(self.store, self.account) as book:
            journal = self._journal(book)
            event = acceptance_event(self.account, book.last(), (by, reason), self._clock())
            return (journal.append(event) or [event])[0]

    def reset(self, by: str, reason: str) -> AuditEvent:
        """Empty a simulated account, so that it opens anew; its past stays in the audit.

        The event is written first: a killed reset is completed by the next command that trades.

        Raises:
            ExecutionError: if the account is at a broker or not open, or there is no reason.
            StorageError: if there is no such account, or its book was opened at a broker.
        """
        self.require_simulated("is reset")
        with lock_account(self.store, self.account) as book:
            state, spec = _require_open(book), read_account(self.store.home, self.account)
            require_same_account(self.account, spec.model_copy(update={"capital": state.capital}), state)
            event = reset_event(self.account, state.session, (by, reason), self._clock())
            (stored,) = Journal(self.store.audit, self.account).append(event)
            book.clear()
            return stored

    def plans(self) -> pl.DataFrame:
        """Plans of the account, newest first, with status and findings: rows of rebalance_plan."""
        records = Journal(self.store.audit, self.account).records()
        return to_frame(REBALANCE_PLAN, plan_rows(records)).sort("session", descending=True, maintain_order=True)

    def decide(self, plan_id: str, decision: PlanDecision, by: str) -> AuditEvent:
        """Record a person's decision on a plan; at a broker, approved or edited orders are placed at once.

        Edited weights pass the pipeline's limits and compliance, and become a plan of their own with this one as its
        parent. Without soft findings it is cleared, else it waits. To skip a plan, or to call it as good as the
        holdings, judges nothing: the plan goes on as before.

        Raises:
            StalePlan: if the holdings changed since the plan was made; for an approval and for edited weights, also if
                the active policy or the prices of its session did.
            ExecutionError: if the plan is unknown, blocked, expired, not waiting or already decided on, a reason is
                missing, or the weights are invalid or blocked by compliance, and nothing is recorded; or if it is
                recorded but its orders cannot be placed: trading the account retries until the exchange opens.
        """
        weights = decision.weights if isinstance(decision, Override) else None
        is_live = read_account(self.store.home, self.account).is_live
        if weights is None and not (isinstance(decision, Approve) and is_live):
            with lock_account(self.store, self.account) as book:
                return self._append_decision(book, plan_id, decision, by)
        with self._locked_session() as (_, market, book):
            if is_live:
                require_last_close(market, _require_open(book))
            if weights is None:
                event = self._append_decision(book, plan_id, decision, by)
            else:
                event = self._replace_plan(market, book, plan_id, (by, decision.reason), weights)
        if is_live:
            self.clear()
        return event

    def mirror(self) -> None:
        """Update the account's rows of the `portfolio` tables from the audit and the book."""
        mirror(self.store, self.account)

    def _append_decision(self, book: AccountBook, plan_id: str, decision: PlanDecision, by: str) -> AuditEvent:
        journal, author = self._journal(book), (by, decision.reason)
        trades = isinstance(decision, Approve)
        event, _ = self._decision_event(journal, book, plan_id, decision.event, author, trades=trades)
        return journal.append(event)[0]

    def _replace_plan(
        self,
        market: TradedMarket,
        book: AccountBook,
        plan_id: str,
        author: tuple[str, str],
        weights: Mapping[str, float],
    ) -> AuditEvent:
        """Override a plan with edited weights."""
        journal = self._journal(book)
        event, plan = self._decision_event(journal, book, plan_id, "overridden", author, trades=True)
        if not plan.has_symbols(market.panel.symbols):
            raise ExecutionError(f"the weights of plan {plan_id} cannot be edited: {OTHER_NAMES}; reject it")
        t, held = market.index_of(plan.session), _require_open(book).account(market.panel.symbols)
        edited = make_edited_plan(market.deployment, t, held, plan, weights)
        return journal.append(*replacement_events(event, edited, market.findings(edited, t)))[0]

    def _decision_event(
        self,
        journal: Journal,
        book: AccountBook,
        plan_id: str,
        decision: DecisionEvent,
        author: tuple[str, str],
        *,
        trades: bool,
    ) -> tuple[AuditEvent, RebalancePlan]:
        """Make the event of a decision, with the account's value at it, and return it with the plan."""
        record = journal.record(plan_id)
        if record is None:
            raise ExecutionError(f"the account {self.account} has no plan {plan_id}; `nvtrader plans` lists its plans")
        require_no_orders(plan_id, book.orders(plan_id))
        state = _require_open(book)
        calendar = self.store.calendar_of(record.plan.partition_key)
        event = record_decision(record, decision, state.session, author, self._clock(), calendar)
        if journal.has(event.event_id):
            raise ExecutionError(f"plan {plan_id} can be {decision} once, and was; approve, override or reject it")
        require_unchanged_inputs(self.store, record.plan, decision, state, trades=trades)
        detail = {**event.detail, "account_value": state.value}
        return event.model_copy(update={"detail": detail}), record.plan

    def _open(self, trader: Trader, market: TradedMarket, book: AccountBook, first: date | None = None) -> None:
        """Open the account at the close before the first session, unless it is open; require recent tests.

        Refused while trading is stopped: an account opened then would hold cash and could not open on a later day.
        """
        opening = market.opening(first, book.opening())
        state = book.last()
        if state is None and (stopped := self._switch.halt_reason()):
            raise ExecutionError(
                f"an account cannot be opened while trading is stopped, but the account {self.account} is not open "
                f"yet, and {stopped}; run {self._switch.remedy} first"
            )
        market.require_recent(
            Journal(self.store.audit, self.account).proposals(), state.session if state else market.day(opening)
        )
        if state is None:
            trader.open_at(opening)

    def _require_tradable(self, market: TradedMarket, book: AccountBook, t: int) -> None:
        """Raise if trading is stopped, unless `t` is the market's last session, or a bot's policy is too old for `t`.

        An account would walk through its history without decisions, and could not repeat it.

        Raises:
            TradingHalted: with the close at which the account stays.
            ExecutionError: with the last tested session.
        """
        if market.bot:
            market.require_recent((), market.day(max(0, t - 1)))
        if t < market.n_ended - 1 and (stopped := self._switch.halt_reason()):
            of_bot = f"`nvtrader bots start {market.bot.name}` starts it" if market.bot else ""
            raise TradingHalted(self.account, _require_open(book).session, stopped, of_bot or self._switch.remedy)

    @contextmanager
    def _locked_session(self, *, is_replay: bool = False) -> Iterator[tuple[Trader, TradedMarket, AccountBook]]:
        """Lock the account and yield its trader, market and book."""
        with lock_account(self.store, self.account) as book:
            market = self._load_market(require_active(self.store, self.account))
            require_fresh(market, self._clock())
            state = book.last()
            replayed_to = date.max if is_replay else None
            if state and state.in_replay and not is_replay:
                replayed_to = market.day(market.n_ended - 1) - timedelta(days=1)
            controls = account_controls(self.store, market, book, (self._by, self._clock), replayed_to)
            yield Trader(market.deployment.clone(), market.venue(book), self._journal(book), controls), market, book

    def _journal(self, book: AccountBook) -> Journal:
        """Open the journal of the account and require that book and audit agree."""
        journal, kept = Journal(self.store.audit, self.account), book.index()
        if journal.is_new_after_reset and kept.orders:  # older ones: the reset was killed before it emptied the book
            book.clear()
            kept = book.index()
        journal.require_book_covers_audit(kept)
        journal.require_audit_covers_book(kept, late=read_account(self.store.home, self.account).is_live)
        return journal

    def _load_market(self, active: ActivePolicy) -> TradedMarket:
        """Load the market, from the cache if unchanged; files that people edit are read again."""
        known = self._market
        if known is not None and known[0] == cache_key(self.store, active, known[1].panel.source):
            return refresh(self.store, known[1], self._clock())
        market = open_traded_market(self.store, active, self.account, self._clock())
        self._market = cache_key(self.store, active, market.panel.source), market
        return market

    def _cancel_if_halted(self) -> None:
        """Cancel open orders at a broker while trading is stopped, before anything else is read."""
        reason = self._switch.halt_reason()
        if reason is not None:
            with lock_account(self.store, self.account) as book:
                cancel_account_orders(self.store, self.account, book, CancelRequest(reason, self._by, self._clock))


def _run_session(trader: Trader, t: int, *, acknowledge: bool) -> AccountState:
    """Trade one session; without a decision at its close if the account differs there."""
    trader.execute(t)
    state = trader.settle(t)
    trader.update_outcomes()
    if trader.open_differences_error() is None:
        trader.propose(t)
        trader.clear(t, acknowledge=acknowledge)
    return state


def _require_open(book: AccountBook) -> AccountState:
    state = book.last()
    if state is None:
        raise ExecutionError("the account must be open, but is not; trade it first: `nvtrader trade`")
    return state


def _due_sessions(
    trader: Trader, market: TradedMarket, last: AccountState | None, *, acknowledge: bool = False
) -> list[int]:
    """Positions of sessions with steps left; at a broker only the last, as earlier ones are too late."""
    end = market.n_ended - 1
    if last is None:
        return [end]
    as_of = market.index_of(last.session)
    after = list(range(as_of + 1, end + 1))
    if market.is_live and after:
        return after[-1:]
    return after if trader.is_finished(as_of, acknowledge=acknowledge) else [as_of, *after]


def _current_session(trader: Trader, market: TradedMarket, last: AccountState) -> int:
    """Position of the first session with steps left, or of the last session."""
    return (_due_sessions(trader, market, last) or [market.index_of(last.session)])[0]
