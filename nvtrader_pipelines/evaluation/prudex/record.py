"""Input of PRUDEX-Compass: rows of the runs that represent the experiments."""

from dataclasses import dataclass

import polars as pl

from nvtrader_pipelines.market.calendar import Calendars

REFERENCE = "equal_weight"  # 1/N after costs: the market average
BASELINE = "baseline"
ENSEMBLE = "ensemble"
SEED = "policy"

RUNS = ("run_id", "experiment", "source", "finished_at", "warnings")
CURVES = ("run_id", "policy", "kind", "fold", "session", "net_return")
ACTIONS = ("run_id", "policy", "kind", "fold", "session", "symbols", "executed_weights")
RETURNS = ("source", "symbol", "session", "close_return")


@dataclass(frozen=True, eq=False)
class PrudexRecord:
    """Latest completed run of every experiment on every market, and the markets."""

    runs: pl.DataFrame  # RUNS, in the order of their verdicts
    curves: pl.DataFrame  # CURVES, every account and test session
    actions: pl.DataFrame  # ACTIONS, every account and decision; cash last
    returns: pl.DataFrame  # RETURNS, simple returns of every name
    features: pl.DataFrame  # source, symbol, session and features at the decisions' sessions
    calendars: Calendars  # by source
    markets: tuple[str, ...]  # sources of the home, with or without runs
    left_out: str = ""  # runs that are left out, with the reasons


def latest_runs(runs: pl.DataFrame) -> pl.DataFrame:
    """Last of the completed runs of each experiment and market, in the order of `finished_at`."""
    return (
        runs.sort("finished_at", "run_id")
        .unique(["experiment", "source"], keep="last", maintain_order=True)
        .sort("finished_at", "run_id")
    )


def accounts(runs: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Accounts in the windows, by kind and name, with source, experiment and age of their run."""
    every = windows.select("run_id", "policy", "kind").unique()
    known = runs.with_row_index("age").select("run_id", "experiment", "source", "age")
    rows = every.join(known, on="run_id").sort("kind", "policy", "source", "age")
    return rows.select("run_id", "source", "experiment", "policy", "kind", "age")
