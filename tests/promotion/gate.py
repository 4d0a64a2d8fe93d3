"""Rules before the promotion gate: their specs and returns, and calls of the gate."""

import datetime as dt
from typing import Any

import numpy as np
import polars as pl

from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight, Momentum
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.decide import activate_manually, evaluate_candidate
from nvtrader_pipelines.promotion.log import PromotionRow
from nvtrader_pipelines.runs.tables import replace_run
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, PROMOTION_DECISIONS
from tests.runs.untrained import AT, EXPERIMENT

MARKET = np.random.default_rng(5).normal(0.0003, 0.01, 300)
RULES = {"steady": EqualWeight(), "still": BuyAndHold(), "trend": Momentum()}
TESTED = {"steady": 0.0, "still": 0.001}  # what each earns more than the market on every session


def spec(name: str, **changes: Any) -> ExperimentSpec:
    """An experiment of a rule."""
    rule = {"name": name, "agent": RULES.get(name, EqualWeight()), "seeds": (0,)}
    return EXPERIMENT.model_copy(update={**rule, **changes})


def earned(store: Store, run: SealedRun, net: np.ndarray, baseline: np.ndarray = MARKET - 0.002) -> None:
    """Make the run's account and its baseline earn this."""
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
        pl.lit(0.0).alias(name) for name in ("equity", "drawdown", "turnover", "cost", "cash")
    )
    replace_run(store, EQUITY_CURVES, rows.with_columns(pl.lit(0, pl.Int32).alias("fold")), run)


def ask(store: Store, policy: str, by: str = "gate", at: dt.datetime = AT) -> PromotionRow:
    """What the gate says."""
    return evaluate_candidate(store, policy, by, lambda: at)


def say(store: Store, policy: str, reason: str = "I know it", at: dt.datetime = AT) -> PromotionRow:
    """A person decides."""
    return activate_manually(store, policy, "ann", reason, lambda: at)


def trades(store: Store) -> str | None:
    """The policy that trades."""
    active = read_active(store)
    return active.policy if active else None


def answers(store: Store) -> list[tuple]:
    """Every answer that was kept."""
    return (
        store.tables.read(PROMOTION_DECISIONS)
        .select("decision", "policy", "active_policy", "passed", "activated")
        .rows()
    )
