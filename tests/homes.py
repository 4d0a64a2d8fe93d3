"""Small home folders: three synthetic names over three years, and an experiment of seconds."""

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import psutil
import yaml

from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.orchestration.definitions import build_defs
from nvtrader_pipelines.orchestration.partitions import EXPERIMENTS, RANGE_END, RANGE_START
from nvtrader_pipelines.portfolio.pipeline.stage import Guards
from nvtrader_pipelines.storage.files import file_lock
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger import LedgerRun
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.table import Table
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    BARS,
    DELIVERIES,
    EQUITY_CURVES,
    MARKET_PANEL,
    PROMOTION_DECISIONS,
    RATIO_CURVE,
    RUNS,
    SCOREBOARD,
    SCORECARDS,
    TABLES,
    TRAJECTORIES,
)
from tests.markets import synthetic_bars

DOCUMENTS = {"alphas", "workflows"}  # folders of the examples that are no experiments
EXPERIMENT_FILES = sorted(
    path for path in (Path(__file__).parents[1] / "docs/examples").rglob("*.yaml") if path.parent.name not in DOCUMENTS
)

NVTRADER = Path(sys.executable).with_name("nvtrader")
EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "market": {"source": "landing"},
    "environment": {"lookback": 5, "episode_len": 20},
    "agent": {"kind": "ppo", "n_envs": 8, "n_steps": 16, "batch_size": 128, "total_timesteps": 3072, "n_epochs": 1},
    "splitter": {"kind": "walk_forward", "train_months": 9, "test_months": 6},
    "baselines": [
        {"kind": "equal_weight"},
        {"kind": "buy_and_hold"},
        {"kind": "minimum_variance", "history": 42, "estimate_every": 126},
        {"kind": "mean_cvar", "history": 42, "estimate_every": 126},
    ],
    "seeds": [0, 1, 2],
    "report_from": "2017-01-01",
}
SPEC = ExperimentSpec.model_validate(EXPERIMENT)
KEY = SPEC.partition_key
# Its tests begin with those of EXPERIMENT, so the contest of a copied home stays the same, and so do its results.
HOLDOUT = {"kind": "holdout", "test_first": "2016-10-04"}
SWEEP: dict[str, Any] = {
    **EXPERIMENT,
    "name": "sweep",
    "agent": {**EXPERIMENT["agent"], "total_timesteps": 256},
    "splitter": HOLDOUT,
    "baselines": [{"kind": "equal_weight"}],
    "design": {"kind": "ablation", "field": "environment.turnover_cost_bps", "values": [0, 20]},
}
SWEPT = [spec.partition_key for spec in ExperimentSpec.model_validate(SWEEP).variants()]
SECRET = "correct-horse-battery-staple"  # in the environment of every command; must not appear anywhere
N_POLICIES = 9  # three folds by three seeds

VOLATILE_COLUMNS = {  # columns that differ between equal runs: times, snapshots, resource use
    BARS.name: ["ingested_at"],
    DELIVERIES.name: ["ingested_at"],
    RUNS.name: ["finished_at", "mlflow_run_id", "snapshot_ids"],
    RATIO_CURVE.name: ["finished_at"],
    SCORECARDS.name: [
        "judgement",
        "judged_at",
        "training_seconds",
        "judging_seconds",
        "latency_seconds",
        "peak_memory_bytes",
        "document",
    ],
    SCOREBOARD.name: ["judged_at"],
    PROMOTION_DECISIONS.name: ["considered_at"],
    ACTIVE_POLICY.name: ["event_id", "activated_at", "snapshot_ids"],
    MARKET_PANEL.name: [
        "built_at",
        *(f"{name}_snapshot_id" for name in ("returns", "features", "clean_bars", "bars", "series")),
    ],
}


def small_home(root: Path) -> Home:
    """Create a home with a landed CSV and an experiment, and nothing built."""
    home = Home(root)
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    synthetic_bars(n_sessions=756).write_csv(home.landing / "prices.csv")
    write_experiment(home)
    return home


def write_experiment(home: Home, file="tiny.yaml", **changes: Any) -> None:
    """Write the experiment as YAML, with some fields changed."""
    (home.experiments / file).write_text(yaml.safe_dump({**EXPERIMENT, **changes}))


def environment(home: Home) -> dict[str, str]:
    """Environment variables of a shell with this home, and one thread per library."""
    own = {"NVTRADER_HOME": str(home.root), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "SOME_TOKEN": SECRET}
    return {**{name: value for name, value in os.environ.items() if not name.startswith("DAGSTER")}, **own}


