from itertools import pairwise

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.splits import MIN_TEST_SESSIONS, BacktestPaths
from tests.contracts.families import defaults

SESSIONS = np.busday_offset("1991-01-02", np.arange(8000), roll="forward").astype("datetime64[D]")
EVERY_SPLITTER = pytest.mark.parametrize("splitter", defaults("splitter"), ids=lambda splitter: splitter.kind)


@EVERY_SPLITTER
def test_splitter_purges_between_training_and_test(splitter):
    folds = splitter.split(SESSIONS)
    assert [fold.index for fold in folds] == list(range(len(folds)))
    for fold in folds:
        assert 0 <= fold.train_first <= fold.train_last < len(SESSIONS)
        assert 1 <= fold.test_first <= fold.test_last < len(SESSIONS)  # a decision is made before the first test
        for first, last in fold.train:
            waits = [start - last - 1 for start, _ in fold.test if start > last]
            rests = [first - end - 1 for _, end in fold.test if end < first]
            assert min(waits, default=splitter.purge_size) >= splitter.purge_size > 0
            assert min(rests, default=10**6) >= splitter.purge_size + splitter.embargo_size


@EVERY_SPLITTER
def test_splitter_tests_each_session_once_per_path(splitter):
    blocks = BacktestPaths.of(splitter.split(SESSIONS)).blocks
    assert all(block.test_last - block.test_first + 1 >= MIN_TEST_SESSIONS for block in blocks)
    assert all(before.test_last + 1 == after.test_first for before, after in pairwise(blocks))
