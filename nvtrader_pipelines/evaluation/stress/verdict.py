"""Verdict of a stress test: every account in every stressed market, in one table."""

from collections.abc import Callable, Generator, Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.components.arrays import takes_arrays
from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.statistics import MIN_ANNUALIZED, max_drawdown, sharpe_ratio, total_return
from nvtrader_pipelines.evaluation.step_generators import drain
from nvtrader_pipelines.evaluation.stress.scenario import UNSTRESSED, ScenarioUnavailable, StressedMarket
from nvtrader_pipelines.evaluation.verdict_tables import STRESS

AccountFactory = Callable[[StressedMarket], Sequence[PolicyAccount]]  # accounts with a policy per block
StressSteps = Generator[StressedMarket | ScenarioUnavailable, None, pl.DataFrame]
MAX_COARSE_SAMPLES = 20  # up to which the 5 % quantile lies between the two worst
REFERENCE = "equal_weight"  # baseline of the differences
VALUE, MEDIAN, FIVE_PERCENT, WORST = "value", "median", "worst_5_percent", "worst"  # value: of one market or none
STATISTICS = {MEDIAN: 0.5, FIVE_PERCENT: 0.05, WORST: 0.0}  # quantile over the markets of a scenario
_BAD_IF_LOW = ("total_return", "worst_session", "sharpe", "difference_to_unstressed", "difference_to_equal_weight")
_MEASURES = (*_BAD_IF_LOW, "max_drawdown", "turnover", "cost", "sessions_to_recover")
_COMMON = ("scenario", "first_session", "last_session", "shock_session", "n_sessions", "note")


def stress_test(
    environment: EnvSpec,
    markets: Iterable[StressedMarket | ScenarioUnavailable],
    build_accounts: AccountFactory,
    skipped_errors: tuple[type[Exception], ...] = (),
) -> pl.DataFrame:
    """Table of all scenarios (`STRESS`); see `stress_steps`."""
    return drain(stress_steps(environment, markets, build_accounts, skipped_errors))


def stress_steps(
    environment: EnvSpec,
    markets: Iterable[StressedMarket | ScenarioUnavailable],
    build_accounts: AccountFactory,
    skipped_errors: tuple[type[Exception], ...] = (),
) -> StressSteps:
    """Walk every account, opened in cash, through every market; yield each market and return the table.

    A scenario with several markets has one row per statistic (median, worst 5 %, worst), computed for each measure on
    its own. An unavailable scenario has rows of nulls, with the reason as note.

    Args:
        environment: fills, rebalancing frequency and costs.
        markets: from `apply_scenarios`; differences need the unstressed one.
        build_accounts: opens the accounts' policies on a market's panel.
        skipped_errors: errors that make a scenario unavailable; others end the test.

    Raises:
        ValueError: if no scenario could be applied.
    """
    judged: list[pl.DataFrame] = []
    unavailable: list[ScenarioUnavailable] = []
    for stressed in markets:
        outcome = stressed
        if not isinstance(stressed, ScenarioUnavailable):
            try:
                judged.append(_account_rows(environment, stressed, build_accounts(stressed), number=len(judged)))
            except skipped_errors as error:
                outcome = ScenarioUnavailable(stressed.scenario, str(error))
        if isinstance(outcome, ScenarioUnavailable):
            unavailable.append(outcome)
        yield outcome
    if not judged:
        reasons = "; ".join(f"{result.scenario}: {result.note}" for result in unavailable)
        raise ValueError(f"a stress test needs an available scenario, but found none: {reasons or 'no scenario'}")
    rows = _with_differences(pl.concat(judged))
    return pl.concat([_summarize(rows), *(_null_rows(rows, result) for result in unavailable)]).select(list(STRESS))


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """Shorten the table for people: no single seeds, fewer columns and digits."""
    columns = ["scenario", "statistic", "policy", *(name for name in STRESS if name in _MEASURES), "note"]
    shown = rows.filter(pl.col("kind") != "policy").select(columns)
    rounded = pl.selectors.float().round(3) + 0.0  # never -0.0
    return shown.with_columns(rounded).select(pl.all().cast(pl.String).fill_null(""))


def _account_rows(
    environment: EnvSpec, stressed: StressedMarket, accounts: Sequence[PolicyAccount], number: int
) -> pl.DataFrame:
    """Row per account of one market, without the differences."""
    curves = backtest(stressed.panel, environment, stressed.blocks, accounts).equity_curves
    days = stressed.panel.sessions
    common = {
        "scenario": stressed.scenario,
        "number": number,
        "has_twin": stressed.has_twin,
        "first_session": days[stressed.first].item(),
        "last_session": days[stressed.last].item(),
        "shock_session": None if stressed.shock is None else days[stressed.shock].item(),
        "n_sessions": stressed.last - stressed.first + 1,
        "note": stressed.note,
    }
    by_policy = curves.partition_by("policy", maintain_order=True)
    periods_per_year = stressed.panel.calendar.periods_per_year
    rows = [
        {"policy": rows["policy"][0], "kind": rows["kind"][0], **common, **_measures(rows, periods_per_year)}
        for rows in by_policy
    ]
    return pl.DataFrame(rows, schema={**STRESS, "number": pl.Int64, "has_twin": pl.Boolean})