def nvtrader(home: Home, *arguments: str, command: Path = NVTRADER, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed `nvtrader`, or another command, on a home from another folder."""
    options = {"cwd": home.root.parent, "timeout": 900, "env": environment(home), **options}
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False, **options)


def build_home_once(shared: Path, command: Path) -> Home:
    """Build a home by `nvtrader materialize`, once per test session; tests only read it."""
    root, output = shared / "built-home", shared / "built-home.txt"
    with file_lock(shared / "built-home.lock"):
        if not output.exists():
            finished = nvtrader(small_home(root), "materialize", command=command)
            assert finished.returncode == 0, finished.stdout + finished.stderr
            output.write_text(finished.stdout)
    return Home(root)


def copy_home(home: Home, root: Path) -> Home:
    """Copy a home, so that a test may write it."""
    shutil.copytree(home.root, root)
    return Home(root)


def run_of(store: Store) -> LedgerRun:
    """Run of a built home's experiment."""
    return store.ledger.run(store.policies.read_latest(KEY).run_id)


def read_account(store: Store, table: Table) -> pl.DataFrame:
    """Rows of the account of a built home's run."""
    return store.tables.read(table, {"run_id": [run_of(store).run_id], "kind": ["ensemble"]})


def expose_run(home: Home) -> Store:
    """Make the run of a built home levered, with a guard that fired in every decision."""
    store = Store(home)
    info = json.dumps({"guards": Guards(drawdown=True, scale=0.5)._asdict()})
    for table, columns in {
        EQUITY_CURVES: {"gross": 1.5, "gross_before_cap": 1.6, "financing": 0.0001},
        TRAJECTORIES: {"info": pl.lit(info)},
    }.items():
        rows = read_account(store, table).with_columns(**columns)
        store.tables.replace(table, rows, {"run_id": [run_of(store).run_id], "kind": ["ensemble"]})
    return store


def run_on_terminal(home: Home, *arguments: str, command: Path) -> tuple[int, str]:
    """Run the command on a terminal and return its exit code and its output."""
    controller, terminal = pty.openpty()
    settings = {**environment(home), "TERM": "xterm", "COLUMNS": "200"}
    with subprocess.Popen([command, *arguments], env=settings, stdin=terminal, stdout=terminal, stderr=terminal) as run:
        os.close(terminal)
        shown = bytearray()
        while part := _read(controller):
            shown += part
    os.close(controller)
    return run.returncode, shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the process has closed it
        return b""


def build_sweep_once(shared: Path, command: Path, built: Home) -> Home:
    """Run an ablation of two short trainings on a terminal in a copy of a built home, once per test session.

    Tests may add replays and forward runs to it; its training runs are only read.
    """
    root, output = shared / "swept-home", shared / "swept-home.txt"
    with file_lock(shared / "swept-home.lock"):
        if not output.exists():
            home = copy_home(built, root)
            (home.experiments / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
            code, shown = run_on_terminal(home, "experiments", "run", "sweep", "--no-judge", command=command)
            assert code == 0, shown
            output.write_text(shown)
    return Home(root)


def run_job(
    home: Home,
    job: str,
    instance: dg.DagsterInstance,
    overrides: Mapping[str, Any] | None = None,
    ops: Mapping[str, Any] | None = None,
    **options: Any,
) -> dg.ExecuteInProcessResult:
    """Run a job in this process; a failure is not raised."""
    job_def = build_defs(overrides, home).resolve_job_def(job)
    quiet = {"loggers": {"console": {"config": {"level": "CRITICAL"}}}, "ops": dict(ops or {})}
    return job_def.execute_in_process(instance=instance, run_config=quiet, raise_on_error=False, **options)


def run_market(home: Home, instance: dg.DagsterInstance, **options: Any) -> dg.ExecuteInProcessResult:
    """Run the market job over the years of the small home at once; each year costs events of every asset."""
    return run_job(home, "market", instance, tags={RANGE_START: "2015", RANGE_END: "2018"}, **options)


def register_experiments(home: Home, instance: dg.DagsterInstance, specs: Sequence[ExperimentSpec] = (SPEC,)) -> None:
    """Register experiments and add their partitions."""
    keys = [Store(home).ledger.register(spec) for spec in specs]
    instance.add_dynamic_partitions(EXPERIMENTS.name or "", keys)


def check_outcomes(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    """Map "asset:check" to whether the check passed."""
    checks = result.get_asset_check_evaluations()
    return {f"{each.asset_key.to_user_string()}:{each.check_name}": each.passed for each in checks}


def materialized_assets(result: dg.ExecuteInProcessResult) -> set[str]:
    """Assets materialized by a run."""
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events() if event.asset_key}


def step_errors(result: dg.ExecuteInProcessResult) -> str:
    """Errors of the failed steps of a run, for messages of assertions."""
    failures = result.filter_events(lambda event: event.is_step_failure)
    return "\n".join(event.step_failure_data.error.to_string() for event in failures if event.step_failure_data.error)


def table_contents(home: Home) -> dict[str, pl.DataFrame]:
    """Read all tables, sorted, without columns that differ between equal runs."""
    store = Store(home)
    frames = {table.name: store.tables.read(table).drop(VOLATILE_COLUMNS.get(table.name, [])) for table in TABLES}
    return {
        name: frame.sort([column for column, kind in frame.schema.items() if not kind.is_nested()])
        for name, frame in frames.items()
    }


def session_processes(leader: int) -> list[psutil.Process]:
    """List the living processes of an operating system session."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and os.getsid(process.pid) == leader:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found
