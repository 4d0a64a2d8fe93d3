import numpy as np
import pytest

from nvtrader_pipelines.evaluation.prudex.explainability import surrogate_r2
from nvtrader_pipelines.evaluation.statistics import UndefinedStatisticError


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(2000, 3))


def test_a_rule_of_a_few_branches_is_found(features):
    rule = np.where(features[:, 0] > 0.5, 0.2, np.where(features[:, 1] > 0.0, 0.1, 0.05))
    assert surrogate_r2(features, rule) > 0.98


def test_surrogate_r2_of_unrelated_weights_is_low(features):
    noise = np.random.default_rng(1).normal(size=len(features))
    assert surrogate_r2(features, noise) < 0.02


def test_it_is_judged_on_rows_that_it_has_not_learned(features):
    turned = np.sign(features[:, 0])
    turned[len(turned) // 2 :] *= -1.0
    assert surrogate_r2(features, turned) == pytest.approx(-3.0, abs=0.05)  # every guess is off by 2 of a variance of 1


def test_features_may_be_missing(features):
    rule = np.where(features[:, 0] > 0.0, 0.2, 0.1)
    known = np.where(np.random.default_rng(2).random(features.shape) < 0.05, np.nan, features)
    assert surrogate_r2(known, rule) > 0.8


@pytest.mark.parametrize("weights", [np.full(2000, 0.05), np.array([0.1])])
def test_weights_that_never_vary_have_nothing_to_explain(features, weights):
    with pytest.raises(UndefinedStatisticError):
        surrogate_r2(features[: len(weights)], weights)


def test_unequal_lengths_and_what_is_no_number_are_refused(features):
    with pytest.raises(ValueError):
        surrogate_r2(features, np.zeros(5))
    with pytest.raises(ValueError):
        surrogate_r2(features[:2], np.array([0.1, np.nan]))
