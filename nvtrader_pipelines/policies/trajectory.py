"""Rows of a trajectory: observation, action and reward per decision, in training and testing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.simulation import Step

NO_TEXT = pl.lit(None, dtype=pl.String)


@dataclass(frozen=True, eq=False)
class PlayedStep:
    """One step of n portfolios, before finished episodes are reset."""

    observation: NDArray[np.float32]  # (n, length) before the action
    action: NDArray[np.floating]  # (n, A)
    t: NDArray[np.int64]  # (n,) session of the decision
    drawdown: NDArray[np.float64]  # (n,) after the step
    step: Step
    running: NDArray[np.bool_]  # (n,) portfolios whose episode had not ended before the step

    @property
    def done(self) -> NDArray[np.bool_]:
        """Portfolios whose episode ended in this step, (n,)."""
        return (self.step.terminated | self.step.truncated) & self.running


class Columns:
    """Rows collected in batches of arrays, one array per column; every batch has the same columns."""

    def __init__(self) -> None:
        self._batches: list[dict[str, NDArray[Any]]] = []
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def append(self, batch: dict[str, NDArray[Any]]) -> None:
        """Add rows; the arrays are not copied and must not change afterwards."""
        self._batches.append(batch)
        self._n_rows += len(next(iter(batch.values())))

    def frame(self) -> pl.DataFrame:
        """Return the rows in insertion order, a matrix as a column of arrays; no columns without rows."""
        if len(self._batches) > 1:
            first = self._batches[0]
            self._batches = [{name: np.concatenate([batch[name] for batch in self._batches]) for name in first}]
        return pl.DataFrame(self._batches[0] if self._batches else {})


def step_info(reward_terms: Mapping[str, pl.Expr], termination: pl.Expr = NO_TEXT, **others: pl.Expr | None) -> pl.Expr:
    """Column `info` of steps: each reward term's contribution, the kind of the termination, and others by name."""
    given = {name: column for name, column in others.items() if column is not None}
    texts = [termination.alias("termination"), *(column.alias(name) for name, column in given.items())]
    if not reward_terms:  # polars encodes no struct without fields
        return pl.lit('{"reward_terms":{},') + pl.struct(*texts).struct.json_encode().str.slice(1)
    terms = pl.struct(*(contribution.alias(kind) for kind, contribution in reward_terms.items()))
    return pl.struct(terms.alias("reward_terms"), *texts).struct.json_encode()
