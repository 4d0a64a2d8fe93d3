"""Outcomes of decisions on the current market, five sessions after each."""

from collections.abc import Sequence
from datetime import datetime

import polars as pl

from nvtrader_pipelines.desk.account_access import read_account
from nvtrader_pipelines.execution.brokers.simulated_market import SimulatedMarket
from nvtrader_pipelines.feedback.decisions import audited_decisions
from nvtrader_pipelines.preferences.decisions import DecisionRow
from nvtrader_pipelines.preferences.outcomes import OutcomeMarket, Outcomes, decision_outcomes
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.panel_prices import read_prices, read_spy_returns
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import OUTCOMES


def write_outcomes(store: Store, rows: Sequence[DecisionRow], now: datetime) -> Outcomes:
    """Compute the outcomes of all decisions anew, from sessions ended by the clock, and replace the table.

    A decision on a market or experiment that is gone has a problem instead.
    """
    problems, n_pending = dict[str, str](), 0
    frames = [pl.DataFrame(schema=OUTCOMES.schema)]
    for partition_key, account in dict.fromkeys((row.partition_key, row.account) for row in rows):
        of_market = [row for row in rows if (row.partition_key, row.account) == (partition_key, account)]
        try:
            market = open_market(store, partition_key, account)
        except StorageError as error:
            problems |= {row.decision_id: str(error) for row in of_market}
            continue
        outcomes = decision_outcomes(of_market, market, market.panel.calendar.last_ended(now))
        frames.append(outcomes.rows)
        n_pending += outcomes.n_pending
        problems |= outcomes.problems
    order = pl.DataFrame({"decision_id": [row.decision_id for row in rows]}, schema={"decision_id": pl.String})
    table = order.join(pl.concat(frames), on="decision_id", maintain_order="left").select(OUTCOMES.schema.names())
    store.tables.replace(OUTCOMES, table, {})
    return Outcomes(table, n_pending, problems)


def write_practice(store: Store, account: str, now: datetime) -> None:
    """Write the outcomes if the account has decisions on a replay, whose outcome is known."""
    rows = audited_decisions(store)
    if any(row.account == account and row.outcome_known for row in rows):
        write_outcomes(store, rows, now)


def open_market(store: Store, partition_key: str, account: str) -> OutcomeMarket:
    """Open the current market of an experiment with the costs of an account; a removed account has no slippage."""
    spec = store.ledger.read(partition_key)
    panel = store.panels.read(spec.market)
    try:
        settings = read_account(store.home, account)
    except StorageError:
        settings = None
    slippage = settings.slippage_bps if settings else 0.0
    market = SimulatedMarket.from_environment(panel, spec.environment, read_prices(store.tables, panel), slippage)
    sessions = pl.Series("session", panel.sessions, pl.Date)
    return OutcomeMarket(panel, market.legs, market.cost, read_spy_returns(store.tables, panel.source, sessions))


def read_outcomes(store: Store) -> pl.DataFrame:
    """Read the outcomes of decisions, as they were computed last, with the columns that `agreement` needs."""
    names = ("session", "session_number", "decision", "reason", "excess_pct", "weight", "practice")
    return store.tables.read(OUTCOMES, columns=names)
