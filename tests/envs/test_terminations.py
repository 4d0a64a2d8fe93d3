import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nvtrader_pipelines.envs.rewards.realized_risk import expected_shortfalls
from nvtrader_pipelines.envs.terminations import (
    DrawdownTermination,
    EpisodeView,
    MaintenanceMarginTermination,
    MarginCallTermination,
    RiskBreachTermination,
    StopProperly,
)

FOLDER = Path(__file__).parents[1] / "golden" / "stop_properly"
GOLDEN = json.loads((FOLDER / "stop_properly.json").read_text())["cases"]
REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8).map(np.array)
COEFFICIENTS = st.floats(0.0, 1.0)


def view(path=((1.0, 1.0),), peak=1.0, weights=((0.5, 0.5),), recent=None, gross=None):
    path = np.array(path)
    peaks = np.maximum(peak, np.maximum.accumulate(path, axis=1))
    recent = np.zeros((len(path), 63)) if recent is None else recent
    gross = np.ones_like(path) if gross is None else np.array(gross)
    return EpisodeView(path, 1.0 - path / peaks, np.array(weights), recent, gross)


def test_drawdown_is_triggered_at_any_close_of_the_step():
    paths = [[1.0, 0.8], [1.0, 0.7], [0.7, 1.0], [1.4, 0.95]]
    triggers = DrawdownTermination(limit=0.3).triggers(view(paths, weights=np.full((4, 2), 0.5)))
    assert triggers.tolist() == [False, True, True, True]


def test_drawdown_counts_from_peaks_before_the_step():
    assert DrawdownTermination(limit=0.3).triggers(view([[1.0, 1.0]], peak=1.5)).tolist() == [True]


def test_margin_call_counts_from_the_opening_equity():
    paths = [[1.0, 0.51], [1.0, 0.5], [0.4, 0.9]]
    triggers = MarginCallTermination(maintenance=0.5).triggers(view(paths, peak=3.0, weights=np.full((3, 2), 0.5)))
    assert triggers.tolist() == [False, True, True]


def test_maintenance_margin_is_equity_over_the_gross_at_any_close():
    gross = [[3.9, 3.9], [4.0, 1.0], [1.0, 4.5], [0.0, 0.0]]
    paths = view(np.ones((4, 2)), weights=np.full((4, 2), 0.5), gross=gross)
    assert MaintenanceMarginTermination(margin=0.25).triggers(paths).tolist() == [False, True, True, False]


def test_risk_breach_by_weight_does_not_count_cash():
    rule = RiskBreachTermination(max_weight=0.6, max_cvar=None)
    weights = [[0.6, 0.4, 0.0], [0.3, 0.61, 0.09], [0.0, 0.0, 1.0]]
    assert rule.triggers(view(np.ones((3, 2)), weights=weights)).tolist() == [False, True, False]


def test_risk_breach_by_realized_volatility_and_cvar():
    recent = np.random.default_rng(0).normal(0.0, 0.02, (3, 63))
    volatility, cvar = recent[:, -10:].std(axis=1), expected_shortfalls(recent, 0.9)
    collected = view(np.ones((3, 2)), weights=np.full((3, 2), 0.5), recent=recent)
    rules = [
        (RiskBreachTermination(max_volatility=float(np.median(volatility)), max_cvar=None, window=10), volatility),
        (RiskBreachTermination(max_cvar=float(np.median(cvar)), confidence_level=0.9), cvar),
    ]
    for rule, measured in rules:
        assert rule.triggers(collected).tolist() == (measured > np.median(measured)).tolist()


def test_any_limit_triggers_a_risk_breach():
    recent = np.tile(np.linspace(-0.1, 0.1, 63), (1, 1))
    collected = view(weights=((0.5, 0.5),), recent=recent)
    assert RiskBreachTermination(max_weight=0.4, max_cvar=0.5).triggers(collected).tolist() == [True]
    assert RiskBreachTermination(max_weight=0.6, max_cvar=0.05).triggers(collected).tolist() == [True]
    assert RiskBreachTermination(max_weight=0.6, max_volatility=0.5, max_cvar=0.5).triggers(collected).tolist() == [
        False
    ]


@pytest.mark.parametrize(
    ("rule", "field", "value"),
    [
        (DrawdownTermination, "limit", 0.0),
        (DrawdownTermination, "limit", 1.0),
        (MarginCallTermination, "maintenance", 1.0),
        (RiskBreachTermination, "max_weight", 1.1),
        (RiskBreachTermination, "max_cvar", None),  # without any limit
        (RiskBreachTermination, "window", 64),
        (RiskBreachTermination, "confidence_level", 0.99),
        (StopProperly, "coefficient", 1.1),
        (StopProperly, "form", "multiply"),
    ],
)
def test_field_out_of_range_is_refused(rule, field, value):
    with pytest.raises(ValidationError):
        rule(**{field: value})


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_literal_form_equals_the_published_code(case):
    rewards, truncated = (np.array(case["inputs"][name]) for name in ("rewards", "truncated"))
    form = StopProperly(coefficient=case["inputs"]["stop_properly_penalty_coef"], form="literal")
    shaped = np.where(truncated, form.shape_rewards(rewards), rewards)
    np.testing.assert_allclose(shaped, case["expected"]["rewards"], atol=1e-5)


@given(rewards=REWARDS, coefficient=COEFFICIENTS)
def test_sign_safe_form_never_raises_a_reward(rewards, coefficient):
    safe = StopProperly(coefficient=coefficient).shape_rewards(rewards)
    literal = StopProperly(coefficient=coefficient, form="literal").shape_rewards(rewards)
    assert (safe <= rewards).all()
    gains = rewards >= 0.0
    np.testing.assert_allclose(safe[gains], literal[gains], rtol=1e-9, atol=1e-9)


@given(rewards=REWARDS, coefficient=st.floats(0.0, 0.99))
def test_literal_form_raises_negative_rewards(rewards, coefficient):
    losses = -np.abs(rewards) - 1e-3
    assert (StopProperly(coefficient=coefficient, form="literal").shape_rewards(losses) > losses).all()


@given(rewards=REWARDS)
def test_coefficient_of_one_changes_nothing(rewards):
    for form in ("sign_safe", "literal"):
        np.testing.assert_array_equal(StopProperly(coefficient=1.0, form=form).shape_rewards(rewards), rewards)
