"""Interface of observations: market columns computed once, account columns per step."""

import operator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from xxhash import xxh64_intdigest

CLIP = 10.0  # observations are in [-CLIP, CLIP]


class ObservationScaler(BaseModel):
    """Statistics of the market's columns over a training period; empty if nothing is fitted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()  # standard deviations
    cuts: tuple[float, ...] = Field(default=(), exclude_if=operator.not_)  # rising cuts between the market's regimes


class AccountView(NamedTuple):
    """Columns of n accounts that an observation includes."""

    weights: NDArray[np.float64]  # (n, N+1), cash last
    drawdown: NDArray[np.float64]  # (n,)


@dataclass(frozen=True)
class ObservationLayout:
    """Layout of a flat observation.

    The window of returns comes first, (lookback, n_symbols) row by row, oldest first; then the other columns.
    """

    length: int
    n_symbols: int
    lookback: int  # sessions of the window; 0 without one


class ObservationBuilder(Protocol):
    """Builder of observations on one panel."""

    length: int  # columns of an observation
    layout: ObservationLayout

    def observe(self, t: NDArray[np.int64], view: AccountView) -> NDArray[np.float32]:
        """Build observations (n, length) at the closes of `t` (n,)."""
        ...


def beyond_panel_error(t: NDArray[np.int64], n_sessions: int) -> IndexError:
    """Build the error for sessions beyond the panel; compiled loops do not check bounds."""
    beyond = int(t[np.argmax((t < 0) | (t >= n_sessions))])
    return IndexError(f"sessions must be among the panel's 0..{n_sessions - 1}, but {beyond} is not")


def observation_hashes(observations: NDArray[np.float32]) -> NDArray[np.int64]:
    """XXH64 of each observation's little-endian bytes with seed 0, as signed integers (n,)."""
    rows = np.ascontiguousarray(observations, dtype="<f4")
    return np.fromiter((xxh64_intdigest(row) for row in rows), np.uint64, len(rows)).view(np.int64)
