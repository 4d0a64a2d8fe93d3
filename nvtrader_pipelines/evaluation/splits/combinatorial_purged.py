"""Combinatorial purged cross-validation: every choice of test blocks, and the back-test paths they make together."""

from math import comb
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.evaluation.splits.fold import Fold, Window
from nvtrader_pipelines.evaluation.splits.purging import PurgedBlocks, stretches

MOST_SPLITS = 1000  # each is a training of every seed


class CombinatorialPurged(PurgedBlocks):
    """Every choice of `n_test_folds` among `n_folds` blocks is tested once, by training on the rest, purged.

    C(n_folds, n_test_folds) splits make C(n_folds - 1, n_test_folds - 1) back-test paths, each over all
    sessions that can be tested. Training knows what came after the tests, so the paths say how much of a result was
    luck, not what it earned.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 12.4; the splits are skfolio's.
    """

    kind: Literal["combinatorial_purged"] = "combinatorial_purged"
    n_folds: Annotated[int, Field(ge=3, le=100)] = 6  # blocks of equal length; what is left over belongs to the last
    n_test_folds: Annotated[int, Field(ge=2)] = 2  # blocks that each split tests; of one alone, see purged_kfold

    @model_validator(mode="after")
    def _there_is_something_to_train_on(self) -> Self:
        if self.n_test_folds >= self.n_folds:
            raise ValueError(
                f"combinatorial_purged trains on what it does not test, but n_test_folds is {self.n_test_folds} of "
                f"{self.n_folds} n_folds; lower n_test_folds"
            )
        n_splits = comb(self.n_folds, self.n_test_folds)
        if n_splits > MOST_SPLITS:
            raise ValueError(
                f"combinatorial_purged trains every split, and {self.n_test_folds} of {self.n_folds} blocks make "
                f"{n_splits}, more than {MOST_SPLITS}; lower n_folds, or move n_test_folds away from half of it"
            )
        return self

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """A fold for each split, in lexicographic order of the blocks tested, for ascending `sessions` (T,).

        Raises:
            ValueError: if the blocks are too short for a test, for purge and embargo, or leave nothing to train on.
        """
        sizes = (self.n_folds, self.n_test_folds, self.purge_size, self.embargo_size)
        splits = combinatorial_splits(self.n_sessions(sessions), *sizes)
        return [self.fold(index, train, test) for index, (train, test) in enumerate(splits)]


def combinatorial_splits(
    n_sessions: int, n_folds: int, n_test_folds: int, purge_size: int = 0, embargo_size: int = 0
) -> list[tuple[tuple[Window, ...], tuple[Window, ...]]]:
    """Training stretches and tested blocks of each split, in lexicographic order.

    Raises:
        ValueError: what skfolio refuses.
    """
    from skfolio.model_selection import CombinatorialPurgedCV  # seconds to import

    splitter = CombinatorialPurgedCV(n_folds, n_test_folds, purge_size, embargo_size)
    return [
        (stretches(train), tuple((int(test[0]), int(test[-1])) for test in tests))
        for train, tests in splitter.split(np.empty((n_sessions, 1)))
    ]
