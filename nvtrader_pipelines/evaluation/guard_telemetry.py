"""Telemetry of a walk's guards: how often each fired, and what it applied."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

GUARDS = pl.Struct(  # of a decision, in the column `info`; see `portfolio.pipeline.stage.Guards`
    {
        "drawdown": pl.Boolean,
        "negative_return": pl.Boolean,
        "turnover": pl.Boolean,
        "scale": pl.Float64,
        "turnover_penalty": pl.Float64,
        "n_shutdown": pl.Int64,
        "probe": pl.Float64,
    }
)


@dataclass(frozen=True)
class GuardTelemetry:
    """Figures of the guards over the decisions of one account; shares are of the decisions with guards."""

    n_decisions: int  # with guards
    drawdown_rate: float  # share in which the guard fired
    negative_return_rate: float
    turnover_rate: float
    shutdown_rate: float  # share in which a name was cut
    mean_scale: float  # of the weights
    min_scale: float
    penalty_rate: float  # share with another turnover penalty
    mean_penalty: float | None  # of these; None: the penalty was never replaced
    n_shutdown: int  # names cut, summed over decisions
    mean_gross: float | None  # of the closes; None: not given
    max_gross: float | None

    @property
    def rates(self) -> dict[str, float]:
        """Share of decisions in which each guard fired, by its name in words."""
        return {
            "drawdown": self.drawdown_rate,
            "negative return": self.negative_return_rate,
            "turnover": self.turnover_rate,
            "shutdown": self.shutdown_rate,
        }

    @property
    def has_fired(self) -> bool:
        """Whether a guard that changes weights fired in some decision."""
        return max(self.drawdown_rate, self.turnover_rate, self.shutdown_rate) > 0.0 or self.min_scale < 1.0


def decode_guards(info: pl.Series) -> pl.Series:
    """Guards of decisions from the column `info` of their rows; null where a decision has none."""
    return info.str.json_decode(pl.Struct({"guards": GUARDS})).struct.field("guards")


def guard_rows(decisions: pl.DataFrame) -> pl.DataFrame:
    """Rows of the decisions that have guards: account, step, session and guards."""
    keys = decisions.select("policy", "kind", "fold", "step", "session")
    return keys.with_columns(decode_guards(decisions["info"])).drop_nulls("guards").unnest("guards")


def guard_telemetry(info: pl.Series, gross: NDArray[np.float64] | None = None) -> GuardTelemetry:
    """Summarize the guards of an account from the column `info` of its trajectory.

    Args:
        info: of the account's decisions; those without guards do not count.
        gross: sum of absolute weights of names at each close.

    Raises:
        ValueError: if no decision has guards.
    """
    guards = decode_guards(info).drop_nulls().struct.unnest()
    if guards.is_empty():
        raise ValueError(
            f"telemetry needs decisions of a timing with guards, but none of {len(info)} has guards; choose the timing "
            "loss_shutdown, gymrl_guard or regime_guard"
        )
    rate = guards.select(
        pl.col("drawdown", "negative_return", "turnover").mean(),
        shutdown=(pl.col("n_shutdown") > 0).mean(),
        penalty=pl.col("turnover_penalty").is_not_null().mean(),
    ).row(0, named=True)
    figures = guards.select(
        mean_scale=pl.col("scale").mean(),
        min_scale=pl.col("scale").min(),
        mean_penalty=pl.col("turnover_penalty").mean(),
        n_shutdown=pl.col("n_shutdown").sum(),
    ).row(0, named=True)
    return GuardTelemetry(
        n_decisions=len(guards),
        mean_gross=None if gross is None else float(gross.mean()),
        max_gross=None if gross is None else float(gross.max()),
        **{f"{name}_rate": share for name, share in rate.items()},
        **figures,
    )
