from datetime import UTC, datetime

import pytest

from nvtrader_pipelines.evaluation.formats import bounds, duration, moment, number, percent
from nvtrader_pipelines.service.page_templates import position

MINUS, SPACE, DASH = "\N{MINUS SIGN}", "\N{NO-BREAK SPACE}", "\N{EN DASH}"


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (1019412.371, 2, False, "1,019,412.37"),
        (-0.034, 2, True, f"{MINUS}0.03"),
        (0.5, 2, True, "+0.50"),
        (-0.001, 2, True, "0.00"),
        (None, 2, False, DASH),
    ],
)
def test_number_has_digits_and_sign(value, digits, sign, text):
    assert number(value, digits, sign=sign) == text


def test_percent_has_a_space_that_does_not_break():
    assert percent(-0.0642) == f"{MINUS}6.4{SPACE}%"


def test_bounds_of_an_unknown_interval_are_empty():
    assert bounds({"sharpe_low": None, "sharpe_high": None}, "sharpe") == ""
    assert bounds({"sharpe_low": -0.01, "sharpe_high": 1.15}, "sharpe") == f"[{MINUS}0.01, 1.15]"


def test_moment_is_of_new_york():
    assert moment(datetime(2026, 11, 25, 22, 6, tzinfo=UTC)) == "2026-11-25 17:06"
    assert moment(None) == DASH


@pytest.mark.parametrize(("seconds", "text"), [(57.4, "0:57"), (3725.0, "1:02:05"), (None, DASH)])
def test_duration_has_minutes(seconds, text):
    assert duration(seconds) == text


def test_position_stays_on_the_axis():
    assert [position(value, 0.0, 2.0, 150.0) for value in (-1.0, 1.0, 5.0)] == [0.0, 75.0, 150.0]
