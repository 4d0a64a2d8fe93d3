import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.preferences.holdout_auc import (
    calibration,
    expected_half_width,
    holdout_auc,
    n_missing,
    orient,
)

DAYS = np.arange(np.datetime64("2020-01-01"), np.datetime64("2022-01-01"))


def ids(n, seed=0):
    return [f"{value:016x}" for value in np.random.default_rng(seed).integers(0, 2**62, n)]


def area(scores, labels):
    """AUC by comparing every two pairs of different labels."""
    positive, negative = scores[labels], scores[~labels]
    return float(np.mean((positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_auc_is_the_share_of_right_orders_and_ties_count_half(seed, digits):
    generator = np.random.default_rng(seed)
    scores, labels = generator.normal(size=60).round(digits % 2), generator.random(60) < 0.5
    labels[:2] = [True, False]
    found = holdout_auc(scores, labels, np.repeat(DAYS[:30], 2))
    assert found.auc == pytest.approx(area(scores, labels))
    assert found.low <= found.auc + 0.1
    assert (found.n_pairs, found.n_decisions) == (60, 30)


def test_interval_covers_chance_for_coin_flips_and_not_for_a_judge():
    generator = np.random.default_rng(1)
    scores = generator.normal(size=800)
    flips = holdout_auc(scores, generator.random(800) < 0.5, np.repeat(DAYS[:400], 2))
    assert flips.low < 0.5 < flips.high
    assert not flips.is_above_chance
    judged = holdout_auc(scores, scores + generator.normal(size=800) > 0.0, np.repeat(DAYS[:400], 2))
    assert judged.is_above_chance
    assert judged.auc == pytest.approx(0.81, abs=0.05)


def test_policy_that_did_not_move_has_an_auc_of_one_half():
    scores, labels = orient(np.zeros(400), ids(400))
    found = holdout_auc(scores, labels, DAYS[:400])
    assert (found.auc, found.low, found.high) == (0.5, 0.5, 0.5)


def test_pairs_of_one_session_widen_the_interval():
    generator = np.random.default_rng(2)
    scores, labels = np.repeat(generator.normal(size=100), 8), np.repeat(generator.random(100) < 0.5, 8)
    together = holdout_auc(scores, labels, np.repeat(DAYS[:100], 8))
    alone = holdout_auc(scores, labels, np.resize(DAYS, 800))
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_interval_to_expect_is_that_of_the_rank_test():
    assert expected_half_width(0) == np.inf
    generator, n = np.random.default_rng(3), 300
    areas = [area(generator.normal(size=n), np.arange(n) % 2 == 0) for _ in range(400)]
    assert expected_half_width(n) == pytest.approx(1.96 * np.std(areas), rel=0.1)


def test_decisions_are_missing_until_chance_can_be_told():
    assert n_missing(0) == n_missing(10) + 10
    assert n_missing(10_000) == 0
    needed = n_missing(0)
    assert expected_half_width(needed) / 1.96 * (1.96 + 0.8416) == pytest.approx(0.05, rel=1e-2)


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError):
        holdout_auc(np.ones(3), np.ones(3, np.bool_), DAYS[:3])


def test_calibrated_scores_are_as_often_right_as_predicted():
    generator = np.random.default_rng(4)
    scores = generator.normal(size=20_000)
    labels = generator.random(20_000) < 1.0 / (1.0 + np.exp(-0.5 * scores))
    for row in calibration(scores, labels, 0.5):
        assert row.observed == pytest.approx(row.predicted, abs=0.02)
