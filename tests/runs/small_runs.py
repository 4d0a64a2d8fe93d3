"""Home with a market and one registered experiment that trains in seconds."""

import atexit
import datetime as dt
import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polars as pl

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.progress import Progress
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.portfolio.pipeline import RiskLimits, WeightPipeline
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import judge_run, train_run, walk_run
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTION_LOGS,
    BARS,
    CLEAN_BARS,
    EQUITY_CURVES,
    EVALUATIONS,
    FEATURES,
    RETURNS,
    REWARD_DECOMPOSITION,
    RUNS,
    TRAINING_CURVES,
    TRAJECTORIES,
)
from tests.forkserver import share_forkserver
from tests.markets import INGESTED_AT, MarketTables, csv_file, market_tables, synthetic_bars
from tests.policies.small_learners import AGENT, SPEC

EXPERIMENT = ExperimentSpec(
    name="small",
    market=MarketChoice(source="landing"),
    environment=SPEC,
    agent=AGENT.model_copy(update={"total_timesteps": 2560}),
    pipeline=WeightPipeline(risk_limits=RiskLimits(max_position=1.0)),  # nothing binds on three names
    splitter=WalkForward(train_months=6, test_months=3),
    baselines=(EqualWeight(), BuyAndHold()),
    training_sample_rate=0.2,
    report_from=dt.date(2010, 1, 1),
)
KEY = EXPERIMENT.partition_key
OF_A_RUN = (TRAJECTORIES, EQUITY_CURVES, ACTION_LOGS, REWARD_DECOMPOSITION, TRAINING_CURVES, EVALUATIONS)
N_SESSIONS = 480


def land(store: Store, n_sessions=N_SESSIONS, n_symbols=3, ended=(), calendar=NEW_YORK) -> None:
    """Make the market of the first sessions of one long history, and pin it; some symbols end after `N_SESSIONS`."""
    made = _market(n_sessions, n_symbols, tuple(ended), calendar)
    tables = {BARS: made.bars, CLEAN_BARS: made.clean_bars, RETURNS: made.returns, FEATURES: made.features}
    for table, rows in tables.items():
        store.tables.replace(table, rows, {})
    pin_panels(store.tables, INGESTED_AT)


@cache
def _market(n_sessions, n_symbols, ended, calendar) -> MarketTables:
    bars = synthetic_bars(n_sessions=600, n_symbols=n_symbols, calendar=calendar)
    days = bars["date"].unique().sort()
    has_ended = pl.col("symbol").is_in(list(ended)) & (pl.col("date") >= days[N_SESSIONS])
    landed = csv_file(bars.filter(pl.col("date").is_in(days[:n_sessions].implode()), ~has_ended))
    return market_tables(landed, calendar=calendar.name)


def small_home(root: Path) -> Store:
    """A home ready to run the experiment."""
    home = Home(root)
    home.landing.mkdir(parents=True)
    store = Store(home)
    land(store)
    Store(home).ledger.register(EXPERIMENT)
    return store


def rows_of(store: Store, run_id) -> dict[str, pl.DataFrame]:
    """Everything a run left in the tables, but when."""
    found = {}
    for table in (*OF_A_RUN, RUNS):
        rows = (
            store.tables.read(table)
            .filter(pl.col("run_id") == run_id)
            .drop("finished_at", "snapshot_ids", strict=False)
        )
        found[table.name] = rows.sort([name for name, kind in rows.schema.items() if not kind.is_nested()])
    return found


def run_whole(store: Store, key: str, launch: Launch, snapshot_ids: dict[str, int] | None = None) -> Iterator[Progress]:
    """Train, walk and judge a registered experiment, on the pinned market or at given snapshots."""
    plan = read_plan(store, key, snapshot_ids)
    for phase in (train_run, walk_run, judge_run):
        yield from phase(store, plan, launch)


def execute(home: Home, task: str) -> None:
    """Run the experiment of a home, writing each stage as a line."""
    for step in run_whole(Store(home), KEY, Launch(task)):
        sys.stdout.write(f"{step.stage}\n")
        sys.stdout.flush()


def execute_in_forks(home: Home) -> None:
    """Execute the experiment for every task on standard input, each in a fork.

    Before the stages the fork's id is written, and its exit code after them.
    """
    share_forkserver()
    gc.freeze()
    for task in sys.stdin:
        fork = os.fork()  # of a process that has imported and done nothing else, as the forkserver's are
        if fork == 0:
            sys.stdout.write(f"{os.getpid()}\n")
            execute(home, task.strip())
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])}\n")
        sys.stdout.flush()


def main() -> None:
    """Run the experiment of a home for the task of the command line or those of standard input.

    Call it by `python -c`: of a script or a module, every training worker would import all that is imported here.
    """
    place, *tasks = sys.argv[1:]
    atexit.register(gc.freeze)  # no last search for garbage, of seconds
    if tasks:
        execute(Home(Path(place)), tasks[0])
    else:
        execute_in_forks(Home(Path(place)))
