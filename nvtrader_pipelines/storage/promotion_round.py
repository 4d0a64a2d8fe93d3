"""Every experiment's newest policy before the promotion gate, one after the other."""

import polars as pl

from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.promotion import Clock, PromotionRow, consider
from nvtrader_pipelines.storage.runs import walk_forward_runs
from nvtrader_pipelines.storage.warehouse import Warehouse


def newest_runs(lake: Warehouse) -> pl.DataFrame:
    """The last completed run of each experiment that may trade, the one completed last at the end: experiment, run_id.

    Runs for validation only are left out: their policies may know what came after their tests.
    """
    runs = walk_forward_runs(lake).filter(~pl.col("validation_only")).sort("finished_at", "run_id")
    return runs.unique("experiment", keep="last", maintain_order=True).select("experiment", "run_id")


def consider_newest(lake: Warehouse, ledger: Ledger, by: str, clock: Clock) -> list[PromotionRow]:
    """Ask the gate about each of `newest_runs`; who passes trades, and the next must beat it.

    Raises:
        StorageError: as `consider`; the answers given before are kept.
    """
    return [consider(lake, ledger, run_id, by, clock) for run_id in newest_runs(lake)["run_id"]]


def summary(answers: list[PromotionRow]) -> str:
    """What the gate said, in one line."""
    promoted = [answer for answer in answers if answer.activated]
    if promoted:
        return promoted[-1].verdict.sentence
    if not answers:
        return "no run may trade yet"
    rest = f" (and {len(answers) - 1} more)" if len(answers) > 1 else ""
    return f"{answers[-1].verdict.sentence}{rest}"
