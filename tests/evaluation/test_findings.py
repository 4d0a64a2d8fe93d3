import polars as pl
import pytest

from nvtrader_pipelines.evaluation.findings import deflated_findings, format_probability, overfitting_findings

CURVE = pl.DataFrame(
    {"run_id": ["first", "second", "third"], "period": ["all"] * 3, "rank": [2, 1, 3]},
    schema_overrides={"rank": pl.Int32},
)
TRIAL = {"source": "sample", "period": "all", "run_id": "second", "experiment": "ppo", "against": "best_baseline"}
FIGURES = {"reference": "anchor", "n_trials": 3, "sharpe": 0.4, "deflated_sharpe": 0.97, "note": None}
CHOICE = {"source": "sample", "period": "all", "against": "anchor", "n_trials": 4, "n_compared": 3}


def trials(*changes: dict) -> pl.DataFrame:
    return pl.DataFrame([{**TRIAL, **FIGURES, **change} for change in changes], infer_schema_length=None)


def test_deflated_findings_are_of_the_best_ranked_run_per_source():
    validation = trials(
        {},
        {"run_id": "first", "deflated_sharpe": 0.1},
        {"run_id": "third", "source": "landing", "deflated_sharpe": 0.2},
    )
    found = deflated_findings(CURVE, validation)
    assert [(each.source, each.value, each.passed) for each in found] == [
        ("landing", 0.2, False),
        ("sample", 0.97, True),
    ]


def test_run_without_rank_is_no_candidate():
    curve = CURVE.with_columns(rank=pl.when(pl.col("rank") > 1).then("rank"))
    (found,) = deflated_findings(curve, trials({"deflated_sharpe": 0.99}, {"run_id": "first", "deflated_sharpe": 0.1}))
    assert found.value == 0.1


def test_findings_judge_the_reported_period_and_name_it():
    curve = pl.concat([CURVE, CURVE.with_columns(period=pl.lit("from_2010"))])
    validation = trials({}, {"period": "from_2010", "deflated_sharpe": 0.6}, {"run_id": "first", "period": "from_2010"})
    (luck,) = deflated_findings(curve, validation)
    choices = [{"period": "all", "probability_of_overfitting": 0.1}, {"period": "from_2010"}]
    rows = pl.DataFrame([{**CHOICE, "probability_of_overfitting": 0.73, "note": None, **each} for each in choices])
    (overfitted,) = overfitting_findings(rows)
    assert [(each.period, each.value, each.passed) for each in (luck, overfitted)] == [
        ("from_2010", 0.6, False),
        ("from_2010", 0.73, False),
    ]
    assert all(each.sentence.startswith("sample, reported period from 2010: ") for each in (luck, overfitted))


def test_findings_are_of_residual_returns_over_all_sessions():
    validation = trials(
        {"against": "zero", "deflated_sharpe": 0.2},
        {"period": "before_2010", "deflated_sharpe": 0.2},
        {"against": "anchor"},
        {},
    )
    assert [each.against for each in deflated_findings(CURVE, validation)] == ["best_baseline", "anchor"]


@pytest.mark.parametrize(("value", "passed"), [(0.95, True), (0.949, False)])
def test_deflated_ratio_passes_at_its_limit(value, passed):
    (found,) = deflated_findings(CURVE, trials({"deflated_sharpe": value}))
    assert found.passed is passed
    assert "ppo (run second), the best ranked of 3 trials" in found.sentence
    assert "+0.40 against its best baseline (anchor)" in found.sentence
    assert found.sentence.endswith("(the check asks for at least 0.95)")


@pytest.mark.parametrize(("value", "passed"), [(0.5, True), (0.51, False)])
def test_overfitting_passes_at_its_limit(value, passed):
    rows = pl.DataFrame([{**CHOICE, "probability_of_overfitting": value, "note": None}])
    (found,) = overfitting_findings(rows)
    assert "the best of 3 trials" in found.sentence
    assert found.passed is passed
    assert f"with probability {value:.2f}" in found.sentence


def test_missing_value_does_not_pass():
    why = "the sessions are too few"
    choice = pl.DataFrame([{**CHOICE, "probability_of_overfitting": None, "note": why}])
    (overfitted,) = overfitting_findings(choice)
    (luck,) = deflated_findings(CURVE, trials({"deflated_sharpe": None, "note": why, "n_trials": 1}))
    for found in (overfitted, luck):
        assert (found.passed, found.value) == (False, None)
        assert found.sentence.endswith(why)
    assert "the best ranked of 1 trial," in luck.sentence


def test_single_trial_has_no_overfitting_value():
    row = {**CHOICE, "n_trials": 1, "probability_of_overfitting": None, "note": "needs two columns"}
    (found,) = overfitting_findings(pl.DataFrame([row]))
    assert (found.passed, found.value) == (False, None)
    assert "one trial" in found.sentence


def test_no_trials_give_no_findings():
    assert deflated_findings(CURVE, trials({}).clear()) == []
    assert overfitting_findings(pl.DataFrame([{**CHOICE, "probability_of_overfitting": 0.1}]).clear()) == []


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [(0.5, 0.5, "0.50"), (0.4991, 0.5, "0.499"), (0.9499, 0.95, "0.9499"), (0.2, 0.5, "0.20"), (1.0, 0.95, "1.00")],
)
def test_format_probability_separates_value_from_threshold(value, limit, text):
    assert format_probability(value, limit) == text
