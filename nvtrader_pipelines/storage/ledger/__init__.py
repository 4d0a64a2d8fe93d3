"""Ledger: versions of experiments, and the history of every run."""

from nvtrader_pipelines.storage.ledger.ledger import SHOWN_STATUS, Ledger
from nvtrader_pipelines.storage.ledger.run_rows import Ending, LedgerRun, RunKind, RunRow, RunStatus

__all__ = ["SHOWN_STATUS", "Ending", "Ledger", "LedgerRun", "RunKind", "RunRow", "RunStatus"]
