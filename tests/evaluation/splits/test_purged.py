import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.splits import CombinatorialPurged, PurgedKFold
from nvtrader_pipelines.evaluation.splits.combinatorial_purged import combinatorial_splits
from nvtrader_pipelines.evaluation.splits.purging import equal_blocks, purged_stretches
from tests.evaluation.splits.calendars import combinatorials, days, purged_kfolds, weekdays


@settings(max_examples=30)
@given(splitter=combinatorials(), n_sessions=st.integers(2200, 3000))
def test_skfolio_and_the_rule_of_the_text_agree(splitter, n_sessions):
    sizes = (splitter.purge_size, splitter.embargo_size)
    for train, test in combinatorial_splits(n_sessions, splitter.n_folds, splitter.n_test_folds, *sizes):
        assert train == purged_stretches(n_sessions, test, *sizes)
        assert set(test) <= set(equal_blocks(n_sessions, splitter.n_folds))


def test_a_purged_fold_trains_on_both_sides_of_its_test():
    folds = PurgedKFold(n_folds=4, purge_size=3, embargo_size=10).split(weekdays(n_sessions=403))
    assert [fold.test for fold in folds] == [((1, 100),), ((101, 200),), ((201, 300),), ((301, 402),)]
    assert folds[0].train == ((114, 402),)
    assert folds[1].train == ((1, 97), (214, 402))
    assert folds[3].train == ((1, 297),)


def test_the_last_block_has_what_is_left_over():
    assert equal_blocks(20, 3) == ((0, 5), (6, 11), (12, 19))


@pytest.mark.parametrize("blocks", [[(5, 9), (8, 12)], [(5, 9), (1, 3)], [(4, 1)]])
def test_overlapping_blocks_are_refused(blocks):
    with pytest.raises(ValueError):
        purged_stretches(30, blocks)


EITHER = pytest.mark.parametrize("member", [CombinatorialPurged, PurgedKFold])


@EITHER
def test_too_few_sessions_are_refused(member):
    with pytest.raises(ValueError):
        member().split(weekdays(n_sessions=126))


@EITHER
def test_the_shortest_calendar_that_fits_is_split(member):
    folds = member(purge_size=19, embargo_size=0).split(weekdays(n_sessions=127))
    assert all(fold.train for fold in folds)


@EITHER
@pytest.mark.parametrize("sizes", [(20, 0), (0, 20), (6, 21), (9, 11)])
def test_purge_and_embargo_longer_than_a_block_raise(member, sizes):
    splitter = member(purge_size=sizes[0], embargo_size=sizes[1])
    with pytest.raises(ValueError):
        splitter.split(weekdays(n_sessions=127))


@pytest.mark.parametrize(("sizes", "n_sessions"), [((3, 2), 91), ((6, 5), 181)])
def test_a_split_that_leaves_nothing_to_train_on_is_refused(sizes, n_sessions):
    splitter = CombinatorialPurged(n_folds=sizes[0], n_test_folds=sizes[1])
    with pytest.raises(ValueError):
        splitter.split(weekdays(n_sessions=n_sessions))


@settings(max_examples=60)
@given(splitter=combinatorials() | purged_kfolds(), n_sessions=st.integers(1, 700))
def test_every_fold_has_something_to_train_on_or_a_sentence_says_why_not(splitter, n_sessions):
    folds, said = [], ""
    try:
        folds = splitter.split(weekdays(n_sessions=n_sessions))
    except ValueError as error:
        said = str(error)
    assert bool(folds) != (said.startswith(f"{splitter.kind} ") and "lower" in said)
    assert all(days(fold.train) and days(fold.test) for fold in folds)


@pytest.mark.parametrize(
    "fields",
    [
        {"n_folds": 4, "n_test_folds": 4},
        {"n_folds": 4, "n_test_folds": 5},
        {"n_test_folds": 1},
        {"n_folds": 2},
        {"purge_size": -1},
        {"n_folds": 20, "n_test_folds": 10},
    ],
)
def test_a_combination_that_cannot_be_is_refused(fields):
    with pytest.raises(ValidationError):
        CombinatorialPurged(**fields)
