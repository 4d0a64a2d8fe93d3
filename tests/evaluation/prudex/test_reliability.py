from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_pipelines.evaluation.prudex.reliability import (
    TAUS,
    area_under_profile,
    expected_rank,
    performance_profile,
    profile_band,
    rank_distribution,
    seed_deviation,
)
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError

seeds = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=4).map(np.array)
tasks = st.lists(seeds, min_size=1, max_size=5)


def test_a_profile_by_hand():
    scores = [np.array([10.0, 60.0]), np.array([60.0, 90.0])]
    assert performance_profile(scores, np.array([0.0, 10.0, 50.0, 60.0, 90.0])) == pytest.approx(
        [1, 0.75, 0.75, 0.25, 0]
    )


@given(scores=tasks)
def test_a_profile_falls_from_the_share_above_nothing_to_none(scores):
    found = performance_profile(scores)
    assert (np.diff(found) <= 0.0).all()
    assert found[-1] == 0.0


@given(scores=tasks)
def test_the_area_under_the_profile_is_the_integral_of_it(scores):
    fine = np.linspace(0.0, 100.0, 20_001)
    integral = np.trapezoid(performance_profile(scores, fine), fine) / 100.0
    assert area_under_profile(scores) == pytest.approx(integral, abs=1e-4)


def test_a_band_of_two_seeds_is_that_of_the_four_ways_to_draw_them():
    low, high = profile_band([np.array([0.0, 100.0])], np.random.default_rng(0), np.array([50.0, 99.0]))
    assert low == pytest.approx([0.0, 0.0])  # both draws the worse seed: one way in four
    assert high == pytest.approx([1.0, 1.0])


def test_profile_band_is_stratified_by_task():
    scores = [np.full(3, 20.0), np.full(3, 80.0)]
    low, high = profile_band(scores, np.random.default_rng(0))
    assert np.array_equal(low, performance_profile(scores))
    assert np.array_equal(high, low)


@pytest.mark.slow
def test_a_band_holds_its_profile_and_is_the_same_for_the_same_seed():
    scores = list(np.random.default_rng(1).uniform(0.0, 100.0, (6, 5)))
    (low, high), again = (profile_band(scores, np.random.default_rng(2)) for _ in range(2))
    profile = performance_profile(scores)
    assert ((low <= profile) & (profile <= high)).all()
    assert len(low) == len(TAUS)
    assert np.array_equal([low, high], again)


def test_one_seed_has_no_band_and_no_spread():
    with pytest.raises(UndefinedStatisticError):
        profile_band([np.array([1.0, 2.0]), np.array([1.0])], np.random.default_rng(0))
    with pytest.raises(UndefinedStatisticError):
        seed_deviation(np.array([1.0]))


def exact_ranks(runs):
    """How often each policy has each rank, over every choice of one seed each and every order of ties."""
    n_policies, n_tasks = len(runs), len(runs[0])
    shares = np.zeros((n_policies, n_policies))
    for task in range(n_tasks):
        choices = list(product(*(policy[task] for policy in runs)))
        for values in choices:
            orders = [o for o in permutations(range(n_policies)) if all(values[a] >= values[b] for a, b in pairwise(o))]
            for order in orders:
                for rank, policy in enumerate(order):
                    shares[policy, rank] += 1.0 / (len(choices) * len(orders) * n_tasks)
    return shares


def test_ranks_are_those_of_every_choice_of_seeds_with_ties_either_way():
    runs = [
        [np.array([1.0, 3.0, 3.0]), np.array([2.0, 0.0])],
        [np.array([2.0]), np.array([2.0])],
        [np.array([3.0, 0.5]), np.array([1.0, 2.0, 5.0])],
    ]
    found = rank_distribution(runs, np.random.default_rng(0), n_draws=40_000)
    assert found == pytest.approx(exact_ranks(runs), abs=0.01)


@settings(max_examples=25)
@given(runs=st.lists(tasks.filter(lambda t: len(t) >= 2).map(lambda t: t[:2]), min_size=1, max_size=4))
def test_every_policy_has_some_rank_and_every_rank_some_policy(runs):
    found = rank_distribution(runs, np.random.default_rng(0), n_draws=50)
    assert found.sum(axis=0) == pytest.approx(np.ones(len(runs)))
    assert found.sum(axis=1) == pytest.approx(np.ones(len(runs)))
    assert expected_rank(found).sum() == pytest.approx(len(runs) * (len(runs) + 1) / 2)


def test_who_is_best_with_every_seed_has_rank_one():
    runs = [[np.array([5.0, 6.0])], [np.array([1.0, 4.0])]]
    assert expected_rank(rank_distribution(runs, np.random.default_rng(0))) == pytest.approx([1.0, 2.0])


def test_policies_with_other_tasks_are_not_ranked():
    with pytest.raises(ValueError):
        rank_distribution([[np.ones(2)], [np.ones(2), np.ones(2)]], np.random.default_rng(0))


@pytest.mark.parametrize("scores", [[], [np.array([])], [np.array([1.0, np.nan])], [np.ones((2, 2))]])
def test_no_task_no_seed_and_no_number_are_refused(scores):
    with pytest.raises(ValueError):
        performance_profile(scores)


def test_scores_outside_their_range_have_no_area():
    with pytest.raises(ValueError):
        area_under_profile([np.array([-1.0, 101.0])])
