"""The verdict of a stress test: every account in every world, in one table."""

from collections.abc import Callable, Generator, Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.spec import EnvSpec
from nvtrader_pipelines.evaluation.backtest import Contestant, backtest
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio, total_return
from nvtrader_pipelines.evaluation.stress.scenario import CALM, NoWorld, StressedWorld
from nvtrader_pipelines.evaluation.verdict_tables import STRESS

Contest = Callable[[StressedWorld], Sequence[Contestant]]  # who takes part, with a policy for each of its blocks
Steps = Generator[StressedWorld | NoWorld, None, pl.DataFrame]
LEAST_SESSIONS = 63  # of a Sharpe ratio: a quarter of a year
FEW_WORLDS = 20  # or fewer: what 5 % of them are worse than lies between the two worst
REFERENCE = "equal_weight"  # the baseline that every account is compared with
VALUE, MEDIAN, FIVE_PERCENT, WORST = "value", "median", "worst_5_percent", "worst"  # value: of one world or none
STATISTICS = {MEDIAN: 0.5, FIVE_PERCENT: 0.05, WORST: 0.0}  # of several worlds: the share of them that is worse
_BAD_IF_LOW = ("total_return", "worst_session", "sharpe", "difference_to_calm", "difference_to_equal_weight")
_MEASURES = (*_BAD_IF_LOW, "max_drawdown", "turnover", "cost", "sessions_to_recover")
_WORLD = ("scenario", "first_session", "last_session", "shock_session", "n_sessions", "note")


def stress_test(
    environment: EnvSpec,
    worlds: Iterable[StressedWorld | NoWorld],
    contest: Contest,
    forgiven: tuple[type[Exception], ...] = (),
) -> pl.DataFrame:
    """The table of all worlds (`STRESS`); see `stress_steps`."""
    steps = stress_steps(environment, worlds, contest, forgiven)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def stress_steps(
    environment: EnvSpec,
    worlds: Iterable[StressedWorld | NoWorld],
    contest: Contest,
    forgiven: tuple[type[Exception], ...] = (),
) -> Steps:
    """Judge every account in every world, each opened in cash, and tell of each world; the last value is the table.

    A scenario of several worlds has one row for each statistic, and each measure is taken by itself: its median, the
    5 % of the worlds in which it is worst, and its worst. A scenario that could not be played has rows of nulls, with
    the reason as its note.

    Args:
        environment: when orders fill, how often policies decide, and what trading costs.
        worlds: as `stressed_worlds` gives them; differences to calm need the calm one.
        contest: who takes part in a world; policies learned or estimated elsewhere are opened on its panel.
        forgiven: errors for which a world counts as one that could not be played; others end the test.

    Raises:
        ValueError: if no world could be played.
    """
    judged: list[pl.DataFrame] = []
    missing: list[NoWorld] = []
    for world in worlds:
        told = world
        if not isinstance(world, NoWorld):
            try:
                judged.append(_judged(environment, world, contest(world), number=len(judged)))
            except forgiven as error:
                told = NoWorld(world.scenario, str(error))
        if isinstance(told, NoWorld):
            missing.append(told)
        yield told
    if not judged:
        reasons = "; ".join(f"{each.scenario}: {each.note}" for each in missing)
        raise ValueError(f"a stress test needs a world to be played, but found none: {reasons or 'no scenario'}")
    rows = _compared(pl.concat(judged))
    return pl.concat([_summed_up(rows), *(_not_played(rows, each) for each in missing)]).select(list(STRESS))


def summary(rows: pl.DataFrame) -> pl.DataFrame:
    """The table of all accounts but single seeds, in fewer columns and digits for a person."""
    columns = ["scenario", "statistic", "policy", *(name for name in STRESS if name in _MEASURES), "note"]
    shown = rows.filter(pl.col("kind") != "policy").select(columns)
    rounded = pl.selectors.float().round(3) + 0.0  # never -0.0
    return shown.with_columns(rounded).select(pl.all().cast(pl.String).fill_null(""))


def _judged(environment: EnvSpec, world: StressedWorld, who: Sequence[Contestant], number: int) -> pl.DataFrame:
    """A row per account of one world, with everything but the differences."""
    dearer = environment.scale_costs(world.cost_factor)
    curves = backtest(world.panel, dearer, world.blocks, who).equity_curves
    days = world.panel.sessions
    about = {
        "scenario": world.scenario,
        "number": number,
        "has_twin": world.has_twin,
        "first_session": days[world.first].item(),
        "last_session": days[world.last].item(),
        "shock_session": None if world.shock is None else days[world.shock].item(),
        "n_sessions": world.last - world.first + 1,
        "note": world.note,
    }
    accounts = curves.partition_by("policy", maintain_order=True)
    rows = [{"policy": rows["policy"][0], "kind": rows["kind"][0], **about, **_measures(rows)} for rows in accounts]
    return pl.DataFrame(rows, schema={**STRESS, "number": pl.Int64, "has_twin": pl.Boolean})


