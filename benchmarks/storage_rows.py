"""Trajectory rows as a training writes them, and a temporary store on disk."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.iceberg.commits import Where
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION, TRAJECTORIES

N_NAMES = 20
EPISODE = 250
SPEC_HASH, RUN_ID = "5" * 64, "0" * 16
RUN: Where = {"spec_hash": [SPEC_HASH], "run_id": [RUN_ID]}


@contextlib.contextmanager
def scratch_store() -> Iterator[tuple[Path, Store]]:
    """Open a store in a temporary folder that is deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nvtrader-storage-", dir="/var/tmp"))
    try:
        yield folder, Store(Home(folder / "home"))
    finally:
        shutil.rmtree(folder)


def trajectories(n_steps: int) -> pl.DataFrame:
    """Steps of 20 weights in episodes of a year; random numbers, so that nothing compresses."""
    draw = np.random.default_rng(0)
    step = np.arange(n_steps) % EPISODE
    terms = zip(draw.normal(0.0, 0.01, n_steps), draw.random(n_steps), strict=True)
    info = [f'{{"reward_terms": {{"log_growth": {a!r}, "turnover": {b!r}}}, "termination": null}}' for a, b in terms]
    columns = _account(n_steps) | {
        "phase": _constant("train", n_steps),
        "seed": np.ones(n_steps, dtype=np.int32),
        "episode": np.arange(n_steps) // EPISODE,
        "step": step,
        "session": _sessions(step),
        "fill_session": _sessions(step + 1),
        "observation_hash": draw.integers(-(2**62), 2**62, n_steps),
        "action": pl.Series(draw.normal(size=(n_steps, N_NAMES)).astype(np.float32)),
        **{name: draw.normal(size=n_steps) for name in ("reward", "value", "log_prob")},
        "equity": 1.0 + draw.random(n_steps),
        "drawdown": draw.random(n_steps),
        "turnover": draw.random(n_steps),
        "terminated": np.zeros(n_steps, dtype=np.bool_),
        "truncated": step == EPISODE - 1,
        "info": info,
    }
    return _to_frame(TRAJECTORIES, columns)


def equity_curves(n_steps: int) -> pl.DataFrame:
    """Sessions of accounts, with four folds each."""
    draw = np.random.default_rng(1)
    columns = _account(n_steps) | {
        "session": _sessions(np.arange(n_steps) % EPISODE),
        **{name: draw.random(n_steps) for name in ("equity", "drawdown", "turnover", "cost", "cash")},
        "net_return": draw.normal(0.0, 0.01, n_steps),
    }
    return _to_frame(EQUITY_CURVES, columns)


def action_logs(n_steps: int) -> pl.DataFrame:
    """Weights before and after each trade, cash last."""
    draw = np.random.default_rng(2)
    names = [*(f"N{i:02d}" for i in range(N_NAMES)), "cash"]
    columns = _account(n_steps) | {
        "step": np.arange(n_steps) % EPISODE,
        "session": _sessions(np.arange(n_steps) % EPISODE),
        "symbols": pl.Series([names]).new_from_index(0, n_steps),
        **{
            name: pl.Series(draw.random((n_steps, len(names))))
            for name in ("target_weights", "executed_weights", "trades")
        },
    }
    return _to_frame(ACTION_LOGS, columns)


def reward_decomposition(n_steps: int, n_terms: int = 5) -> pl.DataFrame:
    """Five terms of each step's reward."""
    n_rows, draw = n_steps * n_terms, np.random.default_rng(3)
    step = np.arange(n_rows) // n_terms % EPISODE
    columns = _account(n_rows) | {
        "step": step,
        "session": _sessions(step),
        "term": pl.Series([f"term_{i}" for i in range(n_terms)]).gather(np.arange(n_rows) % n_terms),
        "contribution": draw.normal(size=n_rows),
    }
    return _to_frame(REWARD_DECOMPOSITION, columns)


def _account(n_rows: int) -> dict[str, pl.Series | np.ndarray]:
    policies = pl.Series(["ppo/seed-1", "ppo/seed-2", "equal_weight", "ppo"])
    return {
        "spec_hash": _constant(SPEC_HASH, n_rows),
        "run_id": _constant(RUN_ID, n_rows),
        "policy": policies.gather(np.arange(n_rows) * len(policies) // n_rows),
        "kind": _constant("policy", n_rows),
        "fold": np.zeros(n_rows, dtype=np.int32),
    }


def _constant(value: str, n_rows: int) -> pl.Series:
    return pl.Series([value]).new_from_index(0, n_rows)


def _sessions(numbers: np.ndarray) -> np.ndarray:
    return np.datetime64("2020-01-01", "D") + numbers


def _to_frame(table: Table, columns: dict) -> pl.DataFrame:
    return pl.DataFrame(columns).select(pl.col(name).cast(dtype) for name, dtype in table.schema.items())
