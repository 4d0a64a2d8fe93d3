"""Use cases of a run: train, walk, judge, replay, forward, stress; each yields its progress."""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import date

import polars as pl

from nvtrader_pipelines.evaluation.backtest import BacktestRecord
from nvtrader_pipelines.experiments.plan import FoldSeed, RunPlan
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.runtime import RunSteps, Runtime
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.stress_run import StressRun, standard_stress_test, stressed_accounts
from nvtrader_pipelines.policies.acceleration import keep_compiled
from nvtrader_pipelines.policies.archive import read_card
from nvtrader_pipelines.policies.learned import require_same_market
from nvtrader_pipelines.runs.lifecycle import Launch, now, record_run
from nvtrader_pipelines.runs.planning import find_sealed_run, read_forward_plan, read_replay_plan
from nvtrader_pipelines.runs.run_tables import JUDGEMENT_STARTS
from nvtrader_pipelines.runs.stored_run import RunWriter, Tracker
from nvtrader_pipelines.storage.panels import read_series
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import RETURNS
from nvtrader_pipelines.storage.training_curve_file import append_point

Window = tuple[date, date]
Track = Callable[[RunPlan], AbstractContextManager[Tracker]]


def train_run(store: Store, plan: RunPlan, launch: Launch, tracker: Tracker | None = None) -> RunSteps:
    """Train the missing policies of a run and seal them; the run stays open.

    Every point of the learning curves is in the file of the run, and tracked, while it trains.
    """
    keep_compiled(store.home.compiled)
    training = _runtime(store, plan, launch, tracker=tracker).train()
    steps = _record_policies(store, plan, _log_curves(store, plan, training, tracker))
    return record_run(store, launch.row(plan), steps, closes=False)


def adopt_policies(store: Store, plan: RunPlan, archives: Mapping[FoldSeed, bytes], launch: Launch) -> RunSteps:
    """Store policies that the experiment has trained elsewhere as those of a run; the run stays open.

    Raises:
        PolicyArchiveError: if a policy was trained on other symbols or features than those of the run's market.
    """
    for content in archives.values():
        require_same_market(read_card(content), plan.panel.symbols, plan.panel.feature_names)
    return record_run(store, launch.row(plan), _runtime(store, plan, launch).adopt(archives), closes=False)


def walk_run(store: Store, plan: RunPlan, launch: Launch) -> Generator[Progress, None, BacktestRecord]:
    """Walk a sealed run through its tests and store the record; the run stays open."""
    return record_run(store, launch.row(plan), _runtime(store, plan, launch).walk(), closes=False)


def judge_run(
    store: Store, plan: RunPlan, launch: Launch, tracker: Tracker | None = None
) -> Generator[Progress, None, pl.DataFrame]:
    """Evaluate a run that was walked, store and log its verdict, close the run; return the verdict."""
    steps = _judge(_runtime(store, plan, launch, tracker=tracker))
    mlflow_run_id = tracker.mlflow_run_id if tracker else None
    return record_run(store, launch.row(plan), steps, mlflow_run_id=mlflow_run_id)


def replay_run(
    store: Store,
    run_id: str,
    launch: Launch,
    window: Window | None = None,
    *,
    pinned: bool = False,
    track: Track | None = None,
) -> RunSteps:
    """Replay the policies of a sealed run on another window, or again on its test window.

    The market is the current one, or with `pinned` that of the snapshots the run recorded. `track` opens the MLflow run
    of a plan.

    Raises:
        StorageError: if there is no such run, it is not sealed, or its recorded market is missing.
        ValueError: if the window holds sessions its policies were trained on, or none.
    """
    parent = find_sealed_run(store, run_id)
    plan = read_replay_plan(store, parent, window, parent.snapshot_ids if pinned else None)
    return _track_and_record(store, plan, launch, parent, track)