def _measures(account: pl.DataFrame) -> dict[str, float | None]:
    """What came of one account."""
    returns = account["net_return"].to_numpy()
    return {
        "total_return": total_return(returns),
        "max_drawdown": max_drawdown(returns),
        "worst_session": float(returns.min()),
        "sharpe": sharpe_ratio(returns) if len(returns) >= LEAST_SESSIONS else None,
        "turnover": float(account["turnover"].sum()),
        "cost": float(account["cost"].sum()),
        "sessions_to_recover": sessions_to_recover(returns),
    }


def sessions_to_recover(returns: NDArray[np.float64]) -> int | None:
    """Sessions from the bottom of the largest drawdown until its peak is reached again; None if it never is.

    The peak starts at 1; without any drawdown it is 0 sessions.
    """
    wealth = np.cumprod(1.0 + returns)
    peak = np.maximum(np.maximum.accumulate(wealth), 1.0)
    bottom = int(np.argmin(wealth / peak))
    again = np.flatnonzero(wealth[bottom:] >= peak[bottom])
    return int(again[0]) if len(again) else None


def _compared(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with their differences to the calm world and to 1/N."""
    calm = rows.filter(pl.col("scenario") == CALM).select("policy", "kind", calm="total_return")
    is_reference = (pl.col("policy") == REFERENCE) & (pl.col("kind") == "baseline")
    reference = rows.filter(is_reference).select("number", reference="total_return")
    joined = rows.join(calm, on=["policy", "kind"], how="left", maintain_order="left").join(
        reference, on="number", how="left", maintain_order="left"
    )
    reasons = {
        f"fewer than {LEAST_SESSIONS} sessions, so no Sharpe ratio": pl.col("sharpe").is_null(),
        "not the sessions of the calm window, so no difference to it": ~pl.col("has_twin"),
        "the calm window was not played, so no difference to it": pl.col("has_twin") & pl.col("calm").is_null(),
        f"no baseline {REFERENCE}, so no difference to it": pl.col("reference").is_null(),
    }
    notes = [pl.when(applies).then(pl.lit(reason)) for reason, applies in reasons.items()]
    own = pl.when(pl.col("note") != "").then(pl.col("note"))
    return joined.with_columns(
        difference_to_calm=pl.when(pl.col("has_twin")).then(pl.col("total_return") - pl.col("calm")),
        difference_to_equal_weight=pl.col("total_return") - pl.col("reference"),
        note=pl.concat_str(own, *notes, separator="; ", ignore_nulls=True).replace("", None),
    )


def _summed_up(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per account and scenario, or one for each statistic where it has several worlds."""
    parts = [
        worlds.group_by("policy", "kind", maintain_order=True)
        .agg(
            pl.lit(statistic).alias("statistic"),
            pl.first(*_WORLD),
            pl.len().cast(pl.Int64).alias("n_worlds"),
            *(_worse_than(measure, share) for measure in _MEASURES),
        )
        .with_columns(note=_with_caution(statistic))
        for worlds in rows.partition_by("scenario", maintain_order=True)
        for statistic, share in (STATISTICS if worlds["number"].n_unique() > 1 else {VALUE: 0.5}).items()
    ]
    return pl.concat(parts).select(list(STRESS))


def _with_caution(statistic: str) -> pl.Expr:
    """The note of a statistic, with a word on 5 % of few worlds."""
    between = pl.format("5 % of {} worlds lie between the two worst", "n_worlds")
    is_coarse = (pl.lit(statistic) == FIVE_PERCENT) & (pl.col("n_worlds") <= FEW_WORLDS)
    return pl.concat_str("note", pl.when(is_coarse).then(between), separator="; ", ignore_nulls=True).replace("", None)


def _worse_than(measure: str, share: float) -> pl.Expr:
    """The value of a measure that it is worse than in a share of the worlds; never to recover is worse than all."""
    if measure == "sessions_to_recover":
        sessions = pl.col(measure).cast(pl.Float64).fill_null(np.inf).quantile(1.0 - share, "higher")
        return pl.when(sessions.is_finite()).then(sessions).cast(pl.Int64).alias(measure)
    return pl.col(measure).quantile(share if measure in _BAD_IF_LOW else 1.0 - share, "linear")


def _not_played(rows: pl.DataFrame, missing: NoWorld) -> pl.DataFrame:
    """A row of nulls for every account, and why."""
    accounts = rows.select("policy", "kind").unique(maintain_order=True)
    why = {"scenario": missing.scenario, "statistic": VALUE, "note": missing.note}
    said = accounts.with_columns(n_worlds=0, **{name: pl.lit(text) for name, text in why.items()})
    return said.select(
        (pl.col(name) if name in said.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in STRESS.items()
    )
