"""The desk: the active policy, its market and an account, put together; what a person or a schedule does with them."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import Self

import polars as pl

from nvtrader_pipelines.desk.accounts import held_account, read_account
from nvtrader_pipelines.desk.market import DeskMarket, active_policy, desk_market, market_key, renewed
from nvtrader_pipelines.desk.mirror import mirror
from nvtrader_pipelines.desk.open_orders import Stop, withdraw
from nvtrader_pipelines.desk.rows import plan_rows
from nvtrader_pipelines.execution.audit import AuditEvent
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.decisions import PlanDecision, record_decision, require_no_orders
from nvtrader_pipelines.execution.errors import ExecutionError
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.plan import RebalancePlan
from nvtrader_pipelines.execution.reconciliation import acceptance_event, open_differences
from nvtrader_pipelines.execution.risk_controls import RiskControls
from nvtrader_pipelines.execution.trader import Trader
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.promotion.active_policy import ActivePolicy
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.kill_switch import FileKillSwitch
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import to_frame
from nvtrader_pipelines.storage.tables import REBALANCE_PLAN

Clock = Callable[[], datetime]


class Desk:
    """One account and who trades on it; one process at a time moves an account."""

    def __init__(self, store: Store, account: str, clock: Clock, by: str) -> None:
        self.store, self.account, self._clock, self._by = store, account, clock, by
        self._switch = FileKillSwitch(store.home)
        self._market: tuple[object, DeskMarket] | None = None

    @classmethod
    def open(cls, store: Store, account: str = "paper", clock: Clock = now, by: str = "nvtrader") -> Self:
        """The desk of an account; nothing is read before it is needed."""
        return cls(store, account, clock, by)

    def due(self) -> list[date]:
        """Sessions that have ended which the account has not been through; of one not open yet, the one it opens at.

        Raises:
            StorageError: if there is no active policy that may trade here.
        """
        with self._hired() as (trader, market, book):
            return [market.day(t) for t in _due(trader, market, book.last())]

    def trade(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        acknowledge: bool = False,
        until_waiting: bool = False,
    ) -> Generator[Progress, None, None]:
        """Every due session to `last`, one step after the other, telling of each session.

        A session after which what is held is not as expected is the last one: it is told of before anything is
        decided at its close, and nothing trades on until that is put right or a person has accepted it.

        Args:
            first: first session traded of an account that is not open yet: it opens in cash at the close before it. An
                account that was opened so goes on. None opens at the last session known.
            last: the last one, the last known if None.
            acknowledge: whether soft findings are acknowledged by the replay itself, an `approved` row each.
            until_waiting: whether a session whose plan waits for a person is the last one.

        Raises:
            ExecutionError: if something that must hold does not, such as that only an account kept here replays a
                history; nothing of the session's step was written.
            NotReconciled: if the account differs, at the session just told of or where it stood.
            StorageError: if there is no active policy, no recent evaluation, or another process has the account.
        """
        if first is not None:
            self.require_kept_here("begins on a day of the past")
        if acknowledge:
            self.require_kept_here("has its soft findings acknowledged by the replay itself")
        self._stop()
        with self._hired() as (trader, market, book):
            trader.require_reconciled()
            end = market.last_session(first, last)
            self._open(trader, market, book, first)
            due = [t for t in _due(trader, market, book.last(), acknowledge=acknowledge) if t <= end]
            done = 0
            for done, t in enumerate(due, start=1):
                state = _through(trader, t, acknowledge=acknowledge)
                yield market.told(state, done / len(due), self._clock())
                trader.require_reconciled()
                if until_waiting and trader.is_waiting(t):
                    break
            yield market.ended(done, self._clock())

    def require_kept_here(self, asked: str) -> None:
        """Refuse what must never make orders at a market.

        Args:
            asked: what the account was to do, after "an account that".

        Raises:
            ExecutionError: if the account is at a broker.
        """
        if (kind := read_account(self.store.home, self.account).kind) != "simulated":
            raise ExecutionError(
                f"an account that {asked} must be kept here, but {self.account} is at a broker (kind: {kind}); trade "
                "it session by session, and answer its plans yourself"
            )

    def execute(self) -> list[AuditEvent]:
        """The orders of the last due session: placed, filled, cancelled; sessions before it are traded whole first.

        Raises:
            NotReconciled: if the account differs after one of those, or where it stood; nothing is placed then.
        """
        self._stop()
        with self._hired() as (trader, market, book):
            self._open(trader, market, book)
            *before, t = _due(trader, market, book.last()) or [market.index_of(_opened(book).session)]
            for earlier in before:
                _through(trader, earlier, acknowledge=False)
            trader.require_reconciled()
            return trader.execute(t)

    def settle(self) -> AccountState:
        """Mark the account to the close of the session: its row of the book."""
        with self._hired() as (trader, market, book):
            t = _in_hand(trader, market, _opened(book))
            trader.execute(t)  # what a step that was killed left untold is told before the state is kept
            return trader.settle(t)

    def propose(self) -> RebalancePlan | None:
        """The plan decided at the close of the session; None where none is due."""
        with self._hired() as (trader, market, book):
            return trader.propose(_in_hand(trader, market, _opened(book)))

    def clear(self) -> list[AuditEvent]:
        """What compliance says of the session's plan."""
        with self._hired() as (trader, market, book):
            return trader.clear(_in_hand(trader, market, _opened(book)))

    def require_reconciled(self) -> None:
        """Refuse to trade on where the account differs, until that is put right or a person has accepted it.

        Raises:
            NotReconciled: saying what differs and what to do.
        """
        with self._hired() as (trader, _, _):
            trader.require_reconciled()

    def open_differences(self) -> tuple[str, ...]:
        """What the account differed by at its last close, where no person has accepted it; nobody else is asked."""
        last = SqliteBook(self.store.home, self.account).last()
        return open_differences(last, Journal(self.store.audit, self.account))

    def accept(self, by: str, reason: str) -> AuditEvent:
        """Take what the account holds as it is, where it differs from what was expected; it then trades on.

        Raises:
            ExecutionError: if nothing differs, or there is no reason.
            StorageError: if there is no such account.
        """
        read_account(self.store.home, self.account)
        with held_account(self.store.home, self.account) as book:
            journal = self._journal(book)
            event = acceptance_event(self.account, book.last(), (by, reason), self._clock())
            journal.append(event)
            return event

    def plans(self) -> pl.DataFrame:
        """Every plan of the account, the latest first, with its state and findings: the rows of rebalance_plan."""
        records = Journal(self.store.audit, self.account).records()
        return to_frame(REBALANCE_PLAN, plan_rows(records)).sort("session", descending=True, maintain_order=True)

    def approve(self, plan_id: str, by: str, reason: str = "") -> AuditEvent:
        """Acknowledge the soft findings of a plan, which then goes on; at a market, its orders are placed at once.

        Raises:
            ExecutionError: if the plan is unknown, blocked, expired, waits for nobody, or was decided on already; or,
                where it is approved and its orders cannot be placed: trading the account goes on with them until the
                exchange opens.
        """
        if read_account(self.store.home, self.account).kind == "simulated":
            return self._answer(plan_id, "approved", by, reason)
        with self._hired() as (_, market, book):
            market.require_last(_opened(book))
            event = self._answered(book, plan_id, "approved", (by, reason))
        self.clear()
        return event

    def override(self, plan_id: str, by: str, reason: str) -> AuditEvent:
        """Hold instead of a plan; the reason is kept as what was learned from it."""
        return self._answer(plan_id, "overridden", by, reason)

    def reject(self, plan_id: str, by: str, reason: str) -> AuditEvent:
        """Refuse a plan, with a reason."""
        return self._answer(plan_id, "rejected", by, reason)

    def mirror(self) -> None:
        """Write the account's rows of the `portfolio` tables from the audit and the book."""
        mirror(self.store, self.account)

    def _answer(self, plan_id: str, answer: PlanDecision, by: str, reason: str) -> AuditEvent:
        with held_account(self.store.home, self.account) as book:
            return self._answered(book, plan_id, answer, (by, reason))

    def _answered(self, book: SqliteBook, plan_id: str, answer: PlanDecision, said: tuple[str, str]) -> AuditEvent:
        journal = self._journal(book)
        record = journal.record(plan_id)
        if record is None:
            raise ExecutionError(
                f"the account {self.account} has no plan {plan_id}; `nvtrader plans` lists those it has"
            )
        require_no_orders(plan_id, book.orders(plan_id))
        event = record_decision(record, answer, _opened(book).session, said, self._clock())
        journal.append(event)
        return event

    def _open(self, trader: Trader, market: DeskMarket, book: SqliteBook, first: date | None = None) -> None:
        """Open the account at the close before the first session, or find it opened so; refuse an untested policy.

        An account that is opened while trading is stopped would stand in cash, and could begin on no other day.
        """
        opening = market.opening(first, book.opening())
        state = book.last()
        if state is None and (stopped := self._switch.halt_reason()):
            raise ExecutionError(
                f"an account must not be opened while trading is stopped, but the account {self.account} is not open "
                f"yet, and {stopped}; trade it once `nvtrader resume` was run"
            )
        market.require_recent(
            Journal(self.store.audit, self.account).proposals(), state.session if state else market.day(opening)
        )
        if state is None:
            trader.open_at(opening)

    @contextmanager
    def _hired(self) -> Iterator[tuple[Trader, DeskMarket, SqliteBook]]:
        """A trader who knows what is kept, the market, and the book, while no other process has the account."""
        with held_account(self.store.home, self.account) as book:
            active = active_policy(self.store)
            market = self._market_of(active)
            market.require_fresh(self._clock())
            controls = RiskControls(self._switch, market.findings, market.purchase_bans, self._clock, self._by)
            yield Trader(market.deployment.clone(), market.venue(book), self._journal(book), controls), market, book

    def _journal(self, book: SqliteBook) -> Journal:
        """What the audit tells of the account, which is what its book has."""
        journal, kept = Journal(self.store.audit, self.account), book.index()
        journal.require_book_covers_audit(kept)
        journal.require_audit_covers_book(kept, late=read_account(self.store.home, self.account).kind != "simulated")
        return journal

    def _market_of(self, active: ActivePolicy) -> DeskMarket:
        """The market, read anew where it or the policy is another; what people keep in files always is."""
        known = self._market
        if known is not None and known[0] == market_key(self.store, active, known[1].panel.source):
            return renewed(self.store, known[1], self._clock())
        market = desk_market(self.store, active, self.account, self._clock())
        self._market = market_key(self.store, active, market.panel.source), market
        return market

    def _stop(self) -> None:
        """Cancel what waits at a broker while trading is stopped: before the market is asked for, or what is due."""
        reason = self._switch.halt_reason()
        if reason is not None:
            with held_account(self.store.home, self.account) as book:
                withdraw(self.store, self.account, book, Stop(reason, self._by, self._clock))


def _through(trader: Trader, t: int, *, acknowledge: bool) -> AccountState:
    """One session; where the account differs at its close, nothing is decided there."""
    trader.execute(t)
    state = trader.settle(t)
    if trader.reconciliation_error() is None:
        trader.propose(t)
        trader.clear(t, acknowledge=acknowledge)
    return state


def _opened(book: SqliteBook) -> AccountState:
    state = book.last()
    if state is None:
        raise ExecutionError("the account must be open, but it is not; trade it first: `nvtrader trade`")
    return state


def _due(trader: Trader, market: DeskMarket, last: AccountState | None, *, acknowledge: bool = False) -> list[int]:
    """Sessions in which something is left to do; at a broker only the last, as what was left before is too late."""
    end = market.n_ended - 1
    if last is None:
        return [end]
    stands_at = market.index_of(last.session)
    after = list(range(stands_at + 1, end + 1))
    if market.is_live and after:
        return after[-1:]
    return after if trader.is_finished(stands_at, acknowledge=acknowledge) else [stands_at, *after]


def _in_hand(trader: Trader, market: DeskMarket, last: AccountState) -> int:
    """The session whose steps are taken: the first in which something is left to do, else the last."""
    return (_due(trader, market, last) or [market.index_of(last.session)])[0]
