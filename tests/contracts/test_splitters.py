from itertools import pairwise

import numpy as np
import pytest

from nvtrader_pipelines.evaluation.splits import MIN_TEST_SESSIONS
from tests.contracts.families import defaults

SESSIONS = np.busday_offset("1991-01-02", np.arange(8000), roll="forward").astype("datetime64[D]")
EVERY_SPLITTER = pytest.mark.parametrize("splitter", defaults("splitter"), ids=lambda splitter: splitter.kind)


@EVERY_SPLITTER
def test_every_splitter_trains_before_it_tests_with_a_purge_between(splitter):
    folds = splitter.split(SESSIONS)
    assert [fold.index for fold in folds] == list(range(len(folds)))
    for fold in folds:
        assert 0 <= fold.train_first <= fold.train_last
        assert fold.test_first - fold.train_last - 1 == splitter.purge_size > 0
        assert fold.test_last - fold.test_first + 1 >= MIN_TEST_SESSIONS
        assert fold.test_last < len(SESSIONS)


@EVERY_SPLITTER
def test_every_splitter_tests_a_session_at_most_once(splitter):
    for before, after in pairwise(splitter.split(SESSIONS)):
        assert before.test_last < after.test_first


@EVERY_SPLITTER
def test_every_splitter_says_that_there_are_no_sessions(splitter):
    with pytest.raises(ValueError, match="needs sessions"):
        splitter.split(SESSIONS[:0])
