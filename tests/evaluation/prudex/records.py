"""Small records of runs: two experiments of three seeds beside three baselines, on a market of five names."""

from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.prudex import prudex_compass
from nvtrader_pipelines.evaluation.prudex.record import PrudexRecord
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK
from tests.markets import synthetic_sessions

NAMES = ("AA", "BB", "CC", "DD", "EE")
BASELINES = ("equal_weight", "buy_and_hold", "minimum_variance")
N_SESSIONS, N_FOLDS, EVERY = 240, 3, 10
JUDGED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def run_of(experiment="ppo", run_id="run-1", seed=0, n_seeds=3, source="sample", baselines=BASELINES, days=0):
    """One run's rows: runs, curves, actions; returns and weights differ by account, 1/N is exactly that."""
    generator = np.random.default_rng(seed)
    sessions = synthetic_sessions(N_SESSIONS)
    folds = (np.arange(N_SESSIONS) * N_FOLDS // N_SESSIONS).astype(np.int32)
    market = generator.normal(0.0005, 0.01, N_SESSIONS)
    seeds = [(f"{experiment}/seed-{i}", "policy") for i in range(n_seeds)]
    curves, actions = [], []
    for name, kind in (*seeds, (experiment, "ensemble"), *((name, "baseline") for name in baselines)):
        mine = market + generator.normal(0.0, 0.003, N_SESSIONS) * (name != "equal_weight")
        keys = {"run_id": run_id, "policy": name, "kind": kind}
        curves.append(
            pl.DataFrame({"session": sessions, "fold": folds, "net_return": mine}).with_columns(**literal(keys))
        )
        at = np.arange(0, N_SESSIONS, EVERY)
        weights = generator.dirichlet(np.ones(len(NAMES) + 1), len(at))
        if name == "equal_weight":
            weights = np.tile([*[1.0 / len(NAMES)] * len(NAMES), 0.0], (len(at), 1))
        rows = {"session": sessions[at], "fold": folds[at], "executed_weights": weights.tolist()}
        actions.append(pl.DataFrame({**rows, "symbols": [[*NAMES, "cash"]] * len(at)}).with_columns(**literal(keys)))
    runs = pl.DataFrame(
        {
            "run_id": [run_id],
            "experiment": [experiment],
            "source": [source],
            "finished_at": [JUDGED_AT + timedelta(days=days)],
            "warnings": [["survivorship bias"]],
        }
    )
    return runs, pl.concat(curves), pl.concat(actions)


def literal(keys):
    return {name: pl.lit(value) for name, value in keys.items()}


def market_of(source="sample", seed=5):
    """Returns and features of the names."""
    generator = np.random.default_rng(seed)
    sessions = synthetic_sessions(N_SESSIONS)
    common = generator.normal(0.0, 0.008, N_SESSIONS)
    frames = [
        pl.DataFrame(
            {
                "source": source,
                "symbol": name,
                "session": sessions,
                "close_return": common + generator.normal(0.0, 0.01, N_SESSIONS),
                "momentum": generator.normal(size=N_SESSIONS),
            }
        )
        for name in NAMES
    ]
    rows = pl.concat(frames)
    return rows.drop("momentum"), rows.drop("close_return")


def record_of(*runs, sources=("sample",), calendars=ALL_NEW_YORK):
    """The record of some runs, in a home of the sources' markets."""
    frames = [pl.concat(parts) for parts in zip(*runs, strict=True)]
    returns, features = (pl.concat(parts) for parts in zip(*map(market_of, sources), strict=True))
    return PrudexRecord(*frames, returns, features, calendars, sources)


@cache
def two_experiments():
    """The newer experiment has the newer baselines."""
    return record_of(run_of("ppo", "run-1", seed=0), run_of("a2c", "run-2", seed=1, days=1))


@cache
def compass_of_two():
    """Their compass; frames are never changed in place, so that tests may share it."""
    return prudex_compass(two_experiments())
