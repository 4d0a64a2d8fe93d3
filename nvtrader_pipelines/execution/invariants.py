"""Invariants of an account's rows; each function returns the rows that violate one."""

from collections.abc import Collection

import polars as pl

from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING

STAGE_KEYS = ("account", "session", "plan_id", "step", "stage")


def invalid_stage_sums(target_weights: pl.DataFrame, levered: Collection[str] = ()) -> pl.DataFrame:
    """Stages of `portfolio.target_weights` with a sum other than one, or a negative weight of a long-only plan.

    `levered` are the ids of plans that may have short positions and debt.
    """
    stages = _stages(target_weights)
    is_negative = ~(pl.col("smallest") >= -ROUNDING) & ~pl.col("plan_id").is_in(list(levered))
    return stages.filter(~((pl.col("sum") - 1.0).abs() <= ROUNDING) | is_negative)


def limit_breaches(target_weights: pl.DataFrame, limits: RiskLimits) -> pl.DataFrame:
    """Last stages of `portfolio.target_weights` that breach a limit of a name, of gross or of net."""
    last = pl.col("step") == pl.col("step").max().over("plan_id")
    stages = _stages(target_weights.filter(last))
    return stages.filter(
        ~(pl.col("largest") <= limits.max_position + ROUNDING)
        | ~(pl.col("shortest") >= -limits.max_short - ROUNDING)
        | ~(pl.col("gross") <= limits.max_gross + ROUNDING)
        | ~pl.col("net").is_between(limits.min_net - ROUNDING, limits.max_net + ROUNDING)
    )


def missing_numbers(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Rows with a number, or an item of a list of numbers, that is missing or not finite."""
    return rows.filter(~pl.all_horizontal(_finite(name, rows.schema[name]) for name in columns))


def _finite(name: str, kind: pl.DataType) -> pl.Expr:
    """Whether a cell is a finite number, or a list of finite numbers."""
    cell = pl.col(name)
    if kind.is_nested():
        return cell.list.eval(pl.element().is_finite().fill_null(value=False)).list.all().fill_null(value=False)
    return cell.is_finite().fill_null(value=False)


def _stages(target_weights: pl.DataFrame) -> pl.DataFrame:
    """Sums and extremes of each stage's weights; a missing weight makes them NaN, which violates every bound."""
    weight = pl.col("weight").fill_null(float("nan"))
    names = weight.filter(pl.col("symbol") != CASH)
    return target_weights.group_by(STAGE_KEYS, maintain_order=True).agg(
        sum=weight.sum(),
        smallest=weight.min() + 0.0 * weight.sum(),  # the extremes of polars ignore NaN
        largest=names.abs().max() + 0.0 * weight.sum(),
        shortest=names.min() + 0.0 * weight.sum(),
        gross=names.abs().sum(),
        net=names.sum(),
    )
