"""Results of a policy's seeds by task: one test window of one market."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.prudex.record import ENSEMBLE, SEED
from nvtrader_pipelines.evaluation.prudex.reliability import seed_deviation
from nvtrader_pipelines.evaluation.prudex.return_windows import WINDOWS
from nvtrader_pipelines.evaluation.statistics import value_or_reason

Task = tuple[Any, ...]  # market, first and last session of a test window
_TASK = ["source", "first", "last"]


@dataclass(frozen=True, eq=False)
class PolicyRuns:
    """Values of one policy's runs, by task."""

    policy: str
    kind: str
    by_task: Mapping[Task, NDArray[np.float64]]  # values of the seeds per task


def members(judged: pl.DataFrame) -> pl.DataFrame:
    """Assign accounts to policies as runs: an ensemble's seeds, or the account itself without seeds.

    Rows of `record.accounts` become run_id, policy and kind of each account but seeds, with member and member_kind.
    """
    owners = judged.filter(pl.col("kind") != SEED).select("run_id", "policy", "kind")
    seeds = judged.filter(pl.col("kind") == SEED).select("run_id", member="policy", member_kind="kind")
    trained = owners.filter(pl.col("kind") == ENSEMBLE).join(seeds, on="run_id")
    alone = owners.join(trained, on=["run_id", "policy", "kind"], how="anti")
    itself = alone.with_columns(member=pl.col("policy"), member_kind=pl.col("kind"))
    return pl.concat([trained, itself]).sort("kind", "policy", "run_id", "member")


def policy_runs(scored: pl.DataFrame, who: pl.DataFrame, statistic: str, column: str) -> list[PolicyRuns]:
    """Values of one statistic by policy; policies without any are left out.

    Scored are rows of WINDOWS with the column, which is ranked or score; `who` are rows of `members`.
    """
    rows = (
        scored.filter(pl.col("statistic") == statistic, pl.col("fold").is_not_null(), pl.col(column).is_not_null())
        .rename({"policy": "member", "kind": "member_kind"})
        .join(who, on=["run_id", "member", "member_kind"])
        .group_by("kind", "policy", *_TASK)
        .agg(pl.col(column).sort_by("member"))
        .sort("kind", "policy", *_TASK)
    )
    return [
        PolicyRuns(str(policy), str(kind), _by_task(own, column))
        for (kind, policy), own in rows.partition_by("kind", "policy", as_dict=True, maintain_order=True).items()
    ]


def seed_windows(windows: pl.DataFrame, who: pl.DataFrame) -> pl.DataFrame:
    """Rows of WINDOWS: deviation of total return over seeds, per policy and test window."""
    task = ["run_id", "source", "policy", "kind", "fold", "first", "last"]
    of_seeds = (
        windows.filter(pl.col("statistic") == "total_return", pl.col("fold").is_not_null())
        .rename({"policy": "member", "kind": "member_kind"})
        .join(who, on=["run_id", "member", "member_kind"])
        .group_by(task)
        .agg(pl.col("value").sort_by("member"))
        .sort(task)
    )
    rows = [
        (*key, "seed_deviation", *value_or_reason(partial(seed_deviation, np.array(values))), False)
        for *key, values in of_seeds.rows()
    ]
    return pl.DataFrame(rows, schema=WINDOWS, orient="row")


def comparable(runs: list[PolicyRuns]) -> tuple[list[PolicyRuns], list[Task]]:
    """Largest group of policies with common tasks, and these tasks; more policies win over more tasks."""
    sets = [frozenset(run.by_task) for run in runs]
    best = max(set(sets), key=lambda tasks: (sum(tasks <= other for other in sets), len(tasks), sorted(tasks)))
    return [run for run, own in zip(runs, sets, strict=True) if best <= own], sorted(best)


def _by_task(rows: pl.DataFrame, column: str) -> dict[Task, NDArray[np.float64]]:
    keys = rows.select(_TASK).rows()
    return {key: np.array(values, dtype=np.float64) for key, values in zip(keys, rows[column].to_list(), strict=True)}
