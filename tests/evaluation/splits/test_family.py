"""What holds of every splitter."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.splits import BacktestPaths, CombinatorialPurged, PurgedKFold, WalkForward
from tests.evaluation.splits.calendars import days, folds_or_reject, splitters, weekdays

LENGTHS = st.integers(2500, 4000)


@pytest.mark.slow
@settings(max_examples=60)
@given(splitter=splitters(), n_sessions=LENGTHS)
def test_training_ends_a_purge_before_testing(splitter, n_sessions):
    for fold in folds_or_reject(splitter, weekdays(n_sessions=n_sessions)):
        ends, starts = np.array(fold.train)[:, 1], np.array(fold.test)[:, 0]
        waits = starts[None, :] - ends[:, None] - 1
        assert (waits[waits >= 0] >= splitter.purge_size).all()
        assert not set(days(fold.train)) & set(days(fold.test))


@pytest.mark.slow
@settings(max_examples=60)
@given(splitter=splitters(), n_sessions=LENGTHS)
def test_nothing_within_the_purge_and_embargo_after_a_tested_block_trains(splitter, n_sessions):
    for fold in folds_or_reject(splitter, weekdays(n_sessions=n_sessions)):
        starts, ends = np.array(fold.train)[:, 0], np.array(fold.test)[:, 1]
        waits = starts[:, None] - ends[None, :] - 1
        assert (waits[waits >= 0] >= splitter.purge_size + splitter.embargo_size).all()


@settings(max_examples=40)
@given(splitter=splitters(), n_sessions=LENGTHS)
def test_every_path_tests_every_session_of_its_blocks_once(splitter, n_sessions):
    folds = folds_or_reject(splitter, weekdays(n_sessions=n_sessions))
    paths = BacktestPaths.of(folds)
    tested = [(block.test_first, block.test_last) for block in paths.blocks]
    assert all(before[1] + 1 == after[0] for before, after in pairwise(tested))
    assert sorted({day for fold in folds for day in days(fold.test)}) == days(tested)
    for path in paths.by_path:
        assert all(block in folds[place].test for place, block in zip(path, tested, strict=True))
    used = [(place, block) for path in paths.by_path for place, block in zip(path, tested, strict=True)]
    assert len(used) == len(set(used)) == sum(len(fold.test) for fold in folds)  # no test is walked twice or left out


@pytest.mark.parametrize("splitter", [CombinatorialPurged(), PurgedKFold()], ids=lambda splitter: splitter.kind)
def test_every_session_but_the_first_is_tested(splitter):
    blocks = BacktestPaths.of(splitter.split(weekdays())).blocks
    assert (blocks[0].test_first, blocks[-1].test_last) == (1, 7999)


@pytest.mark.parametrize(
    ("splitter", "knows"), [(CombinatorialPurged(), True), (PurgedKFold(), True), (WalkForward(), False)]
)
def test_a_fold_knows_whether_it_trains_on_what_comes_after_its_tests(splitter, knows):
    folds = splitter.split(weekdays())
    assert any(fold.trains_on_the_future for fold in folds) is knows
    assert not folds[-1].trains_on_the_future  # of every splitter, the last fold tests the last sessions
