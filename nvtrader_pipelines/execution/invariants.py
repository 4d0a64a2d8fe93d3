"""What must hold of the rows of an account whatever the market did; each function gives the rows where it does not."""

import polars as pl

from nvtrader_pipelines.portfolio.cash import CASH
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from nvtrader_pipelines.portfolio.pipeline.stage import ROUNDING

OF_STAGE = ("account", "session", "plan_id", "step", "stage")


def off_sum(target_weights: pl.DataFrame) -> pl.DataFrame:
    """Stages whose weights are negative or do not sum to one.

    Args:
        target_weights: rows of `portfolio.target_weights`.
    """
    stages = _stages(target_weights)
    return stages.filter(~((pl.col("sum") - 1.0).abs() <= ROUNDING) | ~(pl.col("smallest") >= -ROUNDING))


def beyond_limits(target_weights: pl.DataFrame, limits: RiskLimits) -> pl.DataFrame:
    """Decisions whose last stage, the one that is traded, is beyond a limit of one name, of gross or of net.

    Args:
        target_weights: rows of `portfolio.target_weights`.
        limits: those in force.
    """
    last = pl.col("step") == pl.col("step").max().over("plan_id")
    stages = _stages(target_weights.filter(last))
    return stages.filter(
        ~(pl.col("largest") <= limits.max_position + ROUNDING)
        | ~(pl.col("gross") <= limits.max_gross + ROUNDING)
        | ~pl.col("net").is_between(limits.min_net - ROUNDING, limits.max_net + ROUNDING)
    )


def not_numbers(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Rows in which a number, or one of a list of numbers, is missing or not finite.

    Args:
        rows: of any table.
        columns: those that must hold numbers, or lists of them.
    """
    return rows.filter(~pl.all_horizontal(_finite(name, rows.schema[name]) for name in columns))


def _finite(name: str, kind: pl.DataType) -> pl.Expr:
    """True where the cell is a finite number, or a list of such."""
    cell = pl.col(name)
    known = cell.list.eval(pl.element().is_finite().fill_null(value=False)).list.all() if kind.is_nested() else None
    return (cell.is_finite() if known is None else known).fill_null(value=False)


def _stages(target_weights: pl.DataFrame) -> pl.DataFrame:
    """Sums of each stage's weights; a weight that is not known makes them NaN, which no bound holds for."""
    weight = pl.col("weight").fill_null(float("nan"))
    names = weight.filter(pl.col("symbol") != CASH)
    return target_weights.group_by(OF_STAGE, maintain_order=True).agg(
        sum=weight.sum(),
        smallest=weight.min() + 0.0 * weight.sum(),  # polars' extremes leave NaN out
        largest=names.abs().max() + 0.0 * weight.sum(),
        gross=names.abs().sum(),
        net=names.sum(),
    )
