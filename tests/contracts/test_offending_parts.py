"""Parts that look ahead do not pass the checks that packages call."""

import pytest

from nvtrader_pipelines.market.look_ahead import LookAheadError
from nvtrader_pipelines.testing import check_part, contract
from tests import offending_parts as parts

OFFENDING = [
    ("features", parts.PeekFeature(), "check_values_do_not_look_ahead"),
    ("features", parts.PeekFeature(prices="highs"), "check_values_do_not_look_ahead"),
    ("rewards", parts.PeekReward(), "check_contributions_do_not_look_ahead"),
    ("observations", parts.PeekObservation(), "check_observations_do_not_look_ahead"),
    ("observations", parts.PeekScaler(), "check_scaler_does_not_look_beyond_the_training_window"),
    ("actions", parts.PeekAction(), "check_targets_do_not_look_ahead"),
    ("anchors", parts.PeekAnchor(), "check_anchor_does_not_look_ahead"),
    ("costs", parts.PeekCost(), "check_coefficients_give_the_cost"),
    ("costs", parts.PeekCost(), "check_cost_does_not_look_at_the_session_of_the_fill"),
    ("selectors", parts.PeekSelector(), "check_stage_does_not_look_ahead"),
    ("allocators", parts.PeekAllocator(), "check_stage_does_not_look_ahead"),
    ("timings", parts.PeekTiming(), "check_stage_does_not_look_ahead"),
    ("limits", parts.PeekLimit(), "check_stage_does_not_look_ahead"),
    ("agents", parts.PeekRule(), "check_decisions_do_not_look_ahead"),
    ("agents", parts.PeekTraining(), "check_training_does_not_look_beyond_its_window"),
]


@pytest.mark.parametrize(("family", "part", "name"), OFFENDING)
def test_check_fails_on_a_part_that_looks_ahead(family, part, name):
    (check,) = [each for each in contract(family) if each.__name__ == name]
    with pytest.raises((AssertionError, LookAheadError)):
        check(part)


def test_every_check_of_a_family_is_run_on_a_part():
    with pytest.raises(AssertionError, match="not equal"):
        check_part("rewards", parts.PeekReward())


def test_rule_that_is_only_a_baseline_keeps_the_contract_without_being_an_agent():
    check_part("baselines", parts.OwnRule())
