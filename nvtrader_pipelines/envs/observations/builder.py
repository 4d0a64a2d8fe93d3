"""An observation in two parts: what depends on the market only, computed once, and what the account adds."""

import operator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

CLIP = 10.0  # observations lie in [-CLIP, CLIP]


class ObservationScaler(BaseModel):
    """What the market's columns were like over a training period; empty where nothing is fitted."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()  # standard deviations
    cuts: tuple[float, ...] = Field(default=(), exclude_if=operator.not_)  # rising; what parts the market's regimes


class AccountView(NamedTuple):
    """What the observation sees of n accounts."""

    weights: NDArray[np.float64]  # (n, N+1), cash last
    drawdown: NDArray[np.float64]  # (n,)


@dataclass(frozen=True)
class ObservationLayout:
    """Where things lie in a flat observation.

    The window of returns comes first, (lookback, n_symbols) row by row with the oldest first; then the rest.
    """

    length: int
    n_symbols: int
    lookback: int  # sessions of the window; 0 where the observation has none


class ObservationBuilder(Protocol):
    """Builds observations on one panel."""

    length: int  # columns of an observation
    layout: ObservationLayout

    def observe(self, t: NDArray[np.int64], view: AccountView) -> NDArray[np.float32]:
        """Observations (n, length) at the closes of `t` (n,)."""
        ...


def no_such_session(t: NDArray[np.int64], n_sessions: int) -> IndexError:
    """What to raise where `t` is not within the panel; compiled loops would read past its end without a word."""
    beyond = int(t[np.argmax((t < 0) | (t >= n_sessions))])
    return IndexError(
        f"sessions must be among the panel's 0..{n_sessions - 1}, but {beyond} is not; "
        "ask for sessions of the panel that the observation or action was started on"
    )