def forward_run(store: Store, run_id: str, launch: Launch, track: Track | None = None) -> RunSteps:
    """Walk the last policies of a sealed run through all sessions since its tests.

    Raises:
        StorageError: if there is no such run, or it is not sealed.
        ValueError: if the market ends before its tests.
    """
    parent = find_sealed_run(store, run_id)
    plan = read_forward_plan(store, parent)
    return _track_and_record(store, plan, launch, parent, track)


def stress_run(store: Store, plan: RunPlan, run: SealedRun, task_id: str) -> Generator[Progress, None, pl.DataFrame]:
    """Walk a run's policies and baselines through every scenario; return the verdict table.

    Raises:
        StorageError: if the snapshot of the returns is missing, or a policy is missing or was changed.
    """
    returns = store.tables.read(RETURNS, {"source": [run.source]}, snapshot_id=run.snapshot_ids[RETURNS.name])
    contest = stressed_accounts(plan, store.policies.read_run(run), run.seed_weights, run.thresholds)
    series = read_series(store.tables, run.snapshot_ids, plan.spec.market.features)
    return StressRun(plan, returns, contest, task_id, now, series).steps(standard_stress_test(plan.spec))


def replay_window(store: Store, run_id: str, days: tuple[date | None, date | None]) -> Window | None:
    """Window of a replay; open ends are those of the tests, or of the market after them.

    Raises:
        StorageError: if there is no such run, it is not sealed, or its market has no panel.
    """
    run = find_sealed_run(store, run_id)
    first, last = run.as_parent.window
    if days[0] and days[0] > last:
        last = store.panels.read(store.ledger.read(run.partition_key).market).sessions[-1].item()
    return None if days == (None, None) else (days[0] or first, days[1] or last)


def _track_and_record(store: Store, plan: RunPlan, launch: Launch, parent: SealedRun, track: Track | None) -> RunSteps:
    """Walk and judge the parent run's policies, recorded in the ledger and in MLflow."""
    with track(plan) if track else nullcontext() as tracker:
        steps = _walk_and_judge(store, plan, launch, parent, tracker)
        mlflow_run_id = tracker.mlflow_run_id if tracker else None
        yield from record_run(store, launch.row(plan), steps, mlflow_run_id=mlflow_run_id)


def _walk_and_judge(
    store: Store, plan: RunPlan, launch: Launch, parent: SealedRun, tracker: Tracker | None
) -> RunSteps:
    """Walk the parent run's policies without training, then evaluate them."""
    runtime = _runtime(store, plan, launch, parent, tracker)
    yield from _record_policies(store, plan, runtime.walk(), parent)
    yield from _judge(runtime)


def _judge(runtime: Runtime) -> Generator[Progress, None, pl.DataFrame]:
    """Report the start of the judgement, then judge."""
    run_id, message = runtime.plan.run_id, f"{runtime.plan.spec.partition_key}: {JUDGEMENT_STARTS}"
    yield Progress(task_id=runtime.task_id, run_id=run_id, stage="start", message=message, timestamp=now(), share=0.0)
    return (yield from runtime.judge())


def _runtime(
    store: Store, plan: RunPlan, launch: Launch, parent: SealedRun | None = None, tracker: Tracker | None = None
) -> Runtime:
    """Build the runtime of a plan that stores its results in this store."""
    return Runtime(plan, RunWriter(store, plan, now, parent, tracker), launch.task_id, now)


def _log_curves(store: Store, plan: RunPlan, steps: RunSteps, tracker: Tracker | None) -> RunSteps:
    """Yield the steps of a training; append its points to the file of the run, and track them."""
    live = tracker.live_curves(plan.spec.name) if tracker else nullcontext(lambda _: None)
    with live as log, closing(steps):  # workers end with the generator
        for step in steps:
            append_point(store.home, step)
            log(step)
            yield step


def _record_policies(
    store: Store, plan: RunPlan, steps: Generator[Progress, None, object], parent: SealedRun | None = None
) -> RunSteps:
    """Yield the steps, then record the digests of the policies in the ledger."""
    yield from steps
    run = RunWriter(store, plan, now, parent).run
    store.ledger.record_policies(plan.run_id, run.policies, run.sha256)
