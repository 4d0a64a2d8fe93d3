"""Combinatorial purged cross-validation: every choice of test blocks, and the back-test paths."""

from math import comb
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from nvtrader_pipelines.evaluation.splits.fold import Fold, Window
from nvtrader_pipelines.evaluation.splits.purging import PurgedBlocks, contiguous_spans

MAX_SPLITS = 1000  # each trains every seed


class CombinatorialPurged(PurgedBlocks):
    """Test every choice of `n_test_folds` among `n_folds` blocks, trained on the purged rest.

    C(n_folds, n_test_folds) splits make C(n_folds - 1, n_test_folds - 1) back-test paths, each over all testable
    sessions. Training includes sessions after the tests, so the paths show the spread of results, not what could have
    been earned.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 12.4; the splits are skfolio's.
    """

    kind: Literal["combinatorial_purged"] = "combinatorial_purged"
    aliases: ClassVar[tuple[str, ...]] = ("CombinatorialPurgedKFold",)
    n_folds: Annotated[int, Field(ge=3, le=100)] = 6  # blocks of equal length; the last takes the remainder
    n_test_folds: Annotated[int, Field(ge=2)] = 2  # blocks that each split tests; for one, use purged_kfold

    @model_validator(mode="after")
    def _require_training_blocks(self) -> Self:
        if self.n_test_folds >= self.n_folds:
            raise ValueError(
                f"combinatorial_purged trains on what it does not test, but n_test_folds is {self.n_test_folds} of "
                f"{self.n_folds} n_folds; lower n_test_folds"
            )
        n_splits = comb(self.n_folds, self.n_test_folds)
        if n_splits > MAX_SPLITS:
            raise ValueError(
                f"combinatorial_purged trains every split, and {self.n_test_folds} of {self.n_folds} blocks make "
                f"{n_splits}, more than {MAX_SPLITS}; lower n_folds, or move n_test_folds away from half of it"
            )
        return self

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """Folds of ascending `sessions` (T,), one per split, in lexicographic order of the tested blocks.

        Raises:
            ValueError: if the blocks are too short for a test, for purge and embargo, or leave no training sessions.
        """
        sizes = (self.n_folds, self.n_test_folds, self.purge_size, self.embargo_size)
        splits = combinatorial_splits(self.n_sessions(sessions), *sizes)
        return [self.fold(index, train, test) for index, (train, test) in enumerate(splits)]


def combinatorial_splits(
    n_sessions: int, n_folds: int, n_test_folds: int, purge_size: int = 0, embargo_size: int = 0
) -> list[tuple[tuple[Window, ...], tuple[Window, ...]]]:
    """Training spans and tested blocks of each split, in lexicographic order.

    Raises:
        ValueError: from skfolio, if the sizes do not fit.
    """
    from skfolio.model_selection import CombinatorialPurgedCV  # takes seconds to import

    splitter = CombinatorialPurgedCV(n_folds, n_test_folds, purge_size, embargo_size)
    return [
        (contiguous_spans(train), tuple((int(test[0]), int(test[-1])) for test in tests))
        for train, tests in splitter.split(np.empty((n_sessions, 1)))
    ]
