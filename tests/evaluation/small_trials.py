"""Runs with their own account and baselines, over the sessions that each of them has."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.trials import Period, Trial, Trials
from tests.markets import synthetic_sessions

WHOLE = Period("all", date(1990, 1, 1), date(2030, 1, 1))
SESSIONS = synthetic_sessions(700)


def run_curves(name, first=0, last=700, seed=0, baselines=("buy_and_hold", "equal_weight"), skill=0.0):
    """Net returns of one run's ensemble, one of its seeds and its baselines; skill is added to each session."""
    generator = np.random.default_rng([seed, first, last])
    market = np.random.default_rng(99).normal(0.0004, 0.01, len(SESSIONS))[first:last]
    frames = []
    for i, (policy, kind) in enumerate(
        [(name, "ensemble"), (f"{name}/seed-0", "policy"), *((baseline, "baseline") for baseline in baselines)]
    ):
        own = generator.normal(0.0, 0.003, last - first) + (skill if kind == "ensemble" else -0.0001 * i)
        days = SESSIONS[first:last].tolist()
        frames.append(pl.DataFrame({"policy": policy, "kind": kind, "session": days, "net_return": market + own}))
    return pl.concat(frames).with_columns(run_id=pl.lit(name))


def some_runs(*names, source="sample", validation_only=()):
    """Runs as the ledger tells them, in the order they finished; some of them for validation only."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    return pl.DataFrame(
        {
            "run_id": names,
            "source": source,
            "experiment": [f"ppo-{name}" for name in names],
            "finished_at": [start + timedelta(days=i) for i in range(len(names))],
            "validation_only": [name in validation_only for name in names],
        }
    )


@dataclass(frozen=True)
class Returns:
    """Net returns (T, N) of trials on the same sessions."""

    net: np.ndarray
    best_baseline: np.ndarray
    anchor: np.ndarray

    def first(self, n_sessions=None, n_trials=None):
        """Of some sessions and trials."""
        return Returns(*(part[:n_sessions, :n_trials] for part in (self.net, self.best_baseline, self.anchor)))

    def trials(self, without_returns=()):
        days = synthetic_sessions(len(self.net))
        columns = zip(self.net.T, self.best_baseline.T, self.anchor.T, strict=True)
        known = [
            Trial(f"run-{i}", days, *returns, "minimum_variance", "equal_weight", periods_per_year=252)
            for i, returns in enumerate(columns)
        ]
        return Trials(tuple(known), without_returns)


def some_returns(n_trials=6, n_sessions=400, seed=0, skill=0.0):
    """Trials around one market; the first of them has some skill."""
    generator = np.random.default_rng(seed)
    market = generator.normal(0.0004, 0.01, (n_sessions, 1))
    net = market + generator.normal(0.0, 0.003, (n_sessions, n_trials))
    net[:, 0] += skill
    best = np.repeat(market + generator.normal(0.0, 0.002, (n_sessions, 1)), n_trials, axis=1)
    return Returns(net, best, np.repeat(market, n_trials, axis=1))
