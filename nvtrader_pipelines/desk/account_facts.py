"""Facts of an account: its states and events, its back-test and its picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Self

import polars as pl

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.execution.audit import AuditEvent, TradingState
from nvtrader_pipelines.execution.book import AccountState
from nvtrader_pipelines.execution.journal import Journal
from nvtrader_pipelines.execution.orders import Fill
from nvtrader_pipelines.execution.plan_records import PlanRecord, halted_session_events, plan_records
from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


@dataclass(frozen=True)
class AccountFacts:
    """States and audit events of an account, read once."""

    name: str
    states: Sequence[AccountState]  # opening first
    events: Sequence[AuditEvent]
    records: Mapping[str, PlanRecord]  # by plan id, oldest first
    trading: TradingState

    @classmethod
    def of(cls, store: Store, name: str) -> Self:
        """Read the book, the audit and the kill switch.

        Raises:
            StorageError: if the book or the audit is damaged.
            ExecutionError: if the book lacks events that the audit has: it is missing or an older copy.
        """
        book = store.book(name)
        events = store.audit.events(name)
        Journal(store.audit, name, events).require_book_covers_audit(book.index())
        return cls(name, book.states(), events, plan_records(events), store.switch_of(name).state())

    @cached_property
    def fills(self) -> Sequence[Fill]:
        """Fills, oldest first."""
        return [Fill.model_validate(event.detail["fill"]) for event in self.events if event.kind == "filled"]

    @cached_property
    def fills_by_name(self) -> Mapping[str, Sequence[Fill]]:
        """Fills of each name, oldest first."""
        fills: dict[str, list[Fill]] = {}
        for fill in self.fills:
            fills.setdefault(fill.symbol, []).append(fill)
        return fills

    @property
    def halted_sessions(self) -> list[date]:
        """Sessions that the kill switch left without a plan, whether or not a decision was due."""
        return [event.session for event in halted_session_events(self.events, self.records.values()) if event.session]

    @property
    def waiting(self) -> list[PlanRecord]:
        """Plans that wait for a person, oldest first."""
        return [record for record in self.records.values() if record.status == "waiting"]

    @property
    def curve(self) -> pl.DataFrame:
        """Rows per close, opening first: equity, net return, drawdown, turnover, cost and cash."""
        names = ("session", "equity", "net_return", "drawdown", "turnover", "cost")
        rows = [(*(getattr(state, name) for name in names), state.weights[-1]) for state in self.states]
        return pl.DataFrame(rows, schema=[*names, CASH], orient="row")


def require_history(store: Store, account: str, days: tuple[date | None, date | None]) -> None:
    """Raise if an account cannot replay these days.

    Raises:
        ValueError: if the account is at a broker, or not open and without a first day.
        ExecutionError: if its book is missing, although the audit has events.
    """
    first, last = days
    if days != (None, None) and (kind := read_account(store.home, account).kind) != "simulated":
        raise ValueError(
            f"a history can only be replayed on a simulated account, but {account} is at a broker (kind: {kind}); "
            "leave out --from and --to"
        )
    if last and not first and not AccountFacts.of(store, account).states:
        raise ValueError(f"a history needs a first day, since the account {account} is not open yet; give --from, too")


def find_backtest(store: Store, facts: AccountFacts) -> tuple[pl.DataFrame | None, str]:
    """Back-test of an account since its opening, or the reason why there is none."""
    if missing := backtest_problem(store, facts):
        return None, missing
    try:
        return run_references(store, facts), ""
    except ValueError as error:  # the market has changed since; the policy need not be the active one
        return None, str(error)


def backtest_problem(store: Store, facts: AccountFacts) -> str:
    """Reason why an account cannot have a back-test; empty if it can."""
    n_policies = len({(state.run_id, state.policy) for state in facts.states})
    if read_account(store.home, facts.name).is_live:
        return "the account is at a broker, whose fills differ from assumed ones"
    if len(facts.states) < 2:
        return "no session has been traded yet"
    return f"{n_policies} policies have traded on the account" if n_policies > 1 else ""


def run_references(store: Store, facts: AccountFacts) -> pl.DataFrame:
    """Back-test the last policy of an account and 1/N since its opening, as by `account_backtest`.

    Raises:
        StorageError: if the policy's run or its market is gone.
        ValueError: if they do not fit each other.
    """
    from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment

    first, last = facts.states[0], facts.states[-1]
    return account_backtest(open_deployment(store, last.run_id, last.policy), first.session, last.session)


def draw_account(home: Home, facts: AccountFacts, backtest: pl.DataFrame | None) -> Path:
    """Draw the account beside its back-test and return the path of the picture."""
    from nvtrader_pipelines.figures.portfolio_figures import account_figure
    from nvtrader_pipelines.storage.files import PICTURE_FORMATS, write_picture

    state = facts.states[-1]
    opening = facts.curve.select("session", "equity").head(1)  # both are 1 there
    reference_curves = (
        {} if backtest is None else {"back-test": pl.concat([opening, backtest.select("session", "equity")])}
    )
    note = f"Last traded by {state.policy} of run {state.run_id}. Paper fills are assumptions."
    path = home.pictures / "paper" / f"{facts.name}.png"
    picture = account_figure(facts.curve, f"Account {facts.name} until {state.session}", reference_curves, note)
    for suffix in PICTURE_FORMATS:
        write_picture(path.with_suffix(suffix), picture)
    return path
