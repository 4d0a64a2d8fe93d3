"""The rows of a trajectory: what was seen, done and earned at one decision, in training and in tests alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nvtrader_pipelines.envs.simulation import Step

NO_TERMINATION = pl.lit(None, dtype=pl.String)


@dataclass(frozen=True, eq=False)
class Played:
    """One step of n portfolios, before those that are done begin anew."""

    observation: NDArray[np.float32]  # (n, length) that was acted on
    action: NDArray[np.floating]  # (n, A)
    t: NDArray[np.int64]  # (n,) session of the decision
    drawdown: NDArray[np.float64]  # (n,) after the step
    step: Step
    running: NDArray[np.bool_]  # (n,) whose episode had not ended before the step

    @property
    def done(self) -> NDArray[np.bool_]:
        """Where an episode ended, (n,)."""
        return (self.step.terminated | self.step.truncated) & self.running


class Columns:
    """Rows that come in batches of arrays, one array per column; every batch has the same columns."""

    def __init__(self) -> None:
        self._batches: list[dict[str, NDArray[Any]]] = []
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def append(self, batch: dict[str, NDArray[Any]]) -> None:
        """Add rows; the arrays are kept as they are, so nobody may write to them after."""
        self._batches.append(batch)
        self._n_rows += len(next(iter(batch.values())))

    def frame(self) -> pl.DataFrame:
        """The rows in the order they came, a matrix as a column of arrays; no column where there are no rows."""
        if len(self._batches) > 1:
            first = self._batches[0]
            self._batches = [{name: np.concatenate([batch[name] for batch in self._batches]) for name in first}]
        return pl.DataFrame(self._batches[0] if self._batches else {})


def step_info(reward_terms: Mapping[str, pl.Expr], termination: pl.Expr = NO_TERMINATION) -> pl.Expr:
    """The column `info` of steps: each reward term's contribution, and the kind of the triggered termination."""
    if not reward_terms:
        return pl.lit('{"reward_terms":{},"termination":null}')
    terms = pl.struct(*(contribution.alias(kind) for kind, contribution in reward_terms.items()))
    return pl.struct(reward_terms=terms, termination=termination).struct.json_encode()
