"""Purge and embargo: training sessions around tested blocks."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt

from nvtrader_pipelines.components.component import Component, kind_of
from nvtrader_pipelines.evaluation.splits.fold import MIN_TEST_SESSIONS, Fold, Window, are_in_order


class PurgedBlocks(Component):
    """Base of splitters that cut all sessions but the first into blocks and test each.

    Nothing can be decided before the first session. The purge separates outcomes: no return, fill or label of a tested
    session is trained on. Features look back up to 252 sessions, so the first inputs of training after a test contain
    tested prices unless `purge_size` and `embargo_size` together are 252; runs with less carry a warning.
    """

    test_last: ClassVar[None] = None  # the last session

    n_folds: Annotated[int, Field(ge=2, le=100)] = 6  # blocks of equal length; the last takes the remainder
    purge_size: NonNegativeInt = 6  # sessions left out of training on both sides of a tested block
    embargo_size: NonNegativeInt = 21  # additional sessions left out after it

    def require_experiment(self, spec: Any, field: str) -> None:
        """Require an agent that learns, no held-out sessions, and a purge as long as what is decided last is held.

        Raises:
            ValueError: if the experiment has others.
        """
        kind, rebal_freq = kind_of(type(self)), spec.environment.rebal_freq
        if spec.agent.is_classical:
            raise ValueError(
                f"{field}: {kind} tells luck from training, but {spec.agent.kind} does not learn; choose walk_forward "
                "or holdout"
            )
        if spec.design.validation_sessions:
            raise ValueError(
                f"design: {spec.design.kind} holds out the end of one training window, but {kind} trains on both sides "
                "of what it tests; choose the walk_forward design, or the walk_forward or holdout splitter"
            )
        if self.purge_size < rebal_freq - 1:
            raise ValueError(
                f"{field}.purge_size: found {self.purge_size}, but what is decided last in a tested block is held "
                f"for up to {rebal_freq - 1} sessions beyond it, by environment.rebal_freq; purge as many at least"
            )

    def n_sessions(self, sessions: NDArray[np.datetime64]) -> int:
        """Number of sessions to cut into blocks.

        Raises:
            ValueError: if the blocks are too short for a test, or for purge and embargo (skfolio's limit).
        """
        kind, n_sessions = kind_of(type(self)), len(sessions) - 1
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
        """Build a fold from windows counted from the second session on.

        Raises:
            ValueError: if purge and embargo leave no training sessions.
        """
        if not train:
            raise ValueError(
                f"{kind_of(type(self))} needs training sessions between the tested blocks, but purge_size "
                f"{self.purge_size} and embargo_size {self.embargo_size} leave none in split {index}, which tests "
                f"{len(test)} of {self.n_folds} blocks of {test[0][1] - test[0][0] + 1} sessions; lower them, "
                "n_test_folds or n_folds"
            )
        return Fold.of(index, shift_by_one(train), shift_by_one(test))


def equal_blocks(n_sessions: int, n_folds: int) -> tuple[Window, ...]:
    """Cut sessions into `n_folds` blocks of equal length; the last takes the remainder."""
    length = n_sessions // n_folds
    firsts = [number * length for number in range(n_folds)]
    return tuple(zip(firsts, (*(first - 1 for first in firsts[1:]), n_sessions - 1), strict=True))


def purged_stretches(
    n_sessions: int, tests: Sequence[Window], purge_size: int = 0, embargo_size: int = 0
) -> tuple[Window, ...]:
    """Training spans beside the tested blocks, in time order.

    A trade earns over the `purge_size` sessions after it. So sessions whose gains reach into a block are left out, and
    after a block those until its last gains have ended and `embargo_size` sessions have passed.

    Raises:
        ValueError: if the blocks overlap.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 7.4.
    """
    if not are_in_order(tests):
        raise ValueError(f"tested blocks must be in time order without overlaps, got {list(tests)}")
    free = np.ones(n_sessions, dtype=bool)
    for first, last in tests:
        free[max(first - purge_size, 0) : last + 1 + purge_size + embargo_size] = False
    return contiguous_spans(np.flatnonzero(free))


def contiguous_spans(sessions: NDArray[np.integer]) -> tuple[Window, ...]:
    """Group ascending sessions into contiguous spans."""
    parts = np.split(sessions, np.flatnonzero(np.diff(sessions) > 1) + 1)
    return tuple((int(part[0]), int(part[-1])) for part in parts if len(part))


def shift_by_one(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Convert windows counted from the second session on into windows counted from the first."""
    return tuple((first + 1, last + 1) for first, last in windows)
