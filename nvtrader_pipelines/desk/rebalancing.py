"""Whether an account is due for a rebalance, and what its equity is compared with."""

from contextlib import suppress
from datetime import date, timedelta

import polars as pl

from nvtrader_pipelines.desk.accounts import read_account
from nvtrader_pipelines.desk.backtest import account_backtest, deployment_of
from nvtrader_pipelines.market.calendar import sessions
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, MARKET_PANEL

_CURVE = 2  # sessions that make a line


def nothing_to_trade(store: Store, account: str, session: date) -> str | None:
    """Why an account kept here is left in peace after a session; None where it is rebalanced.

    An account at a broker always is: its run fails where a person sees it, as holdings that nobody looks after are
    worse than a red run. One kept here loses nothing, since it catches up session by session once its bars come.

    Raises:
        StorageError: if nobody can tell what trades, as the pointer is damaged or gone.
    """
    if read_account(store.home, account).kind != "simulated":
        return None
    active = read_active(store)
    if active is None:
        return (
            f"the account {account} needs an active policy to be rebalanced, but none was ever activated; "
            "`nvtrader policies activate` names one, or the job `promotion` does"
        )
    source, ends = market_end(store, active)
    before = sessions(session - timedelta(days=14), session - timedelta(days=1))[-1].item()
    if ends is not None and ends >= before:  # those of the session itself may come in while the run waits
        return None
    return (
        f"the account {account} needs the bars of {before}, the session before {session}, but its market {source} "
        f"ends on {ends}; deliver the bars and run the job `market`: the next rebalance catches up"
    )


def market_end(store: Store, active: ActivePolicy) -> tuple[str, date | None]:
    """The source of the active policy's market, and its last session; None where it has no panel."""
    source = store.ledger.read(active.partition_key).market.source
    ends = store.tables.read(MARKET_PANEL, columns=["source", "last_session"]).filter(pl.col("source") == source)
    return source, max(ends["last_session"].to_list(), default=None)


def rivals(store: Store, states: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Equity of the back-test of the same sessions, and of 1/N where the policy's own tests have it.

    An account that several policies have traded has no back-test of its own, nor has one whose policy cannot decide on
    the market as it is now.
    """
    traded = states.select("run_id", "policy", "spec_hash").unique()
    if len(states) < _CURVE or len(traded) != 1:
        return {}
    run_id, policy, spec_hash = traded.row(0)
    first, last = states["session"][0], states["session"][-1]
    where = {"spec_hash": [spec_hash], "run_id": [run_id]}
    curves = store.tables.read(EQUITY_CURVES, where, ["policy", "session", "equity"])
    found = {"equal weight": curves.filter(pl.col("policy") == "equal_weight")}
    with suppress(ValueError):  # the market has left the policy, which need not be the one that trades by now
        found = {"back-test": account_backtest(deployment_of(store, run_id, policy), first, last), **found}
    return found
