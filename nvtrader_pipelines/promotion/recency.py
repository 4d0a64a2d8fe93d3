"""Deadline to start trading a policy: 126 sessions after its last test session."""

from datetime import date, timedelta

import polars as pl

from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.promotion.active_policy import ActivePolicy, read_active_run
from nvtrader_pipelines.promotion.eligibility import require_market
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EVALUATIONS

MAX_TEST_AGE = 126  # sessions from the last tested one to the first that an account trades


def start_deadline(tested_to: date, calendar: TradingCalendar) -> date:
    """Last session on which a policy tested to a day may begin to trade."""
    following = calendar.sessions(tested_to + timedelta(days=1), tested_to + timedelta(days=2 * MAX_TEST_AGE))
    return following[MAX_TEST_AGE - 1].item()


def eligibility_message(store: Store, active: ActivePolicy) -> str:
    """Describe until when the active policy may begin to trade, or why it may not; opens no network."""
    try:
        run = read_active_run(store, active)
        require_evaluation(store, active)
        require_market(store, store.ledger.read(active.partition_key), run, active.policy)
    except StorageError as error:
        return f"not at all: {error}"
    until = start_deadline(run.as_parent.window[1], store.calendar_of(active.partition_key))
    return (
        f"until {until}, {MAX_TEST_AGE} sessions after its tests; a simulated account that it has "
        "begun to trade by then continues"
    )


def require_evaluation(store: Store, active: ActivePolicy) -> None:
    """Raise if the active policy has no evaluation.

    Raises:
        StorageError: if its tests have no Sharpe ratio.
    """
    where = {"spec_hash": [active.spec_hash], "run_id": [active.run_id]}
    tested = store.tables.read(EVALUATIONS, where, ["policy", "sharpe"]).filter(pl.col("policy") == active.policy)
    if not tested.filter(pl.col("sharpe").is_finite() & (pl.col("sharpe") != 0.0)).height:
        name = active.partition_key.partition("@")[0]
        raise StorageError(
            f"a policy must have been tested before it trades, but the tests of {active.policy} of run "
            f"{active.run_id} have no Sharpe ratio; `nvtrader experiments run {name}` evaluates it"
        )
