"""Sealed runs in no time: networks as they begin, kept as if they had been trained."""

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
from gymnasium import spaces

from nvtrader_pipelines.envs.observations import ObservationScaler
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.plan import RunPlan, policy_card
from nvtrader_pipelines.experiments.run_store import TrainedPolicy
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.policies.agents import Fit, Learner
from nvtrader_pipelines.policies.archive import write_archive
from nvtrader_pipelines.policies.rollout_tables import TRAJECTORY
from nvtrader_pipelines.portfolio.pipeline import WeightPipeline
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import reopen_plan
from nvtrader_pipelines.runs.train_walk_judge import judge_run, walk_run
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import Ledger, RunRow
from nvtrader_pipelines.storage.panels import read_panel
from nvtrader_pipelines.storage.store import Store
from tests.runs.small_runs import EXPERIMENT as LOOSE
from tests.runs.small_runs import market_home as market_home

EXPERIMENT = LOOSE.model_copy(update={"pipeline": WeightPipeline()})  # its limits are the desk's
KEY = EXPERIMENT.partition_key
AT = dt.datetime(2024, 1, 3, tzinfo=dt.UTC)


def planned(store: Store, spec: ExperimentSpec = EXPERIMENT, **market) -> RunPlan:
    """The run of an experiment on the home's market, or on one that differs from it."""
    panel = read_panel(store.tables, spec.market.source, spec.market.symbols)
    return RunPlan.of(spec, dataclasses.replace(panel, **market))


def begun(store: Store, plan: RunPlan) -> Ledger:
    """The ledger, in which the run is under way."""
    ledger = store.ledger
    ledger.register(plan.spec)
    ledger.begin(RunRow.of(plan, "task", AT))
    return ledger


def sealed(store: Store, plan: RunPlan, lookback: int | None = None) -> SealedRun:
    """Run with a network per fold and seed, optionally with observations of another window."""
    ledger, library = begun(store, plan), store.policies
    fit = fitted(plan, lookback or plan.spec.environment.lookback)
    for key in plan.keys:
        archive = write_archive(policy_card(plan, plan.task(key), fit), fit.tensors)
        library.save(
            plan.spec.partition_key, plan.run_id, TrainedPolicy(*key, archive, pl.DataFrame(schema=TRAJECTORY))
        )
    run = library.seal(plan)
    ledger.record_policies(run.run_id, run.policies, run.sha256)
    ledger.finish(run.run_id, "done")
    return run


def fitted(plan: RunPlan, lookback: int) -> Fit:
    """What training begins with."""
    environment, agent = plan.spec.environment, plan.spec.agent
    if not isinstance(agent, Learner):
        return Fit({}, ObservationScaler(), [])
    scaler = environment.observation.fit(plan.panel, 0, 99)
    layout = environment.observation.start(plan.panel, scaler, lookback).layout
    size = environment.action.size(len(plan.panel.symbols))
    seen = spaces.Box(-np.inf, np.inf, (layout.length,), np.float32)
    network = agent.network(layout, seen, spaces.Box(-size.bound, size.bound, (size.length,), np.float32))
    return Fit(dict(network.state_dict()), scaler, [])


def judged(store: Store, plan: RunPlan) -> SealedRun:
    """Seal a run of untrained networks, walk it through its tests, and store the verdict."""
    run = sealed(store, plan)
    evaluate_sealed(store, run)
    return run


def build_evaluated_once(shared: Path) -> Home:
    """Build a home with a market and an evaluated run, once per test session; tests only read it."""
    root, done = shared / "evaluated-home", shared / "evaluated-home.txt"
    with file_lock(shared / "evaluated-home.lock"):
        if not done.exists():
            store = market_home(root)
            done.write_text(judged(store, planned(store)).run_id)
    return Home(root)


def evaluate_sealed(store: Store, run: SealedRun) -> None:
    """Walk a sealed run through its tests and store the verdict."""
    plan, launch = reopen_plan(store, run), Launch("test")
    drain(walk_run(store, plan, launch))
    drain(judge_run(store, plan, launch))
