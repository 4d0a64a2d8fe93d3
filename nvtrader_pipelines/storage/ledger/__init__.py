"""The ledger: which versions of experiments there are, and what became of every run of them."""

from nvtrader_pipelines.storage.ledger.ledger import Ledger
from nvtrader_pipelines.storage.ledger.rows import Ending, LedgerRun, RunKind, RunRow, RunStatus

__all__ = ["Ending", "Ledger", "LedgerRun", "RunKind", "RunRow", "RunStatus"]
