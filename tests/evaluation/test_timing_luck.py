from nvtrader_pipelines.evaluation.timing_luck import difference_range, opening_range


def test_opening_range_of_one_opening_is_unknown():
    assert opening_range([0.9]) is None
    assert opening_range([0.9, 1.1, 0.8]) == (0.8, 1.1)


def test_difference_range_pairs_equally_many_openings():
    assert difference_range([1.0, 0.5], [0.75, 0.5]) == (0.0, 0.25)
    assert difference_range([1.0, 0.5], [0.75]) == (-0.25, 0.25)
    assert difference_range([1.0], [0.75]) is None
    assert difference_range([], []) is None
