"""Trials of all search sessions, which results are deflated for, and their returns."""

import polars as pl

from nvtrader_pipelines.research.journal import returns_name
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RESEARCH_SESSIONS, RESEARCH_TRIALS

COLUMNS = ("session_id", "trial_id", "spec_hash", "status", "sharpe", "max_drawdown", "finished_at")


def search_trials(store: Store) -> pl.DataFrame:
    """Read the judged and pruned trials of all sessions: those that a search has chosen among.

    Returns:
        Columns of the trials; source, validation_from and sealed_from of their sessions; and net_returns per session of
        the validation by the first seed, null where pruned or no longer in the session's folder.
    """
    sessions = store.tables.read(RESEARCH_SESSIONS, columns=["session_id", "source", "validation_from", "sealed_from"])
    trials = store.tables.read(RESEARCH_TRIALS, {"status": ["judged", "pruned"]}, COLUMNS).join(
        sessions, on="session_id", maintain_order="left"
    )
    returns = [_net_returns(store, *names) for names in trials.select("session_id", "trial_id").iter_rows()]
    return trials.with_columns(net_returns=pl.Series(returns, dtype=pl.List(pl.Float64)))


def _net_returns(store: Store, session_id: str, trial: int) -> list[float] | None:
    try:
        return SessionFolder.of(store.home, session_id).read_returns(returns_name(trial))[0].tolist()
    except StorageError:
        return None
