"""Seconds of one trial of a search, by mode: 20 names, eight years of validation."""

from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

from benchmarks.claim import Goal, report
from nvtrader_pipelines.market.panel import MarketPanel, panel_digest
from nvtrader_pipelines.market.sample import sample_panel
from nvtrader_pipelines.research.knobs import SearchMode
from nvtrader_pipelines.research.proposers import RandomProposer
from nvtrader_pipelines.research.search_settings import TIMESTEPS
from nvtrader_pipelines.research.session_spec import FIRST_SEED, SessionSpec, default_windows
from nvtrader_pipelines.research.session_store import before_seal, session_base
from nvtrader_pipelines.research.study import Study
from nvtrader_pipelines.research.trial_judgement import TrialJob, judge

N_TRIALS, SEED = 20, 1


class Seconds(NamedTuple):
    """Time of a trial."""

    cpu: float
    wall: float
    n_periods: float  # holding periods of the optimizer in the validation; 1 without one


def main() -> None:
    """Report the time of random proposals of each mode."""
    panel = sample_panel()
    size = f"{N_TRIALS} random proposals, 20 names, 8 years of validation before 2010"
    ppo = time_trials(SearchMode.PPO_ONLY, panel)
    note = f"{_spread(ppo)}; {size}, one training of {TIMESTEPS:,} steps and one account"
    report("search_trial_ppo_only", _median(ppo), "s", Goal(value_at_most=4.0), note=note)
    late = float(np.quantile([trial.cpu for trial in ppo], 0.95))
    note = "95 % of the same trials take less; small batches and many epochs take longest"
    report("search_trial_ppo_only_95", late, "s", Goal(value_at_most=15.0), note=note)
    rule = time_trials(SearchMode.CUFOLIO_ONLY, panel)
    a_solve = median(trial.cpu / trial.n_periods for trial in rule)
    note = (
        f"{_spread(rule)}; {size}; a trial solves a program per holding period of 5 to 60 sessions, "
        f"{median(trial.n_periods for trial in rule):.0f} of them in the median, {1000.0 * a_solve:.1f} ms each"
    )
    report("search_trial_cufolio_only", 1000.0 * _median(rule), "ms", Goal(value_at_most=300.0), note=note)
    both = time_trials(SearchMode.UNIFIED, panel)
    note = f"{_spread(both)}; {size}, one training of {TIMESTEPS:,} steps and one account behind the optimizer"
    report("search_trial_unified", _median(both), "s", Goal(value_at_most=5.0), note=note)


def time_trials(mode: SearchMode, panel: MarketPanel, n_trials: int = N_TRIALS) -> list[Seconds]:
    """Time of each trial, after the base, which loads and compiles what is lazy."""
    base = session_base(mode)
    validation_from, sealed_from = default_windows(panel, base.report_from)
    spec = SessionSpec(base=base, eval_mode=mode, validation_from=validation_from, sealed_from=sealed_from)
    space, windows = spec.space(), spec.windows(panel)
    market = before_seal(panel, windows)
    digest, study = panel_digest(market), Study(RandomProposer(), space.knobs, SEED)
    n_sessions = windows.validation[1] - windows.validation[0] + 1
    trials = []
    for number in range(n_trials + 1):
        trial = space.propose(study.ask(number) if number else {})
        wall, cpu = perf_counter(), process_time()
        result = judge(TrialJob(number, trial.spec, FIRST_SEED, windows.folds), market, digest)
        if result.error:
            raise AssertionError(f"every trial must have a result, but {trial.trial.knobs} has none: {result.error}")
        n_periods = n_sessions / trial.trial.knobs.get("cufolio_hold_days", n_sessions)
        trials.append(Seconds(process_time() - cpu, perf_counter() - wall, n_periods))
    return trials[1:]


def _median(trials: list[Seconds]) -> float:
    return median(trial.cpu for trial in trials)


def _spread(trials: list[Seconds]) -> str:
    shortest, longest = (limit(trial.cpu for trial in trials) for limit in (min, max))
    wall = median(trial.wall for trial in trials)
    return f"CPU time of one thread, median, {shortest:.2f} to {longest:.2f} s; by wall clock {wall:.2f} s"


if __name__ == "__main__":
    main()
