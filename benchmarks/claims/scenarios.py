"""Scenarios of future sessions: milliseconds of a draw, and SciPy's kernel density beside."""

from importlib.metadata import version
from statistics import median
from time import process_time

import numpy as np
from scipy.stats import gaussian_kde

from benchmarks.claim import Goal, median_ratio, report, time_rounds
from benchmarks.fat_tailed import FloatArray, fat_tailed_returns
from nvtrader_pipelines.portfolio.scenarios import (
    CommonRandomNumbers,
    KernelDensity,
    PlainKernelDensity,
    StationaryBootstrap,
)

N_ROUNDS = 40
CASES = (  # names, scenarios, sessions, milliseconds
    (8, 5_000, 1, 0.6),
    (8, 5_000, 20, 1.6),
    (20, 5_000, 20, 3.0),
    (50, 10_000, 21, 15.0),
)


def scipy_draw(past: FloatArray, n_scenarios: int, horizon: int, seed: int) -> FloatArray:
    """Fit SciPy's density and sum draws over the sessions."""
    density = gaussian_kde(np.log1p(past).T)
    drawn = density.resample(n_scenarios * horizon, seed=seed)
    return np.expm1(drawn.reshape(len(drawn), n_scenarios, horizon).sum(axis=2).T)


def require_same_distribution(ours: FloatArray, theirs: FloatArray) -> None:
    """Raise if means or deviations differ more than chance allows.

    Raises:
        RuntimeError: if a mean differs by six standard errors, or a deviation by a tenth.
    """
    ours, theirs = np.log1p(ours), np.log1p(theirs)
    errors = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / (ours.std(axis=0) * np.sqrt(2.0 / len(ours)))
    spread = np.abs(ours.std(axis=0) / theirs.std(axis=0) - 1.0)
    if not (errors.max() < 6.0 and spread.max() < 0.1):
        raise RuntimeError(f"draws must be of one distribution, but differ by {errors.max()} errors, {spread.max()}")


def report_draw_time(n_names: int, n_scenarios: int, horizon: int, milliseconds: float) -> None:
    """Report the time of a draw of the default kernel density, and of the alternatives."""
    past, common = fat_tailed_returns(n_names), CommonRandomNumbers(0)
    spec = KernelDensity(n_scenarios=n_scenarios, horizon=horizon)
    stationary = StationaryBootstrap(n_scenarios=n_scenarios, horizon=horizon)
    seconds = time_rounds(
        {
            "kde": lambda number: spec.draw(past, np.random.default_rng(number)),
            "common": lambda _: spec.draw(past, common),
            "stationary": lambda number: stationary.draw(past, np.random.default_rng(number)),
        },
        N_ROUNDS,
        clock=process_time,
    )
    kde, again, bootstrap = (1e3 * median(seconds[name]) for name in ("kde", "common", "stationary"))
    report(
        f"scenarios_{n_names}x{n_scenarios}_{horizon}",
        kde,
        "ms",
        Goal(value_at_most=milliseconds),
        note=f"CPU time, median of {N_ROUNDS}: kernel density with mean and covariance kept, {n_names} names, "
        f"{n_scenarios} scenarios over {horizon} of 504 sessions; with common random numbers {again:.2f} ms, "
        f"stationary bootstrap {bootstrap:.2f} ms",
    )


def report_against_scipy(n_names: int, n_scenarios: int, horizon: int) -> None:
    """Report how many times longer SciPy takes to draw the same distribution."""
    past, spec = fat_tailed_returns(n_names), PlainKernelDensity(n_scenarios=n_scenarios, horizon=horizon)
    require_same_distribution(spec.draw(past, np.random.default_rng(0)), scipy_draw(past, n_scenarios, horizon, seed=1))
    seconds = time_rounds(
        {
            "ours": lambda number: spec.draw(past, np.random.default_rng(number)),
            "scipy": lambda number: scipy_draw(past, n_scenarios, horizon, number),
        },
        10,
        clock=process_time,
    )
    report(
        f"scenarios_{n_names}x{n_scenarios}_{horizon}_scipy",
        1e3 * median(seconds["ours"]),
        "ms",
        Goal(ratio_at_least=1.5 if horizon == 1 else 10.0),
        ratio=median_ratio(seconds, "scipy", "ours"),
        note=f"CPU time, plain kernel, {n_names} names, {n_scenarios} scenarios over {horizon} of 504 sessions, "
        f"against SciPy {version('scipy')} gaussian_kde fitted and resampled for each; same means and deviations",
    )


def main() -> None:
    """Report each size, and the comparison with SciPy over one and twenty sessions."""
    for case in CASES:
        report_draw_time(*case)
    report_against_scipy(8, 5_000, 1)
    report_against_scipy(8, 5_000, 20)


if __name__ == "__main__":
    main()
