"""Small walk-forward records for the tests of verdicts and figures."""

import datetime as dt
from datetime import date

import numpy as np
import polars as pl

from tests.markets import synthetic_sessions

WHO = (
    ("ppo/seed-0", "policy"),
    ("ppo/seed-1", "policy"),
    ("ppo", "ensemble"),
    ("equal_weight", "baseline"),
    ("buy_and_hold", "baseline"),
)


def equity_curves(n_sessions=600, n_folds=3, seed=0, who=WHO):
    """Equity curves of a few accounts, one third of the sessions in each fold."""
    generator = np.random.default_rng(seed)
    sessions = synthetic_sessions(n_sessions).tolist()
    folds = (np.arange(n_sessions) * n_folds // n_sessions).tolist()
    market = generator.normal(0.0004, 0.01, n_sessions)
    frames = []
    for name, kind in who:
        returns = market + generator.normal(0.0, 0.003, n_sessions)
        equity = np.cumprod(1.0 + returns)
        peak = np.maximum(np.maximum.accumulate(equity), 1.0)
        frames.append(
            pl.DataFrame(
                {
                    "policy": name,
                    "kind": kind,
                    "fold": folds,
                    "session": sessions,
                    "equity": equity,
                    "net_return": returns,
                    "drawdown": 1.0 - equity / peak,
                    "turnover": np.where(np.arange(n_sessions) % 5 == 0, 0.1, 0.0),
                    "cost": np.where(np.arange(n_sessions) % 5 == 0, 0.0002, 0.0),
                    "cash": 0.1,
                    "gross": 0.9,
                    "gross_before_cap": 0.9,
                    "financing": 0.0,
                }
            )
        )
    return pl.concat(frames)


def action_logs(curves, every=5):
    """A decision of each account before every few of its sessions: one name of two, then both, a tenth in cash."""
    sessions = curves["session"].unique().sort()
    decided = [sessions[0] - dt.timedelta(days=1), *sessions[every - 1 : -1 : every]]
    weights = [[0.9, 0.0, 0.1] if i % 2 == 0 else [0.45, 0.45, 0.1] for i in range(len(decided))]
    steps = pl.DataFrame({"step": range(len(decided)), "session": decided, "executed_weights": weights})
    return curves.select("policy", "kind").unique(maintain_order=True).join(steps, how="cross")


REPORT_FROM = date(2016, 1, 1)
