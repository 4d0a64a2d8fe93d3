"""Validation of 50 trials over 8,300 sessions: inference, overfitting and intervals."""

from datetime import UTC, datetime, timedelta
from statistics import median
from time import process_time

import numpy as np
import polars as pl

from benchmarks.claim import Goal, report
from nvtrader_pipelines.evaluation.sharpe.ratio_curve import sharpe_ratio_curve
from nvtrader_pipelines.evaluation.trial_validation import ValidationSettings, validate_sources
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK

N_TRIALS, N_SESSIONS, N_ROUNDS = 50, 8_300, 3
BASELINES = ("anchor", "buy_and_hold", "equal_weight", "minimum_variance")


def trials() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Runs as in the ledger, and the returns of each account on a common market."""
    generator = np.random.default_rng(0)
    days = np.busday_offset(np.datetime64("1990-01-02"), np.arange(N_SESSIONS)).tolist()
    market = generator.normal(0.0004, 0.011, N_SESSIONS)
    names = [f"{i:016x}" for i in range(N_TRIALS)]
    frames = [
        pl.DataFrame({"session": days, "net_return": market + generator.normal(0.0, 0.003, N_SESSIONS)}).with_columns(
            run_id=pl.lit(name), policy=pl.lit(policy), kind=pl.lit("baseline" if policy in BASELINES else "ensemble")
        )
        for name in names
        for policy in ("ppo", *BASELINES)
    ]
    finished = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=i) for i in range(N_TRIALS)]
    runs = pl.DataFrame({"run_id": names, "source": "sample", "experiment": "ppo", "finished_at": finished})
    return runs.with_columns(validation_only=pl.lit(value=False)), pl.concat(frames)


def no_searches() -> pl.DataFrame:
    """Search trials of a home without a search."""
    texts = dict.fromkeys(("session_id", "spec_hash", "status", "source"), pl.String)
    days = dict.fromkeys(("validation_from", "sealed_from"), pl.Date)
    numbers = {"trial_id": pl.Int64, "sharpe": pl.Float64, "max_drawdown": pl.Float64}
    times = {"finished_at": pl.Datetime("us", "UTC")}
    return pl.DataFrame(schema={**texts, **days, **numbers, **times, "net_returns": pl.List(pl.Float64)})


def verdicts(runs: pl.DataFrame, curves: pl.DataFrame) -> pl.DataFrame:
    """Verdict of each run over all sessions, with the columns its curve needs."""
    return runs.select(
        "run_id",
        kind=pl.lit("ensemble"),
        period=pl.lit("all"),
        first_session=pl.lit(curves["session"].min()),
        last_session=pl.lit(curves["session"].max()),
        sharpe=pl.lit(0.5),
        sharpe_low=pl.lit(0.1),
        sharpe_high=pl.lit(0.9),
        max_drawdown=pl.lit(0.3),
    )


def main() -> None:
    """Report the time of the validation and of the deflated curve of the same runs."""
    runs, curves = trials()
    evaluations, settings = verdicts(runs, curves), ValidationSettings()
    judged, whole, curve = (
        validate_sources(runs, curves, evaluations, ALL_NEW_YORK, settings),
        [],
        [],
    )  # and loads what is lazy
    for _ in range(N_ROUNDS):
        start = process_time()
        judged = validate_sources(runs, curves, evaluations, ALL_NEW_YORK, settings)
        whole.append(process_time() - start)
        start = process_time()
        hashed = runs.with_columns(spec_hash=pl.lit("0"))
        sharpe_ratio_curve(hashed, evaluations, runs, curves, no_searches(), ALL_NEW_YORK)
        curve.append(process_time() - start)
    if judged.trials["deflated_sharpe"].null_count() or judged.overfitting["note"].null_count() < 3:
        raise AssertionError("every trial must have a deflated Sharpe ratio and every contest a probability")
    size = f"{N_TRIALS} runs of {1 + len(BASELINES)} accounts over {N_SESSIONS:,} sessions, from their rows"
    note = (
        f"CPU time of all threads, median of {N_ROUNDS}; {size}, against zero, the best baseline and the anchor: "
        f"{settings.intervals.n_draws:,} stationary bootstraps, {judged.overfitting['n_combinations'][0]:,} halves of "
        f"{settings.n_blocks} blocks, {settings.n_sign_draws:,} random signs, 100 regressions with robust errors"
    )
    report("validation_50x8300", median(whole), "s", Goal(value_at_most=20.0), note=note)
    note = f"CPU time of all threads, median of {N_ROUNDS}; {size}, each run deflated for those before it"
    report("deflated_curve_50x8300", median(curve), "s", Goal(value_at_most=20.0), note=note)


if __name__ == "__main__":
    main()
