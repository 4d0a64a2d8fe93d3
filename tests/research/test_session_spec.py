from datetime import date

import pytest

from nvtrader_pipelines.research.session_spec import SessionSpec
from tests.research.sessions import SPACE


@pytest.mark.parametrize(
    ("limits", "budget"),
    [({}, 20), ({"max_seconds": 60.0}, None), ({"max_seconds": 60.0, "budget": 7}, 7), ({"budget": 7}, 7)],
)
def test_budget_is_20_trials_unless_seconds_are_set(limits, budget):
    days = {"validation_from": date(2002, 1, 2), "sealed_from": date(2010, 1, 4)}
    assert SessionSpec(base=SPACE.base, **days, **limits).budget == budget
