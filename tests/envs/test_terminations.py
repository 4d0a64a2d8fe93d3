import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.rewards.risk import expected_shortfalls
from nvtrader_pipelines.envs.terminations import (
    DrawdownTermination,
    EpisodeView,
    MarginCallTermination,
    RiskBreachTermination,
    StopProperly,
)

FOLDER = Path(__file__).parents[1] / "golden" / "stop_properly"
GOLDEN = json.loads((FOLDER / "stop_properly.json").read_text())["cases"]
REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8).map(np.array)
COEFFICIENTS = st.floats(0.0, 1.0)


def view(path=((1.0, 1.0),), peak=1.0, weights=((0.5, 0.5),), recent=None):
    path = np.array(path)
    peaks = np.maximum(peak, np.maximum.accumulate(path, axis=1))
    recent = np.zeros((len(path), 63)) if recent is None else recent
    return EpisodeView(path, 1.0 - path / peaks, np.array(weights), recent)


def test_a_drawdown_strikes_at_its_limit_at_any_close_of_the_step_though_equity_recovers():
    paths = [[1.0, 0.8], [1.0, 0.7], [0.7, 1.0], [1.4, 0.95]]
    strikes = DrawdownTermination(limit=0.3).strikes(view(paths, weights=np.full((4, 2), 0.5)))
    assert strikes.tolist() == [False, True, True, True]


def test_a_drawdown_counts_from_the_highest_close_before_the_step_too():
    assert DrawdownTermination(limit=0.3).strikes(view([[1.0, 1.0]], peak=1.5)).tolist() == [True]


def test_a_margin_call_counts_from_the_opening_equity_and_not_from_the_peak():
    paths = [[1.0, 0.51], [1.0, 0.5], [0.4, 0.9]]
    strikes = MarginCallTermination(maintenance=0.5).strikes(view(paths, peak=3.0, weights=np.full((3, 2), 0.5)))
    assert strikes.tolist() == [False, True, True]


def test_a_weight_above_its_limit_strikes_and_cash_does_not():
    rule = RiskBreachTermination(max_weight=0.6, max_cvar=None)
    weights = [[0.6, 0.4, 0.0], [0.3, 0.61, 0.09], [0.0, 0.0, 1.0]]
    assert rule.strikes(view(np.ones((3, 2)), weights=weights)).tolist() == [False, True, False]


def test_volatility_and_cvar_strike_above_what_the_last_sessions_realised():
    recent = np.random.default_rng(0).normal(0.0, 0.02, (3, 63))
    volatility, cvar = recent[:, -10:].std(axis=1), expected_shortfalls(recent, 0.9)
    seen = view(np.ones((3, 2)), weights=np.full((3, 2), 0.5), recent=recent)
    rules = [
        (RiskBreachTermination(max_volatility=float(np.median(volatility)), max_cvar=None, window=10), volatility),
        (RiskBreachTermination(max_cvar=float(np.median(cvar)), confidence_level=0.9), cvar),
    ]
    for rule, measured in rules:
        assert rule.strikes(seen).tolist() == (measured > np.median(measured)).tolist()


def test_any_of_the_limits_that_are_set_strikes():
    recent = np.tile(np.linspace(-0.1, 0.1, 63), (1, 1))
    seen = view(weights=((0.5, 0.5),), recent=recent)
    assert RiskBreachTermination(max_weight=0.4, max_cvar=0.5).strikes(seen).tolist() == [True]
    assert RiskBreachTermination(max_weight=0.6, max_cvar=0.05).strikes(seen).tolist() == [True]
    assert RiskBreachTermination(max_weight=0.6, max_volatility=0.5, max_cvar=0.5).strikes(seen).tolist() == [False]


def test_a_risk_breach_without_a_limit_is_refused():
    with pytest.raises(ValidationError, match="needs a limit: set max_weight, max_volatility or max_cvar"):
        RiskBreachTermination(max_cvar=None)


@pytest.mark.parametrize(
    ("rule", "field", "value"),
    [
        (DrawdownTermination, "limit", 0.0),
        (DrawdownTermination, "limit", 1.0),
        (MarginCallTermination, "maintenance", 1.0),
        (RiskBreachTermination, "max_weight", 1.1),
        (RiskBreachTermination, "window", 64),
        (RiskBreachTermination, "confidence_level", 0.99),
        (StopProperly, "coefficient", 1.1),
        (StopProperly, "form", "multiply"),
    ],
)
def test_field_out_of_range_is_refused(rule, field, value):
    with pytest.raises(ValidationError, match=field):
        rule(**{field: value})


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_the_literal_form_shapes_truncated_rewards_as_the_published_code_does(case):
    rewards, truncated = (np.array(case["inputs"][name]) for name in ("rewards", "truncated"))
    form = StopProperly(coefficient=case["inputs"]["stop_properly_penalty_coef"], form="literal")
    shaped = np.where(truncated, form.shaped(rewards), rewards)
    np.testing.assert_allclose(shaped, case["expected"]["rewards"], atol=1e-5)


@given(rewards=REWARDS, coefficient=COEFFICIENTS)
def test_the_sign_safe_form_never_raises_a_reward_and_is_the_literal_one_for_gains(rewards, coefficient):
    safe = StopProperly(coefficient=coefficient).shaped(rewards)
    literal = StopProperly(coefficient=coefficient, form="literal").shaped(rewards)
    assert (safe <= rewards).all()
    gains = rewards >= 0.0
    np.testing.assert_allclose(safe[gains], literal[gains], rtol=1e-9, atol=1e-9)


@given(rewards=REWARDS, coefficient=st.floats(0.0, 0.99))
def test_the_literal_form_raises_every_negative_reward(rewards, coefficient):
    losses = -np.abs(rewards) - 1e-3
    assert (StopProperly(coefficient=coefficient, form="literal").shaped(losses) > losses).all()


@given(rewards=REWARDS)
def test_a_coefficient_of_one_changes_nothing_in_either_form(rewards):
    for form in ("sign_safe", "literal"):
        np.testing.assert_array_equal(StopProperly(coefficient=1.0, form=form).shaped(rewards), rewards)
