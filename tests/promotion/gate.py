"""Rules before the promotion gate, and helpers that let the gate or a person decide."""

import datetime as dt
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.decision_log import PromotionRow
from nvtrader_pipelines.promotion.promote import activate_manually, evaluate_candidate
from nvtrader_pipelines.runs.run_tables import replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, PROMOTION_DECISIONS
from tests.runs.untrained import AT, EXPERIMENT

MARKET = np.random.default_rng(5).normal(0.0003, 0.01, 300)
RULES = {"steady": EqualWeight(), "still": BuyAndHold(), "trend": Momentum()}
TESTED = {"steady": 0.0, "still": 0.001}  # excess return over the market on every session


def spec(name: str, **changes: Any) -> ExperimentSpec:
    """Experiment of a rule."""
    rule = {"name": name, "agent": RULES.get(name, EqualWeight()), "seeds": (0,)}
    return EXPERIMENT.model_copy(update={**rule, **changes})


def write_returns(store: Store, run: SealedRun, net: np.ndarray, baseline: np.ndarray = MARKET - 0.002) -> None:
    """Write net returns of the run's account and of its baseline."""
    sessions = np.datetime64("2016-01-04") + np.arange(len(net))
    parts = [
        pl.DataFrame({"session": sessions[: len(returns)], "net_return": returns}).with_columns(
            pl.lit(name).alias("policy"), pl.lit(kind).alias("kind")
        )
        for name, kind, returns in (
            (run.experiment, "ensemble", net),
            ("equal_weight", "baseline", baseline[: len(net)]),
        )
    ]
    rows = pl.concat(parts).with_columns(
        pl.lit(0.0).alias(name)
        for name in ("equity", "drawdown", "turnover", "cost", "cash", "gross", "gross_before_cap", "financing")
    )
    replace_run(store, EQUITY_CURVES, rows.with_columns(pl.lit(0, pl.Int32).alias("fold")), run)


def judge(store: Store, policy: str, by: str = "gate", at: dt.datetime = AT) -> PromotionRow:
    """Let the gate judge a policy."""
    return evaluate_candidate(store, policy, by, lambda: at)


def overrule(store: Store, policy: str, reason: str = "I know it", at: dt.datetime = AT) -> PromotionRow:
    """Activate a policy by a person's decision."""
    return activate_manually(store, policy, "ann", reason, lambda: at)


def active_name(store: Store) -> str | None:
    """Name of the active policy."""
    active = read_active(store)
    return active.policy if active else None


def decisions(store: Store) -> list[tuple]:
    """Recorded decisions."""
    return (
        store.tables.read(PROMOTION_DECISIONS)
        .select("decision", "policy", "active_policy", "passed", "activated")
        .rows()
    )
