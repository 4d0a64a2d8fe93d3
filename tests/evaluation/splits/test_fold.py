import pytest

from nvtrader_pipelines.evaluation.splits import BacktestPaths, Fold


def test_a_fold_of_one_window_each_needs_no_more_than_their_ends():
    fold = Fold(3, 0, 33, 40, 62)
    assert (fold.train, fold.test) == (((0, 33),), ((40, 62),))
    assert fold == Fold.of(3, [(0, 33)], [(40, 62)])


def test_a_fold_of_several_windows_goes_from_the_first_to_the_last():
    fold = Fold.of(1, [(0, 9), (30, 50)], [(10, 14), (60, 70)])
    assert (fold.train_first, fold.train_last, fold.test_first, fold.test_last) == (0, 50, 10, 70)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ([(0, 40)], [(40, 60)]),
        ([(0, 60)], [(20, 30)]),
        ([(20, 30)], [(0, 60)]),
        ([(0, 9), (30, 50)], [(10, 30)]),
        ([], [(60, 70)]),
        ([(0, 50)], []),
    ],
)
def test_a_fold_of_overlapping_or_empty_parts_is_refused(train, test):
    with pytest.raises(ValueError):
        Fold.of(2, train, test)


@pytest.mark.parametrize("train", [[(0, 30), (20, 50)], [(20, 50), (0, 10)], [(9, 0)], [(0, 10), (9, 8)]])
def test_windows_that_overlap_or_are_out_of_order_are_refused(train):
    with pytest.raises(ValueError):
        Fold.of(0, train, [(60, 70)])


@pytest.mark.parametrize(
    ("train", "test", "wait"),
    [
        ([(0, 50)], [(60, 70)], None),
        ([(80, 90)], [(60, 70)], 9),
        ([(0, 9), (30, 50), (75, 80)], [(10, 14), (60, 70)], 4),
        ([(15, 20)], [(0, 14)], 0),
    ],
)
def test_wait_after_tests_is_the_shortest_gap_to_later_training(train, test, wait):
    assert Fold.of(0, train, test).wait_after_tests == wait


def test_windows_that_do_not_reach_the_ends_are_refused():
    with pytest.raises(ValueError):
        Fold(0, 0, 40, 50, 60, ((0, 33),))


def test_disjoint_folds_make_one_path_with_fold_indices():
    paths = BacktestPaths.of([Fold(4, 0, 33, 40, 62), Fold(7, 20, 56, 63, 99)])
    assert paths.by_path == ((0, 1),)
    assert [(block.index, block.test_first, block.test_last) for block in paths.blocks] == [(4, 40, 62), (7, 63, 99)]


@pytest.mark.parametrize(
    "folds",
    [
        [Fold(0, 0, 33, 40, 62), Fold(1, 20, 33, 60, 99)],
        [Fold(0, 0, 33, 40, 62), Fold(1, 0, 34, 40, 62), Fold(2, 0, 56, 63, 99)],
    ],
)
def test_overlapping_folds_make_no_path(folds):
    with pytest.raises(ValueError):
        BacktestPaths.of(folds)