def _measures(account: pl.DataFrame, periods_per_year: int) -> dict[str, float | None]:
    returns = account["net_return"].to_numpy()
    return {
        "total_return": total_return(returns),
        "max_drawdown": max_drawdown(returns),
        "worst_session": float(returns.min()),
        "sharpe": sharpe_ratio(returns, periods_per_year) if len(returns) >= MIN_ANNUALIZED else None,
        "turnover": float(account["turnover"].sum()),
        "cost": float(account["cost"].sum()),
        "sessions_to_recover": sessions_to_recover(returns),
    }


@takes_arrays
def sessions_to_recover(returns: NDArray[np.float64]) -> int | None:
    """Sessions from the bottom of the largest drawdown back to its peak; None if it is never reached.

    The peak starts at 1; 0 sessions without a drawdown.
    """
    wealth = np.cumprod(1.0 + returns)
    peak = np.maximum(np.maximum.accumulate(wealth), 1.0)
    bottom = int(np.argmin(wealth / peak))
    again = np.flatnonzero(wealth[bottom:] >= peak[bottom])
    return int(again[0]) if len(again) else None


def _with_differences(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the differences to the unstressed market and to 1/N."""
    unstressed = rows.filter(pl.col("scenario") == UNSTRESSED).select("policy", "kind", unstressed="total_return")
    is_reference = (pl.col("policy") == REFERENCE) & (pl.col("kind") == "baseline")
    reference = rows.filter(is_reference).select("number", reference="total_return")
    joined = rows.join(unstressed, on=["policy", "kind"], how="left", maintain_order="left").join(
        reference, on="number", how="left", maintain_order="left"
    )
    reasons = {
        f"fewer than {MIN_ANNUALIZED} sessions, so no Sharpe ratio": pl.col("sharpe").is_null(),
        "not the sessions of the unstressed window, so no difference to it": ~pl.col("has_twin"),
        "the unstressed window is unavailable, so no difference to it": pl.col("has_twin")
        & pl.col("unstressed").is_null(),
        f"no baseline {REFERENCE}, so no difference to it": pl.col("reference").is_null(),
    }
    notes = [pl.when(applies).then(pl.lit(reason)) for reason, applies in reasons.items()]
    own = pl.when(pl.col("note") != "").then(pl.col("note"))
    return joined.with_columns(
        difference_to_unstressed=pl.when(pl.col("has_twin")).then(pl.col("total_return") - pl.col("unstressed")),
        difference_to_equal_weight=pl.col("total_return") - pl.col("reference"),
        note=pl.concat_str(own, *notes, separator="; ", ignore_nulls=True).replace("", None),
    )


def _summarize(rows: pl.DataFrame) -> pl.DataFrame:
    """Reduce to one row per account and scenario, or one per statistic where it has several markets."""
    parts = [
        markets.group_by("policy", "kind", maintain_order=True)
        .agg(
            pl.lit(statistic).alias("statistic"),
            pl.first(*_COMMON),
            pl.len().cast(pl.Int64).alias("n_worlds"),
            *(_quantile(measure, share) for measure in _MEASURES),
        )
        .with_columns(note=_caution(statistic))
        for markets in rows.partition_by("scenario", maintain_order=True)
        for statistic, share in (STATISTICS if markets["number"].n_unique() > 1 else {VALUE: 0.5}).items()
    ]
    return pl.concat(parts).select(list(STRESS))


def _caution(statistic: str) -> pl.Expr:
    """Note of a statistic, with a caution where 5 % of the markets is less than two."""
    between = pl.format("5 % of {} samples lie between the two worst", "n_worlds")
    is_coarse = (pl.lit(statistic) == FIVE_PERCENT) & (pl.col("n_worlds") <= MAX_COARSE_SAMPLES)
    return pl.concat_str("note", pl.when(is_coarse).then(between), separator="; ", ignore_nulls=True).replace("", None)


def _quantile(measure: str, share: float) -> pl.Expr:
    """Value of a measure that is worse in a share of the markets; never recovering counts as worst."""
    if measure == "sessions_to_recover":
        sessions = pl.col(measure).cast(pl.Float64).fill_null(np.inf).quantile(1.0 - share, "higher")
        return pl.when(sessions.is_finite()).then(sessions).cast(pl.Int64).alias(measure)
    return pl.col(measure).quantile(share if measure in _BAD_IF_LOW else 1.0 - share, "linear")


def _null_rows(rows: pl.DataFrame, unavailable: ScenarioUnavailable) -> pl.DataFrame:
    """Row of nulls per account, with the reason as note."""
    accounts = rows.select("policy", "kind").unique(maintain_order=True)
    known = {"scenario": unavailable.scenario, "statistic": VALUE, "note": unavailable.note}
    filled = accounts.with_columns(n_worlds=0, **{name: pl.lit(text) for name, text in known.items()})
    return filled.select(
        (pl.col(name) if name in filled.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in STRESS.items()
    )
