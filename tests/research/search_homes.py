"""Homes with a market of eight names on which searches take seconds, and searches in processes that can be killed."""

import gc
import os
import pickle
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl

from nvtrader_pipelines.components.executor import Executor, outcome_of
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.research import trial_pool
from nvtrader_pipelines.research.hand_over import judged_policies, record_retrained
from nvtrader_pipelines.research.journal import LookOpened, TrialJudged, format_line
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.recorded_session import read_session
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.session_store import create_session
from nvtrader_pipelines.research.trial_pool import TrialPool
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.runs.lifecycle import Launch
from nvtrader_pipelines.runs.planning import read_plan
from nvtrader_pipelines.runs.train_walk_judge import adopt_policies, judge_run, train_run, walk_run
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.research_files import SessionFolder
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, FEATURES, RETURNS
from tests.forkserver import share_forkserver
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_sessions, synthetic_symbols

N_NAMES, N_SESSIONS = 8, 1200
PERIOD = 60  # sessions between rebalances
EVEN = 1.0 / N_NAMES  # a cap at which every portfolio is equal weight
SETTINGS = {"history": 63, "n_scenarios": 1000, "cufolio_hold_days": PERIOD}
UNTRAINABLE = {"max_position_pct": 0.1, "cash_ceiling": 0.1}  # 8 names hold 0.8, and 0.9 must be invested
CAP = {"agent.max_position_pct": {"low": EVEN, "high": 0.25}}
GRID = {"proposer": {"kind": "grid"}, "bounds": CAP, "budget": 10}
LAZY = ("optuna", "matplotlib.figure", "matplotlib.backends.backend_agg", "pyiceberg.catalog.sql", "cvxpy")
VOLATILE = {"seconds", "finished_at", "is_cached"}  # fields of a line that differ between equal sessions


class InThisProcess(Executor):
    """Calls in this process, each when its outcome is asked for."""

    def __init__(self, *shared):
        super().__init__()
        self._shared = shared

    def receive(self, timeout):
        call = self._waiting.popleft()
        _, call.returned, call.error = pickle.loads(outcome_of(call.function, *call.arguments, *self._shared))
        return call, None

    def end(self):
        pass

    def _dispatch(self):
        pass


def cufolio(cap: float = 0.2, **settings) -> ExperimentSpec:
    """Experiment whose trials take hundredths of a second."""
    agent = Cufolio(**{**SETTINGS, "max_position_pct": cap, **settings})
    return ExperimentSpec(name="quick", market=MarketChoice(source="landing"), agent=agent)


def bars_of(returns) -> pl.DataFrame:
    """Bars of closes with these returns (n, names)."""
    closes = 100.0 * np.cumprod(1.0 + returns, axis=0)
    days = [str(day) for day in synthetic_sessions(len(returns))]
    return pl.concat(
        pl.DataFrame({"symbol": [symbol] * len(days), "date": days, "open": close, "high": close * 1.003,
                      "low": close * 0.997, "close": close, "volume": 50_000.0, "adj_close": close})
        for symbol, close in zip(synthetic_symbols(returns.shape[1]), closes.T, strict=True)
    )  # fmt: skip


def land(store: Store, bars: pl.DataFrame) -> None:
    """Make the market of bars, and pin it."""
    made = market_tables(csv_file(bars))
    tables = {BARS: made.bars, CLEAN_BARS: made.clean_bars, RETURNS: made.returns, FEATURES: made.features}
    for table, rows in tables.items():
        store.tables.replace(table, rows, {})
    pin_panels(store.tables, INGESTED_AT)


def market(drift: float = 0.0, *, reverses: bool = False, n_sessions: int = N_SESSIONS):
    """Returns (n, names) of which half the names earn more by `drift`; that half changes if it reverses."""
    noise = np.random.default_rng(0).normal(0.0004, 0.01, (n_sessions, N_NAMES))
    sign = (-1.0) ** (np.arange(n_sessions) // PERIOD) if reverses else np.ones(n_sessions)
    half = np.where(np.arange(N_NAMES) < N_NAMES // 2, 0.5, -0.5)
    return noise + drift * sign[:, None] * half


def search_home(root: Path, returns) -> Home:
    """Create a home with a market and nothing else."""
    home = Home(root)
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    land(Store(home), bars_of(returns))
    return home


def new_session(home: Home, base: ExperimentSpec | None = None, **options) -> SessionFolder:
    """Create a session, by default of four random trials."""
    settings = {"eval_mode": SearchMode.CUFOLIO_ONLY, "proposer": {"kind": "random"}, "budget": 4, "workers": 1}
    session = create_session(Store(home), base or cufolio(), **{**settings, **options})
    return SessionFolder.of(home, session.session_id)


def run(home: Home, folder: SessionFolder, workers: int | None = None) -> list:
    """Run a session, and return its new lines."""
    return list(run_session(Store(home), folder.session_id, workers))


def run_to_look(home: Home, folder: SessionFolder) -> LookOpened:
    """Run a session until its look is opened, and drop it there as a kill does."""
    steps = run_session(Store(home), folder.session_id)
    look = next(line for line in steps if isinstance(line, LookOpened))
    steps.close()
    return look


def run_handed_on(store, spec):
    """Train, walk and judge a handed-on experiment as its assets do."""
    store.ledger.register(spec)
    plan, launch = read_plan(store, spec.partition_key), Launch("t")
    drain(adopt_policies(store, plan, judged_policies(store, spec), launch))
    for steps in (train_run, walk_run, judge_run):
        drain(steps(store, plan, launch))
    run = store.policies.read_latest(spec.partition_key)
    record_retrained(store, run)
    return run


def fail_jobs(monkeypatch, is_failing) -> None:
    """Let workers get settings that cannot be trained in the place of some jobs."""
    submit, spec = TrialPool.submit, cufolio(**UNTRAINABLE)

    def submit_or_fail(pool, job):
        submit(pool, replace(job, spec=spec) if is_failing(job) else job)

    monkeypatch.setattr(TrialPool, "submit", submit_or_fail)


def stable(folder: SessionFolder) -> list[dict]:
    """Lines of a journal without what differs between equal sessions."""
    return [line.model_dump(exclude=VOLATILE) for line in read_session(folder).lines]


def trials_of(folder: SessionFolder, status: str | None = None) -> list[TrialJudged]:
    """Trials of a journal, known ones left out, or those of a status."""
    trials = [line for line in read_session(folder).lines if isinstance(line, TrialJudged)]
    return [line for line in trials if (line.status == status if status else line.status != "known")]


def run_in_forks() -> None:
    """Run sessions of standard input, each line a home, an id and a number of workers, each in a fork.

    A fork writes its id and a line per event; the exit code follows.
    """
    for module in LAZY:
        import_module(module)
    share_forkserver([trial_pool.__name__, *trial_pool.SOLVER])  # these searches train nothing
    gc.freeze()
    for task in sys.stdin:
        fork = os.fork()
        if fork == 0:
            root, session_id, workers = task.split()
            _say(f"pid {os.getpid()}")
            for line in run_session(Store(Home(Path(root))), session_id, int(workers)):
                _say(format_line(line))
            os._exit(0)
        _say(f"end {os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
