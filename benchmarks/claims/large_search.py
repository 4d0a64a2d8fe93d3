"""Pieces of a search over 500 names on many machines: seconds of a trial, bytes of its market and of its result."""

import pickle
from dataclasses import fields, replace
from statistics import median
from time import process_time

import numpy as np

from benchmarks.claim import Goal, report
from benchmarks.claims.search_trials import time_trials
from nvtrader_pipelines.market.panel import MarketPanel
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.search_settings import TIMESTEPS

N_NAMES, N_TRIALS = 500, 2


def main() -> None:
    """Report the pieces that the arithmetic of a large search multiplies."""
    sample = sample_panel()
    panel = repeat_names(sample, N_NAMES)
    content = pickle.dumps(panel)
    began = process_time()
    pickle.loads(content)
    seconds = process_time() - began
    report(
        "large_search_market",
        len(content) / 1e6,
        "MB",
        Goal(value_at_most=1_000.0),
        note=f"market that a worker gets once: {N_NAMES} names, {len(panel.sessions):,} sessions, "
        f"{len(panel.feature_names)} features; a worker reads it in {seconds:.2f} s",
    )
    small, large = (
        [trial.cpu for trial in time_trials(SearchMode.PPO_ONLY, market, N_TRIALS)] for market in (sample, panel)
    )
    report(
        "large_search_trial",
        median(large),
        "s",
        Goal(ratio_at_most=N_NAMES / len(sample.symbols)),
        ratio=median(large) / median(small),
        note=f"CPU time of one thread, median of {N_TRIALS} random proposals, {min(large):.1f} to {max(large):.1f} s; "
        f"{N_NAMES} names, 8 years of validation, one training of {TIMESTEPS:,} steps and one account; ratio: to the "
        f"same proposals on {len(sample.symbols)} names ({median(small):.2f} s)",
    )


def repeat_names(panel: MarketPanel, n_names: int) -> MarketPanel:
    """Market whose names are those of another again and again."""
    n_symbols = len(panel.symbols)
    columns = np.sort(np.arange(n_names) % n_symbols)
    arrays = {
        field.name: np.ascontiguousarray(values[:, columns])
        for field in fields(panel)
        if isinstance(values := getattr(panel, field.name), np.ndarray) and values.ndim > 1
    }
    symbols = tuple(f"{panel.symbols[column]}-{number:03}" for number, column in enumerate(columns))
    return replace(panel, symbols=symbols, **arrays)


if __name__ == "__main__":
    main()
