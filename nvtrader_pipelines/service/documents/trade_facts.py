"""Document of trading: the activity of an account, compared with its back-test."""

from datetime import date
from pathlib import Path

import polars as pl

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.service.documents.account_facts import (
    AccountActivity,
    AccountFacts,
    BacktestComparison,
    NoBacktest,
    activity,
)
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store


def trade_document(store: Store, account: str, days: tuple[date | None, date | None]) -> AccountActivity:
    """Activity of an account between two days, compared with its back-test, and their picture."""
    facts = AccountFacts.of(store, account)
    curve, document = facts.curve, activity(store, facts, *days)
    backtest, missing = _backtest(store, facts)
    comparison = (
        NoBacktest(missing=missing)
        if backtest is None
        else _compare_to_backtest(curve, backtest, document.last_session)
    )
    picture = str(_write_picture(store.home, facts, backtest)) if len(curve) > 1 else None
    return document.model_copy(update={"backtest": comparison, "picture": picture})


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


def _backtest(store: Store, facts: AccountFacts) -> tuple[pl.DataFrame | None, str]:
    """Back-test of an account since its opening, or the reason why there is none."""
    from nvtrader_pipelines.desk.account_backtests import account_backtest, open_deployment

    opening, *sessions = facts.states
    traded = {(state.run_id, state.policy) for state in facts.states}
    if read_account(store.home, facts.name).kind != "simulated":
        return None, "the account is at a broker, whose fills differ from assumed ones"
    if not sessions:
        return None, "no session has been traded yet"
    if len(traded) > 1:
        return None, f"{len(traded)} policies have traded on the account"
    try:
        return account_backtest(open_deployment(store, *traded.pop()), opening.session, sessions[-1].session), ""
    except ValueError as error:  # the market has changed since; the policy need not be the active one
        return None, str(error)


def _compare_to_backtest(curve: pl.DataFrame, backtest: pl.DataFrame, last: date) -> BacktestComparison | NoBacktest:
    """Equity of the back-test at the close of a session, and the largest difference up to it."""
    both = curve.join(backtest.select("session", backtest="equity"), on="session").sort("session")
    both = both.filter(both["session"] <= last)
    if both.is_empty():
        return NoBacktest(missing="no session of these days has been traded")
    return BacktestComparison(
        n_sessions=len(both),
        first_session=both["session"][0],
        last_session=both["session"][-1],
        equity=both["backtest"][-1],
        largest_difference=(both["equity"] - both["backtest"]).abs().to_numpy().max(),
    )


def _write_picture(home: Home, facts: AccountFacts, backtest: pl.DataFrame | None) -> Path:
    """Draw the account beside its back-test and return the path of the picture."""
    from nvtrader_pipelines.figures.portfolio_figures import account_figure
    from nvtrader_pipelines.storage.picture_files import FORMATS, write_picture

    state = facts.states[-1]
    opening = facts.curve.select("session", "equity").head(1)  # both are 1 there
    reference_curves = (
        {} if backtest is None else {"back-test": pl.concat([opening, backtest.select("session", "equity")])}
    )
    note = f"Last traded by {state.policy} of run {state.run_id}. Paper fills are assumptions."
    path = home.pictures / "paper" / f"{facts.name}.png"
    picture = account_figure(facts.curve, f"Account {facts.name} until {state.session}", reference_curves, note)
    for suffix in FORMATS:
        write_picture(path.with_suffix(suffix), picture)
    return path
