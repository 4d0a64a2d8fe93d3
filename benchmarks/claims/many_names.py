"""Market, walk and stress test of 500 names over 5,000 sessions, each in a process of its own."""

import resource
from collections.abc import Callable
from datetime import UTC, date, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import polars as pl

from benchmarks.claim import Goal, report
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.experiments.runtime import Runtime
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.experiments.stress_run import StressRun, standard_stress_test, stressed_accounts
from nvtrader_pipelines.market.calendar import NEW_YORK
from nvtrader_pipelines.market.cleaning import clean
from nvtrader_pipelines.market.features import compute_features
from nvtrader_pipelines.market.regimes import regime_labels
from nvtrader_pipelines.market.returns import bar_returns
from nvtrader_pipelines.policies.baselines import Momentum
from nvtrader_pipelines.runs.ingestion import ingest_market, pin_panels
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.runs.smoke_run import MemoryRunStore
from nvtrader_pipelines.service.open_home import open_store
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, DELIVERIES, FEATURES, QUARANTINE, REGIMES, RETURNS

N_NAMES, N_SESSIONS = 500, 5_000
SPEC = ExperimentSpec(name="momentum", market=MarketChoice(source="landing"), agent=Momentum())


def write_home(home: Home) -> None:
    """Write a file of daily bars per name, whose returns share a common factor."""
    home.landing.mkdir(parents=True)
    home.experiments.mkdir(parents=True)
    home.market_file.write_text("sources:\n  - kind: landing\n")
    days = NEW_YORK.sessions(date(2000, 1, 3), date(2024, 12, 31))[-N_SESSIONS:]
    generator = np.random.default_rng(0)
    common = generator.normal(0.0003, 0.01, N_SESSIONS)
    for number in range(N_NAMES):
        log_returns = generator.uniform(0.5, 1.5) * common + generator.normal(0.0, 0.015, N_SESSIONS)
        close = 100.0 * np.exp(np.cumsum(log_returns))
        open_ = close * np.exp(generator.normal(0.0, 0.005, N_SESSIONS))
        high, low = 1.001 * np.maximum(open_, close), 0.999 * np.minimum(open_, close)
        volume = np.round(generator.lognormal(14.0, 0.3, N_SESSIONS))
        bars = {"date": days, "open": open_, "high": high, "low": low, "close": close, "volume": volume}
        pl.DataFrame(bars).write_csv(home.landing / f"N{number:03}.csv", float_precision=4)


def build_market(store: Store) -> None:
    """Derive every table of the market from the landed files."""
    tables, years = store.tables, range(2000, 2025)
    ingest_market(tables, years, now())
    good, refused = clean(tables.read(BARS), tables.read(DELIVERIES), datetime.now(UTC).date())
    tables.replace_years(CLEAN_BARS, good, years)
    tables.replace_years(QUARANTINE, refused, years)
    del good
    tables.replace_years(RETURNS, bar_returns(tables.read(CLEAN_BARS)), years)
    tables.replace_years(FEATURES, compute_features(tables.read(RETURNS)), years)
    tables.replace(REGIMES, regime_labels(tables.read(RETURNS)).rows, {})
    pin_panels(tables, now())


def walk(store: Store) -> tuple[RunPlan, MemoryRunStore]:
    """Plan a run on the market, seal it without training and walk it."""
    plan, run_store = RunPlan.of(SPEC, store.panels.read(SPEC.market)), MemoryRunStore()
    runtime = Runtime(plan, run_store, "walk", now)
    drain(runtime.train())
    drain(runtime.walk())
    return plan, run_store


def stress(store: Store) -> None:
    """Play every scenario of the standard stress test."""
    plan, run_store = RunPlan.of(SPEC, store.panels.read(SPEC.market)), MemoryRunStore()
    drain(Runtime(plan, run_store, "stress", now).train())
    snapshot = plan.panel.snapshot_ids[RETURNS.name]
    returns = store.tables.read(RETURNS, {"source": [plan.panel.source]}, snapshot_id=snapshot)
    accounts = stressed_accounts(plan, run_store.archives(), run_store.seed_weights(), run_store.thresholds())
    drain(StressRun(plan, returns, accounts, "stress", now).steps(standard_stress_test(SPEC)))


STAGES: dict[str, tuple[Callable[[Store], object], float, str]] = {  # with the largest seconds
    "market": (build_market, 40.0, "from a file of bars per name to the pinned panel: every table of the market"),
    "walk": (walk, 60.0, "momentum and the four baselines through the default tests, from the tables on"),
    "stress": (stress, 60.0, "the standard stress test of the same run, from the tables on"),
}


def measure(stage: str, root: Path) -> tuple[float, float]:
    """Seconds of a stage and peak memory of this process in GB."""
    began = perf_counter()
    STAGES[stage][0](open_store(root))
    return perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Measure each stage in a process of its own on one home."""
    peaks = {}
    size = f"{N_NAMES} names over {N_SESSIONS:,} sessions"
    with TemporaryDirectory(prefix="many-names-") as folder:
        write_home(Home(Path(folder)))
        for stage, (_, most, what) in STAGES.items():
            with get_context("spawn").Pool(1) as pool:
                seconds, peaks[stage] = pool.apply(measure, (stage, Path(folder)))
            note = f"wall clock of {what}; {size}"
            report(f"many_names_{stage}", seconds, "s", Goal(value_at_most=most), note=note)
    note = f"largest resident memory of the three processes: {', '.join(f'{k} {v:.1f}' for k, v in peaks.items())} GB"
    report("many_names_memory", max(peaks.values()), "GB", Goal(value_at_most=3.0), note=f"{note}; {size}")


if __name__ == "__main__":
    main()
