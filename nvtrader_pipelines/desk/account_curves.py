"""Curves of an account: its equity beside references, and the closes of a name with its trades."""

from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.components.document import Document
from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.desk.account_facts import AccountFacts, backtest_problem, run_references
from nvtrader_pipelines.execution.orders import Fill
from nvtrader_pipelines.storage.errors import NotFoundError, StorageError
from nvtrader_pipelines.storage.panel_prices import SPY, read_spy_returns
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import CLEAN_BARS

Values = tuple[float | None, ...]
REFERENCES = {"equity": "back_test", "equal_weight": "equal_weight"}  # names of curves by column


class AccountCurves(Document):
    """Equity of an account and of references, 1 at its opening."""

    sessions: tuple[date, ...]
    equity: dict[str, Values]  # by name, the account's first; null where there is none
    drawdown: Values  # of the account, positive fractions
    profit: tuple[float, ...]  # of the account in each session, account currency; without deposits and withdrawals
    missing: str  # why there is no back-test; empty if there is one

    def frame(self, part: str | None = None) -> pl.DataFrame:  # noqa: ARG002 - there is one part
        """Frame of the equity of the account and of references, and of its drawdown, by session."""
        return pl.DataFrame({"session": self.sessions, **self.equity, "drawdown": self.drawdown})

    def plot(self) -> Any:
        """Plot the equity of the account beside references, and its drawdown."""
        from nvtrader_pipelines.figures.plotly_figures import plot_equity

        drawdown = {"account": self.drawdown}
        curves = ((name, self.sessions, equity, drawdown.get(name, ())) for name, equity in self.equity.items())
        return plot_equity(curves, "Equity of the account")


class NameCurve(Document):
    """Closes of a name, and the account's trades there."""

    symbol: str
    sessions: tuple[date, ...]
    close: tuple[float, ...]  # adjusted
    weight: Values  # of the name in the account at each close; null before its opening
    fills: tuple[Fill, ...]


def account_curves(store: Store, name: str) -> AccountCurves:
    """Equity of an account beside its back-test, 1/N and, where the market has it, SPY.

    Raises:
        NotFoundError: if there is no such account, or it has not traded yet.
        StorageError: if its book or the audit cannot be read.
    """
    facts = _traded_facts(store, name)
    missing, curve = backtest_problem(store, facts), facts.curve
    equity = {"account": curve["equity"]}
    try:
        references = curve.select("session").join(
            run_references(store, facts), on="session", how="left", maintain_order="left"
        )
        opening = pl.int_range(pl.len()) == 0  # all are 1 there
        references = references.with_columns(pl.when(opening).then(1.0).otherwise(pl.col(*REFERENCES)).name.keep())
        equity |= {REFERENCES[name]: references[name] for name in REFERENCES if not (missing and name == "equity")}
    except (StorageError, ValueError) as error:
        missing = missing or str(error)
    source = _source(store, facts)
    days = store.read_calendars().of(source).sessions(*(np.datetime64(facts.states[i].session) for i in (0, -1)))
    returns = read_spy_returns(store.tables, source, pl.Series("session", days, pl.Date))
    if returns is not None:
        levels = pl.DataFrame({"session": days, SPY: np.cumprod([1.0, *1.0 + np.nan_to_num(returns[1:])])})
        equity[SPY] = curve.select("session").join(levels, on="session", how="left", maintain_order="left")[SPY]
    values = {key: tuple(series.to_list()) for key, series in equity.items()}
    return AccountCurves(
        sessions=tuple(curve["session"]),
        equity=values,
        drawdown=tuple(curve["drawdown"]),
        profit=(0.0, *(state.profit_since(before) for before, state in pairwise(facts.states))),
        missing=missing,
    )


def name_curve(store: Store, name: str, symbol: str) -> NameCurve:
    """Closes of a name in the sessions of an account, with its weight and its trades there.

    Raises:
        NotFoundError: if there is no such account, it has not traded yet, or its market has no such name.
        StorageError: if its book, the audit or the market cannot be read.
    """
    facts = _traded_facts(store, name)
    source = _source(store, facts)
    bars = store.tables.read(CLEAN_BARS, {"source": [source], "symbol": [symbol]}, ["session", "adj_close"])
    bars = bars.filter(pl.col("session").is_between(facts.states[0].session, facts.states[-1].session)).sort("session")
    if bars.is_empty():
        raise NotFoundError(f"the market {source} must have bars of {symbol!r} in the account's sessions, but has none")
    weights = {state.session: dict(zip(state.symbols, state.weights, strict=True)) for state in facts.states}
    return NameCurve(
        symbol=symbol,
        sessions=tuple(bars["session"]),
        close=tuple(bars["adj_close"]),
        weight=tuple(weights.get(session, {}).get(symbol) for session in bars["session"]),
        fills=tuple(facts.fills_by_name.get(symbol, ())),
    )


def _traded_facts(store: Store, name: str) -> AccountFacts:
    facts = AccountFacts.of(store, name)
    if not facts.states:
        read_account(store.home, name)
        raise NotFoundError(f"the account {name} has not traded yet; run `nvtrader trade --account {name}`")
    return facts


def _source(store: Store, facts: AccountFacts) -> str:
    """Source of the market that the account trades."""
    return store.ledger.run(facts.states[-1].run_id).source
