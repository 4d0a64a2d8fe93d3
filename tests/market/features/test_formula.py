"""Formulas as features: equal to built-in ones, causal, and refused where they are too large or look ahead."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import rankdata

from nvtrader_pipelines.market.features import LOOK_BACK, CrossSectionalRank, Formula, LogReturn, Momentum, Volatility
from nvtrader_pipelines.market.features.formula import MAX_DEPTH, MAX_NODES, OPERATORS, MissingFieldError
from nvtrader_pipelines.testing.feature_checks import FEATURES as CHECKS
from nvtrader_pipelines.testing.feature_checks import synthetic_history

HISTORY = synthetic_history()
LOG_RETURN = ["log1p", "close_return"]
BUILT_IN = [
    (Momentum(), ["delay", ["ts_sum", LOG_RETURN, 231], 21]),
    (Volatility(window=21), ["ts_std", LOG_RETURN, 21]),
    (LogReturn(window=5), ["ts_sum", LOG_RETURN, 5]),
    (CrossSectionalRank(of=LogReturn(window=5)), ["rank", ["ts_sum", LOG_RETURN, 5]]),
]
CANDLE = ["div", ["sub", "close_return", "overnight_return"], ["add", ["sub", "high_return", "low_return"], 0.001]]
EVERY_OPERATOR = [
    [
        "add",
        ["ts_corr", ["rank", "volume_change"], ["abs", CANDLE], 60],
        ["ts_rank", ["log", ["add", "volume_change", 2]], 20],
    ],
    ["mul", ["decay_linear", ["zscore", "low_return"], 10], ["neg", ["sign", ["delta", "volume_change", 5]]]],
    ["sub", ["ts_mean", LOG_RETURN, 60], ["delay", ["ts_max", CANDLE, 100], 100]],
    ["div", ["ts_min", "high_return", 5], ["ts_std", ["ts_sum", LOG_RETURN, 5], 20]],
]


def values_of(*tree, history=HISTORY):
    return Formula(formula=tree).values(history)


def operators_in(tree):
    return {tree[0]}.union(*map(operators_in, tree[1:])) if isinstance(tree, list) else set()


@pytest.mark.parametrize(("feature", "tree"), BUILT_IN, ids=lambda value: getattr(value, "name", None))
def test_formula_of_a_built_in_feature_has_its_values(feature, tree):
    np.testing.assert_allclose(values_of(*tree), feature.values(HISTORY), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("tree", EVERY_OPERATOR, ids=lambda tree: tree[0])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_formulas_of_all_operators_pass_the_checks_of_features(check, tree):
    check(Formula(formula=tree))


def test_checked_formulas_have_every_operator():
    assert set().union(*map(operators_in, EVERY_OPERATOR)) == set(OPERATORS)


def test_windows_equal_their_definitions():
    t, volumes, returns = 400, HISTORY.volumes[:, 0], np.append(np.nan, np.diff(HISTORY.closes[:, 0]))
    returns[1:] /= HISTORY.closes[:-1, 0]
    window = (np.append(np.nan, volumes[1:] / volumes[:-1]) - 1.0)[t - 9 : t + 1]
    expected = {
        ("ts_corr", "volume_change", "close_return", 10): np.corrcoef(window, returns[t - 9 : t + 1])[0, 1],
        ("ts_rank", "volume_change", 10): 2.0 * (rankdata(window)[-1] - 1.0) / 9.0 - 1.0,
        ("decay_linear", "volume_change", 10): np.average(window, weights=np.arange(1, 11)),
        ("delta", "volume_change", 9): window[-1] - window[0],
    }
    assert {tree: values_of(*tree)[t, 0] for tree in expected} == pytest.approx(expected, rel=1e-9)


def test_z_scores_of_a_session_have_mean_0_and_deviation_1():
    scores = values_of("zscore", "volume_change")[-2]
    assert (np.nanmean(scores), np.nanstd(scores, ddof=1)) == pytest.approx((0.0, 1.0), abs=1e-12)


def test_division_by_zero_and_equal_values_are_neutral():
    assert np.nanmax(np.abs(values_of("div", "volume_change", 0.0))) == 0.0
    for tree in (("zscore", 1.0), ("rank", 1.0), ("ts_corr", "volume_change", 3.0, 10)):
        assert np.nanmax(np.abs(values_of(*tree)[LOOK_BACK:])) == 0.0


def test_values_too_large_for_a_float_are_unknown():
    tree = ["mul", 1e9, 1e9]
    for _ in range(6):
        tree = ["mul", tree, 1e9]
    assert np.isfinite(values_of(*tree)[-1, 0])
    assert np.isnan(values_of("div", tree, 1e-301)[-1, 0])


@pytest.mark.parametrize("field", ["volumes", "closes"])
def test_later_adjustment_for_a_split_changes_no_earlier_value(field):
    adjusted = getattr(HISTORY, field).copy()
    adjusted[:300, 0] *= 4.0
    arrays = {field: adjusted}
    if field == "closes":
        for name in ("opens", "highs", "lows"):
            arrays[name] = getattr(HISTORY, name).copy()
            arrays[name][:300, 0] *= 4.0
    for tree in EVERY_OPERATOR:
        after = values_of(*tree, history=replace(HISTORY, **arrays))
        np.testing.assert_allclose(after[:300], values_of(*tree)[:300], rtol=1e-6, atol=1e-9)


def test_names_differ_by_formula_and_not_by_spelling():
    assert Formula(formula=["add", "volume_change", 1]).name == Formula(formula=("add", "volume_change", 1.0)).name
    assert Formula(formula=["add", "volume_change", 1]).name != Formula(formula=["add", "volume_change", 2]).name


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (["os.system", "volume_change"], "no operator 'os.system'"),
        (["ts_men", "volume_change", 5], "did you mean 'ts_mean'"),
        (["neg", "price"], "no field 'price'; there are close_return"),
        (["delay", "volume_change", -1], "from 1 to 252, since later sessions are not known, but it is -1"),
        (["ts_mean", "volume_change", 0], "from 2 to 252"),
        (["ts_mean", "volume_change", 2.5], "whole number"),
        (["delta", "volume_change", True], "whole number"),
        (["delay", ["ts_mean", "volume_change", 200], 60], "looks back 260"),
        (["add", *["volume_change"] * 9_999], f"{MAX_NODES} parts at most"),
        (["add", "volume_change"], "takes 2 inputs, but has 1"),
        (["neg", float("inf")], "a number up to 1e"),
        (["neg", 10**400], "a number up to 1e"),
        (["neg", {"field": "volume_change"}], "a part must be"),
        ([], "a part must be"),
        ("volume_change", "must be a list"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_invalid_formula_is_refused_in_a_sentence(tree, words):
    with pytest.raises(ValidationError) as refusal:
        Formula(formula=tree)
    assert words in refusal.value.errors()[0]["msg"]


def test_formula_of_ten_thousand_levels_is_refused():
    tree = "volume_change"
    for _ in range(10_000):
        tree = ["neg", tree]
    with pytest.raises(ValidationError) as refusal:
        Formula(formula=tree)
    assert f"{MAX_DEPTH} levels at most" in refusal.value.errors()[0]["msg"]


def test_field_that_the_source_lacks_is_refused():
    without = replace(HISTORY, opens=np.full_like(HISTORY.opens, np.nan))
    with pytest.raises(MissingFieldError):
        values_of(*CANDLE, history=without)
