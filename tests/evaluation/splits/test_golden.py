"""Combinatorial purged cross-validation against other people's programs."""

from math import comb

import pytest

from nvtrader_pipelines.evaluation.splits import BacktestPaths, CombinatorialPurged, Fold
from nvtrader_pipelines.evaluation.splits.combinatorial_purged import combinatorial_splits
from nvtrader_pipelines.evaluation.splits.purging import contiguous_spans, purged_stretches
from tests.evaluation.golden import golden
from tests.evaluation.splits.calendars import days, weekdays

GOLDEN = golden("cpcv_splits")


def named(case):
    return "-".join(f"{name}_{value}" for name, value in case.items() if isinstance(value, int))


def each(cases):
    return pytest.mark.parametrize("case", cases, ids=named)


def folds_of(case):
    sizes = (case["T"], case["n_folds"], case["n_test_folds"], case["purged_size"], case["embargo_size"])
    return [Fold.of(index, train, test) for index, (train, test) in enumerate(combinatorial_splits(*sizes))]


@each(GOLDEN["skfolio"])
def test_the_splits_are_skfolios(case):
    folds = folds_of(case)
    assert len(folds) == case["n_splits"]
    found = [{"train": days(fold.train), "test": [days([block]) for block in fold.test]} for fold in folds]
    assert found == case["splits"]


@each(GOLDEN["skfolio"])
def test_the_paths_are_skfolios(case):
    folds = folds_of(case)
    paths = BacktestPaths.of(folds)
    assert len(paths.by_path) == case["n_test_paths"]
    assert [list(places) for places in zip(*paths.by_path, strict=True)] == case["recombined_paths"]
    path_of = {(place, block): p for p, path in enumerate(paths.by_path) for block, place in enumerate(path)}
    ids = [[path_of[place, block] for block in tested] for place, tested in enumerate(case["test_set_index"])]
    assert ids == case["path_ids"]


@each(GOLDEN["cross_check"]["cases"])
def test_purge_and_embargo_are_those_of_the_text(case):
    for split in case["text_rule_splits"]:
        train = purged_stretches(case["T"], contiguous_spans(split["test"]), case["label_horizon"], case["embargo"])
        assert days(train) == split["train"]


@each([case for case in GOLDEN["timeseriescv"] if case["T"] % case["n_splits"] == 0])
def test_the_splits_are_timeseriescvs_in_its_order(case):
    sizes = (case["T"], case["n_splits"], case["n_test_splits"], case["label_horizon_days"], case["embargo_days"])
    found = [{"train": days(train), "test": days(test)} for train, test in combinatorial_splits(*sizes)]
    assert found == case["splits"][::-1]


@each([case for case in GOLDEN["timeseriescv"] if case["T"] % case["n_splits"]])
def test_the_rule_is_timeseriescvs_where_its_blocks_are_others(case):
    for split in case["splits"]:
        sizes = (case["label_horizon_days"], case["embargo_days"])
        assert days(purged_stretches(case["T"], contiguous_spans(split["test"]), *sizes)) == split["train"]


def test_embargo_to_the_end_of_data_leaves_no_leak():
    case = GOLDEN["cross_check"]["cases"][-1]
    leaks = case["timeseriescv_differences"]
    assert len(leaks) == 4
    for leak in leaks:
        train = days(
            purged_stretches(case["T"], contiguous_spans(leak["test"]), case["label_horizon"], case["embargo"])
        )
        assert leak["in_ts_not_afml"] == [25, 26, 27, 28, 29]
        assert not set(leak["in_ts_not_afml"]) & set(train)
        assert all(not 0 < day - last <= case["embargo"] for day in train for last in leak["test"])


@each(GOLDEN["path_counts"])
def test_splits_and_paths_are_counted_as_in_the_text(case):
    n, k = case["n"], case["k"]
    splitter = CombinatorialPurged(n_folds=n, n_test_folds=k, purge_size=0, embargo_size=0)
    folds = splitter.split(weekdays(n_sessions=21 * n + 1))
    assert len(folds) == case["n_splits"] == comb(n, k)
    assert len(BacktestPaths.of(folds).by_path) == case["n_paths"] == k * comb(n, k) // n
