"""A fold: what one training sees and what its policies are tested on; and the paths that folds make together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from nvtrader_pipelines.market.panel import Window

MIN_TEST_SESSIONS = 21  # a shorter test period says nothing
HOLIDAYS = np.timedelta64(7, "D")  # a market may open this long after a window's first day


@dataclass(frozen=True)
class Fold:
    """What one training sees and what its policies are tested on; inclusive indices into the sessions.

    Either may be one window, or several with sessions between them that are left out: `train` then has the stretches
    of the training, and `test` the blocks that are tested. Not given, they are the one window from first to last.

    Raises:
        ValueError: if the windows are not in time order, or a session is both trained on and tested.
    """

    index: int
    train_first: int
    train_last: int
    test_first: int
    test_last: int
    train: tuple[Window, ...] = ()
    test: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        """Fill in what was not given, and look for overlaps."""
        for part in ("train", "test"):
            whole = getattr(self, f"{part}_first"), getattr(self, f"{part}_last")
            windows = getattr(self, part) or (whole,)
            object.__setattr__(self, part, windows)  # still being made
            if (windows[0][0], windows[-1][1]) != whole or not in_order(windows):
                raise ValueError(
                    f"the {part} windows of fold {self.index} must follow one another from session {whole[0]} to "
                    f"{whole[1]}, but they are {list(windows)}; give them in time order and without overlaps"
                )
        if not in_order(sorted((*self.train, *self.test))):
            raise ValueError(
                f"fold {self.index} would be tested on sessions it is trained on: it trains on {list(self.train)} and "
                f"tests {list(self.test)}; leave the tested sessions out of the training"
            )

    @classmethod
    def of(cls, index: int, train: Sequence[Window], test: Sequence[Window]) -> Self:
        """The fold of some training stretches and test blocks, each in time order.

        Raises:
            ValueError: if there are none of either, or what else a fold refuses.
        """
        for part, windows in (("train", train), ("test", test)):
            if not windows:
                raise ValueError(
                    f"fold {index} needs sessions to train on and to test, but has no {part} window; give it one"
                )
        return cls(index, train[0][0], train[-1][1], test[0][0], test[-1][1], tuple(train), tuple(test))

    @property
    def trains_on_the_future(self) -> bool:
        """Whether a training stretch comes after a tested session."""
        return self.train_last > self.test_first

    @property
    def wait_after_tests(self) -> int | None:
        """Fewest sessions between a tested block and a stretch trained on after it; none where none follows."""
        waits = [first - last - 1 for _, last in self.test for first, _ in self.train if first > last]
        return min(waits, default=None)


def in_order(windows: Sequence[Window]) -> bool:
    """Whether each window ends before the next begins; one that ends before its own first session is empty."""
    return all(first <= last + 1 for first, last in windows) and all(a[1] < b[0] for a, b in pairwise(windows))


@dataclass(frozen=True)
class Block:
    """Sessions that are tested together; inclusive indices."""

    index: int
    test_first: int
    test_last: int


@dataclass(frozen=True)
class BacktestPaths:
    """The ways to walk through every tested session once; folds that share no session make one.

    Path p has in each block the p-th of the folds that test it.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 12.4.1.
    """

    blocks: tuple[Block, ...]  # in time order
    by_path: tuple[tuple[int, ...], ...]  # (n_paths, n_blocks) place of the fold that decides

    @classmethod
    def of(cls, folds: Sequence[Fold]) -> Self:
        """The paths of some folds; where there is only one, a block has the number of its fold.

        Raises:
            ValueError: if two folds share a part of a block, or the blocks are tested by different numbers of folds.
        """
        testing: dict[Window, list[int]] = {}
        for place, fold in enumerate(folds):
            for block in fold.test:
                testing.setdefault(block, []).append(place)
        windows, counts = sorted(testing), {len(places) for places in testing.values()}
        if not in_order(windows) or len(counts) != 1:
            raise ValueError(
                "every tested session must be in one block, and every block be tested by as many folds, but the "
                f"blocks {windows} are tested by {[len(testing[window]) for window in windows]} folds; use the folds "
                "of one splitter"
            )
        by_path = tuple(zip(*(testing[window] for window in windows), strict=True))
        numbers = [folds[place].index for place in by_path[0]] if len(by_path) == 1 else range(len(windows))
        return cls(tuple(Block(*each) for each in zip(numbers, *zip(*windows, strict=True), strict=True)), by_path)
