"""Backtests of accounts: the same policy over the same sessions, as in walk-forward tests, and other references."""

from datetime import date

import numpy as np
import polars as pl

from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Fold
from nvtrader_pipelines.experiments.deployment import Deployment, deploy
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.storage.store import Store


def open_deployment(store: Store, run_id: str, policy: str) -> Deployment:
    """Open a trained policy on the current market.

    Raises:
        StorageError: if the run is unknown or not sealed, or its files changed.
        ValueError: if it cannot decide on this market.
    """
    run = store.policies.read_sealed(store.ledger.find_run(run_id).partition_key, run_id)
    spec = store.ledger.read(run.partition_key)
    return deploy(
        spec,
        store.panels.read(spec.market),
        run.as_parent,
        store.policies.read_run(run),
        run.seed_weights,
        run.thresholds,
        policy,
    )


def account_backtest(deployment: Deployment, opened: date, last: date) -> pl.DataFrame:
    """Backtest an account that opens in cash at one close and trades until another, and 1/N beside it.

    Returns:
        session, equity, net_return and equal_weight, the equity of 1/N.

    Raises:
        ValueError: if there is no session in between.
    """
    panel, one_n = deployment.panel, EqualWeight()
    start, end = (panel.index_of(np.datetime64(day)) for day in (opened, last))
    if end <= start:
        raise ValueError(
            f"a back-test needs a session after the opening, but the market has none from {opened} to {last}"
        )
    fold = Fold(0, 0, 0, start + 1, end)
    accounts = [
        PolicyAccount(deployment.policy, "ensemble", (None,), (deployment.fold_policies,)),
        PolicyAccount(one_n.kind, "baseline", (None,), (one_n.start(),)),
    ]
    curves = backtest(panel, deployment.spec.environment, [fold], accounts).equity_curves
    tested, equal = (curves.filter(pl.col("policy") == account.name) for account in accounts)
    return tested.select("session", "equity", "net_return").with_columns(equal_weight=equal["equity"])
