"""Purge and embargo: which sessions may train where the blocks between them are tested."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.evaluation.splits.fold import MIN_TEST_SESSIONS, Fold, Window, in_order


class PurgedBlocks(Component):
    """Splitters that divide all sessions but the first, before which nothing is decided, into blocks and test each.

    The purge keeps what is earned apart: no return, fill or label of a tested session trains. What a policy sees goes
    further back: features know up to 252 sessions before their own, so that the first inputs of a training after a test
    hold its prices, unless `purge_size` and `embargo_size` are 252 together. A run with less says so in its warnings.
    """

    n_folds: Annotated[int, Field(ge=2, le=100)] = 6  # blocks of equal length; what is left over belongs to the last
    purge_size: NonNegativeInt = 6  # sessions left out of the training on both sides of a tested block
    embargo_size: NonNegativeInt = 21  # more of them left out after it

    def n_sessions(self, sessions: NDArray[np.datetime64]) -> int:
        """How many sessions there are to divide.

        Raises:
            ValueError: if blocks of them are too short for a test, or for purge and embargo (skfolio's own limit).
        """
        kind, n_sessions = kind_of(type(self)), len(sessions) - 1
        if n_sessions < 0:
            raise ValueError(f"{kind} needs sessions, but there are none")
        length = n_sessions // self.n_folds
        if length < MIN_TEST_SESSIONS:
            raise ValueError(
                f"{kind} needs blocks of at least {MIN_TEST_SESSIONS} sessions, but {n_sessions} sessions make "
                f"{self.n_folds} blocks of {length}; lower n_folds or bring a longer history"
            )
        if self.purge_size + self.embargo_size >= length - 1:
            raise ValueError(
                f"{kind} needs purge_size and embargo_size to be less than {length - 1} together, since a block has "
                f"{length} sessions, but they are {self.purge_size} and {self.embargo_size}; lower them or n_folds"
            )
        return n_sessions

    def fold(self, index: int, train: Sequence[Window], test: Sequence[Window]) -> Fold:
        """The fold of windows counted from the second session on.

        Raises:
            ValueError: if purge and embargo leave nothing to train on.
        """
        if not train:
            raise ValueError(
                f"{kind_of(type(self))} trains on what purge_size and embargo_size leave between the tested blocks, "
                f"but split {index}, of {len(test)} of the {self.n_folds} blocks, leaves nothing of "
                f"{test[0][1] - test[0][0] + 1} sessions each with {self.purge_size} and {self.embargo_size}; lower "
                "them, n_test_folds or n_folds"
            )
        return Fold.of(index, after_the_first(train), after_the_first(test))


def equal_blocks(n_sessions: int, n_folds: int) -> tuple[Window, ...]:
    """The sessions as `n_folds` blocks of equal length; what is left over belongs to the last."""
    length = n_sessions // n_folds
    firsts = [number * length for number in range(n_folds)]
    return tuple(zip(firsts, (*(first - 1 for first in firsts[1:]), n_sessions - 1), strict=True))


def purged_stretches(
    n_sessions: int, tests: Sequence[Window], purge_size: int = 0, embargo_size: int = 0
) -> tuple[Window, ...]:
    """What is left to train on beside the tested blocks, as stretches in time order.

    What is traded at a session earns over the `purge_size` sessions after it. So no session trains whose gains reach
    into a block, and after a block none before its own last gains have ended and `embargo_size` sessions have passed.

    Raises:
        ValueError: if the blocks overlap.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 7.4.
    """
    if not in_order(tests):
        raise ValueError(f"tested blocks must be in time order and must not overlap, but they are {list(tests)}")
    free = np.ones(n_sessions, dtype=bool)
    for first, last in tests:
        free[max(first - purge_size, 0) : last + 1 + purge_size + embargo_size] = False
    return stretches(np.flatnonzero(free))


def stretches(sessions: NDArray[np.integer]) -> tuple[Window, ...]:
    """Ascending sessions as stretches without a gap."""
    parts = np.split(sessions, np.flatnonzero(np.diff(sessions) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts if len(part))


def after_the_first(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Windows counted from the second session on, as windows counted from the first."""
    return tuple((first + 1, last + 1) for first, last in windows)
