"""Search sessions where the answer is known, and proposers compared: `python -m scripts.search_experiments NAME`.

Sessions run in temporary homes. Results are written after each session, and an experiment that was interrupted resumes
with the sessions that are missing.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.sample_store import store_with
from nvtrader_pipelines.experiments.spec import ExperimentSpec
from nvtrader_pipelines.market.panel import MarketPanel, map_arrays
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.policies.baselines import Cufolio
from nvtrader_pipelines.research.journal import BaseJudged, SessionClosed, TrialJudged
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.session import run_session
from nvtrader_pipelines.research.session_store import create_session, session_base
from nvtrader_pipelines.storage.home import Home
from scripts.readme_results.markdown import replace_block

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "search_experiments", ROOT / "docs" / "search-experiments.md"
YEAR = 252
N_NAMES, N_SESSIONS = 6, 8 * YEAR  # of a small market, so that a trial takes a tenth of a second
VALIDATED, SEALED = 5 * YEAR, 3 * YEAR  # sessions before the end at which the two windows begin
N_REPEATS = 20  # markets of an experiment without an edge
SESSIONS_OF_SEQUENCE, N_PLANTED, N_SEEDS = 10, 5, 5
N_PLANTED_NAMES = 12
REGIME, DRIFT, NOISE = 250, 0.0018, 0.012  # mean sessions of a drift, its deviation, and that of the noise
Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """Session to run: its market, the home that it shares with others, and its options."""

    number: int
    home: int  # sessions of one home count each other's configurations and looks
    market: str
    panel: MarketPanel
    base: ExperimentSpec
    options: Row


def shuffled(sample: MarketPanel, number: int, n_names: int = N_NAMES) -> tuple[str, MarketPanel]:
    """Market of random names without anything to predict, and how it was made.

    Of even numbers, sessions are in random order; of odd ones, names too are exchanged at random in each session.
    """
    rng = np.random.default_rng(number)
    names = np.sort(rng.choice(len(sample.symbols), n_names, replace=False))
    order = rng.permutation(len(sample.sessions))[:N_SESSIONS]
    panel = map_arrays(
        sample,
        lambda array: array[order][:, names],
        sessions=sample.sessions[-N_SESSIONS:],
        symbols=tuple(sample.symbols[name] for name in names),
    )
    if number % 2 == 0:
        return "sessions shuffled", panel
    places = rng.permuted(np.tile(np.arange(n_names), (N_SESSIONS, 1)), axis=1)
    rows = np.arange(N_SESSIONS)[:, None]
    return "names shuffled too", map_arrays(panel, lambda array: array[rows, places])


def planted(sample: MarketPanel, number: int) -> MarketPanel:
    """Market of noise whose names rise and fall for a while, each by a drift that is drawn anew now and then."""
    rng = np.random.default_rng(number)
    _, panel = shuffled(sample, number, N_PLANTED_NAMES)
    shape = panel.close_returns.shape
    changes = rng.random(shape) < 1.0 / REGIME
    since = np.maximum.accumulate(np.where(changes, np.arange(N_SESSIONS)[:, None], 0), axis=0)
    drift = np.take_along_axis(rng.normal(0.0, DRIFT, shape), since, axis=0)
    return replace(panel, close_returns=drift + rng.normal(0.0, NOISE, shape), overnight_returns=None)


def false_claims(sample: MarketPanel, budget: int) -> Iterator[Run]:
    """Sessions on shuffled returns, each on a market of its own."""
    for number in range(N_REPEATS):
        market, panel = shuffled(sample, number)
        yield _small(number, number, market, panel, budget=budget, seed=number)


def sequences(sample: MarketPanel) -> Iterator[Run]:
    """Ten sessions after each other on each shuffled market, by the default and the random proposer in turns."""
    for home in range(N_REPEATS):
        market, panel = shuffled(sample, 100 + home)
        for i in range(SESSIONS_OF_SEQUENCE):
            proposer = {"kind": ("optuna", "random")[i % 2]}
            number = home * SESSIONS_OF_SEQUENCE + i
            yield _small(number, home, market, panel, budget=20, seed=i, proposer=proposer)


def planted_edges(sample: MarketPanel) -> Iterator[Run]:
    """Sessions on markets with an edge: the base must hold all names, and a higher cap lets it hold those that rise."""
    agent = Cufolio(history=126, max_position_pct=1.0 / N_PLANTED_NAMES)
    for number in range(N_PLANTED):
        yield _small(number, number, "planted", planted(sample, number), agent, budget=50, seed=number)


def proposers(sample: MarketPanel, mode: SearchMode) -> Iterator[Run]:
    """Sessions of 50 trials on the sample market by the default and the random proposer."""
    for number in range(2 * N_SEEDS):
        options = {"eval_mode": mode, "budget": 50, "seed": number // 2 + 1}
        proposer = {"kind": ("optuna", "random")[number % 2]}
        yield Run(number, number, "sample", sample, session_base(mode), options | {"proposer": proposer})


def _small(
    number: int, home: int, market: str, panel: MarketPanel, agent: Cufolio | None = None, **options: Any
) -> Run:
    """Session of `cufolio_only` that validates on two years and seals three."""
    base = session_base(SearchMode.CUFOLIO_ONLY)
    days = panel.sessions
    windows = {"validation_from": days[-VALIDATED].item(), "sealed_from": days[-SEALED].item()}
    fixed = {"eval_mode": SearchMode.CUFOLIO_ONLY, "workers": 1, **windows}
    base = base if agent is None else base.model_copy(update={"agent": agent})
    return Run(number, home, market, panel, base, fixed | options)


EXPERIMENTS: dict[str, Callable[[MarketPanel], Iterator[Run]]] = {
    "shuffled-50": lambda sample: false_claims(sample, 50),
    "shuffled-500": lambda sample: false_claims(sample, 500),
    "sequences": sequences,
    "planted": planted_edges,
    "proposers-cufolio": lambda sample: proposers(sample, SearchMode.CUFOLIO_ONLY),
    "proposers-ppo": lambda sample: proposers(sample, SearchMode.PPO_ONLY),
}


def measure(name: str, sample: MarketPanel) -> None:
    """Run the sessions of an experiment that are missing."""
    path = RESULTS / f"{name}.json"
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []
    complete = len(rows) // SESSIONS_OF_SEQUENCE * SESSIONS_OF_SEQUENCE if name == "sequences" else len(rows)
    del rows[complete:]  # a sequence needs the home of its first sessions
    RESULTS.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="search-experiments-") as folder:
        for run in EXPERIMENTS[name](sample):
            if run.number < complete:
                continue
            home = Home(Path(folder) / str(run.home))
            home.root.mkdir(exist_ok=True)
            rows.append(_run(run, home))
            path.write_text(json.dumps(rows, indent=1, default=str) + "\n")
            sys.stdout.write(f"{name} {json.dumps(rows[-1], default=str)}\n")
            sys.stdout.flush()


def _run(run: Run, home: Home) -> Row:
    """Run a session and return its figures."""
    began, store = perf_counter(), store_with(home, run.panel)
    session = create_session(store, run.base, **run.options)
    lines = list(run_session(store, session.session_id))
    base = next(line for line in lines if isinstance(line, BaseJudged))
    verdict = next(line for line in lines if isinstance(line, SessionClosed))
    trials = [line for line in lines if isinstance(line, TrialJudged) and line.status != "known"]
    return {
        "number": run.number,
        "home": run.home,
        "market": run.market,
        "proposer": session.spec.proposer.kind,
        "seed": session.spec.seed,
        "n_trials": len(trials),
        "n_configurations": trials[-1].n_configurations,
        "base_sharpe": float(np.mean(base.sharpes)),
        "best_sharpe": max(line.sharpe for line in trials if line.sharpe is not None),
        "outcome": str(verdict.outcome),
        "look": verdict.look,
        "sentence": verdict.sentence,
        "seconds": round(perf_counter() - began, 1),
    }


def render(rows_of: dict[str, list[Row]]) -> str:
    """Render the tables of all experiments that have results."""
    header = "| experiment | sessions | trials | looks | winner | improvement | not confirmed | nothing found |"
    claims = [header, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name in ("shuffled-50", "shuffled-500", "sequences", "planted"):
        rows = rows_of.get(name, [])
        markets = dict.fromkeys(row["market"] for row in rows)
        claims += [_claims_row(name, market, [row for row in rows if row["market"] == market]) for market in markets]
    parts = ["\n".join(claims)]
    if "sequences" in rows_of:
        claiming = {row["home"] for row in rows_of["sequences"] if row["outcome"] == "winner"}
        n_sequences = len(rows_of["sequences"]) // SESSIONS_OF_SEQUENCE
        parts.append(f"Sequences of ten sessions that claim a winner: {len(claiming)} of {n_sequences}.")
    parts += [_comparison(name, rows) for name, rows in rows_of.items() if name.startswith("proposers")]
    return "\n\n".join(parts)


def _claims_row(name: str, market: str, rows: Sequence[Row]) -> str:
    outcomes = [row["outcome"] for row in rows]
    counts = [outcomes.count(each) for each in ("winner", "improvement", "not confirmed", "nothing found")]
    n_trials = sum(row["n_trials"] for row in rows)
    n_looks = sum(row["look"] is not None for row in rows)
    return f"| `{name}`, {market} | {len(rows)} | {n_trials:,} | {n_looks} | {' | '.join(map(str, counts))} |"


def _comparison(name: str, rows: Sequence[Row]) -> str:
    """Table of the best validation Sharpe ratio by seed and proposer."""
    best = {(row["seed"], row["proposer"]): row["best_sharpe"] for row in rows}
    seeds = sorted({seed for seed, _ in best if {(seed, "optuna"), (seed, "random")} <= best.keys()})
    if not seeds:
        return f"`{name}`: no seed has both proposers yet."
    table = [f"| `{name}`, best Sharpe ratio | optuna | random | base |", "|---|--:|--:|--:|"]
    base = median(row["base_sharpe"] for row in rows)
    table += [f"| seed {seed} | {best[seed, 'optuna']:.3f} | {best[seed, 'random']:.3f} | |" for seed in seeds]
    middle = [median(best[seed, kind] for seed in seeds) for kind in ("optuna", "random")]
    return "\n".join([*table, f"| median of {len(seeds)} | {middle[0]:.3f} | {middle[1]:.3f} | {base:.3f} |"])


def main(names: Sequence[str]) -> None:
    """Measure experiments, and write the page of all results."""
    for name in names:
        measure(name, sample_panel())
    found = {name: RESULTS / f"{name}.json" for name in EXPERIMENTS}
    rows_of = {name: json.loads(path.read_text()) for name, path in found.items() if path.exists()}
    PAGE.write_text(replace_block(PAGE.read_text(), render(rows_of)))


if __name__ == "__main__":
    main(sys.argv[1:])
