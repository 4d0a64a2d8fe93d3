"""Folds (training and test windows), and the back-test paths through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from nvtrader_pipelines.market.panel import Window

MIN_TEST_SESSIONS = 21  # results of a shorter test are noise
HOLIDAYS = np.timedelta64(7, "D")  # most days between a window's first day and its first session


@dataclass(frozen=True)
class Fold:
    """Training and test windows as inclusive indices into the sessions.

    Each may consist of several windows with gaps: `train` lists the training spans, `test` the tested blocks. Left out,
    they are the one window from first to last.

    Raises:
        ValueError: if windows are not in time order, or training and test overlap.
    """

    index: int
    train_first: int
    train_last: int
    test_first: int
    test_last: int
    train: tuple[Window, ...] = ()
    test: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        """Fill in single windows and check for overlaps."""
        for part in ("train", "test"):
            whole = getattr(self, f"{part}_first"), getattr(self, f"{part}_last")
            windows = getattr(self, part) or (whole,)
            object.__setattr__(self, part, windows)  # frozen, but still in construction
            if (windows[0][0], windows[-1][1]) != whole or not are_in_order(windows):
                raise ValueError(f"{part} windows of fold {self.index} must be in time order in {whole}: {windows}")
        if not are_in_order(sorted((*self.train, *self.test))):
            raise ValueError(f"fold {self.index} would be tested on training sessions: {self.train}, {self.test}")

    @classmethod
    def of(cls, index: int, train: Sequence[Window], test: Sequence[Window]) -> Self:
        """Build the fold of training spans and test blocks, each in time order.

        Raises:
            ValueError: if there are none of either, or they overlap or are not in time order.
        """
        for part, windows in (("train", train), ("test", test)):
            if not windows:
                raise ValueError(f"fold {index} has no {part} window")
        return cls(index, train[0][0], train[-1][1], test[0][0], test[-1][1], tuple(train), tuple(test))

    def clip_test(self, first: int, last: int) -> "Fold | None":
        """Restrict the test to the sessions from `first` to `last`; None if none is left."""
        inside = [(max(first, start), min(last, end)) for start, end in self.test if start <= last and end >= first]
        return Fold.of(self.index, self.train, inside) if inside else None

    @property
    def trains_on_the_future(self) -> bool:
        """Whether a training span comes after a tested session."""
        return self.train_last > self.test_first

    @property
    def wait_after_tests(self) -> int | None:
        """Fewest sessions between a tested block and a later training span; None without one."""
        waits = [first - last - 1 for _, last in self.test for first, _ in self.train if first > last]
        return min(waits, default=None)


def are_in_order(windows: Sequence[Window]) -> bool:
    """Whether windows are in time order without overlaps; an empty one ends just before its first session."""
    return all(first <= last + 1 for first, last in windows) and all(a[1] < b[0] for a, b in pairwise(windows))


@dataclass(frozen=True)
class Block:
    """Sessions tested together, as inclusive indices."""

    index: int
    test_first: int
    test_last: int


@dataclass(frozen=True)
class BacktestPaths:
    """Back-test paths, each through every tested session once; one path if no folds share sessions.

    In each block, path p takes the p-th of the folds that test it.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 12.4.1.
    """

    blocks: tuple[Block, ...]  # in time order
    by_path: tuple[tuple[int, ...], ...]  # (n_paths, n_blocks) position of the fold in force

    @classmethod
    def of(cls, folds: Sequence[Fold]) -> Self:
        """Build the paths of some folds; with a single path, a block has the index of its fold.

        Raises:
            ValueError: if blocks overlap, or are tested by different numbers of folds.
        """
        testing: dict[Window, list[int]] = {}
        for position, fold in enumerate(folds):
            for block in fold.test:
                testing.setdefault(block, []).append(position)
        windows, counts = sorted(testing), {len(positions) for positions in testing.values()}
        if not are_in_order(windows) or len(counts) != 1:
            raise ValueError(f"blocks must not overlap and be tested by equally many folds, but are {windows}")
        by_path = tuple(zip(*(testing[window] for window in windows), strict=True))
        numbers = [folds[position].index for position in by_path[0]] if len(by_path) == 1 else range(len(windows))
        return cls(tuple(Block(*number) for number in zip(numbers, *zip(*windows, strict=True), strict=True)), by_path)
