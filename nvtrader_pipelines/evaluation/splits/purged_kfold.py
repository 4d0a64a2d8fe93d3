"""Purged K-fold cross-validation: every block is tested once, by training on both sides of it."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nvtrader_pipelines.evaluation.splits.fold import Fold
from nvtrader_pipelines.evaluation.splits.purging import PurgedBlocks, equal_blocks, purged_stretches


class PurgedKFold(PurgedBlocks):
    """Test each of `n_folds` blocks once, by purged and embargoed training before and after it.

    Training includes sessions after the tests, so results show robustness, not what could have been earned.

    Source: López de Prado (2018), Advances in Financial Machine Learning, 7.4. (skfolio's needs two test blocks.)
    """

    kind: Literal["purged_kfold"] = "purged_kfold"

    def split(self, sessions: NDArray[np.datetime64]) -> list[Fold]:
        """Folds of ascending `sessions` (T,), in the order of their tests.

        Raises:
            ValueError: if the blocks are too short for a test, or for purge and embargo.
        """
        n_sessions = self.n_sessions(sessions)
        blocks = equal_blocks(n_sessions, self.n_folds)
        return [
            self.fold(i, purged_stretches(n_sessions, [block], self.purge_size, self.embargo_size), [block])
            for i, block in enumerate(blocks)
        ]
