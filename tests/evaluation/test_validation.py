from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.active import market_model
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from nvtrader_pipelines.evaluation.overfitting import backtest_overfitting
from nvtrader_pipelines.evaluation.sharpe_inference import (
    deflated_sharpe_ratio,
    expected_maximum_sharpe,
    minimum_track_record_length,
    probabilistic_sharpe_ratio,
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.validation import (
    AGAINST,
    OVERFITTING,
    VALIDATION,
    ValidationSettings,
    headlines,
    reported_period,
    validate,
    validate_sources,
)
from tests.evaluation.small_trials import run_curves, some_runs, some_trials

QUICK = ValidationSettings(n_blocks=6, n_sign_draws=200, intervals=SharpeIntervals(n_draws=100))
PROMISES = ["probability_of_overfitting", "degradation_slope", "probability_of_loss", "mean_correlation", "logits"]
INFERRED = ["probabilistic_sharpe", "deflated_sharpe", "deflated_sharpe_2025", "p_value", "holm", "benjamini_hochberg"]


@pytest.fixture(scope="module")
def trials():
    return some_trials(skill=0.0003)


@pytest.fixture(scope="module")
def judged(trials):
    return validate(trials, QUICK)


def of(judged, against):
    return judged.trials.filter(pl.col("against") == against), judged.overfitting.filter(pl.col("against") == against)


def returns_against(trials, against):
    return trials.net - {"zero": 0.0, "best_baseline": trials.best_baseline, "anchor": trials.anchor}[against]


def test_every_trial_is_judged_against_zero_its_best_baseline_and_its_anchor(judged):
    assert dict(judged.trials.schema) == VALIDATION
    assert dict(judged.overfitting.schema) == OVERFITTING
    expected = [(f"run-{i}", against) for against in AGAINST for i in range(6)]
    assert judged.trials.select("run_id", "against").rows() == expected
    assert judged.overfitting["against"].to_list() == list(AGAINST)


@pytest.mark.parametrize("against", AGAINST)
def test_numbers_are_those_of_the_pure_functions_on_active_returns(trials, judged, against):
    rows, _ = of(judged, against)
    returns = returns_against(trials, against)
    moments = [sharpe_moments(column) for column in returns.T]
    variance = float(np.var([each.sharpe for each in moments], ddof=1))
    for i, (row, each) in enumerate(zip(rows.iter_rows(named=True), moments, strict=True)):
        assert row["sharpe"] == pytest.approx(sharpe_ratio(returns[:, i]))
        assert row["sharpe_low"] < row["sharpe"] < row["sharpe_high"]
        assert row["probabilistic_sharpe"] == pytest.approx(probabilistic_sharpe_ratio(each))
        assert row["deflated_sharpe"] == pytest.approx(deflated_sharpe_ratio(each, 6, variance))
        assert row["expected_maximum_sharpe"] == pytest.approx(expected_maximum_sharpe(6, variance) * 252**0.5)
        assert row["rademacher_lower"] < row["sharpe_low"]
        if each.sharpe > 0.0:
            assert row["minimum_track_record_length"] == pytest.approx(minimum_track_record_length(each))
            assert row["note"] is None
        else:
            assert row["minimum_track_record_length"] is None
            assert "no record is long enough" in row["note"]


@pytest.mark.parametrize("against", AGAINST)
def test_p_values_are_adjusted_over_all_trials(judged, against):
    rows, _ = of(judged, against)
    p_values = rows["p_value"].to_numpy()
    assert rows["holm"].to_list() == adjusted_p_values(p_values, "holm").tolist()
    assert rows["benjamini_hochberg"].to_list() == adjusted_p_values(p_values, "benjamini_hochberg").tolist()


def test_alpha_and_beta_are_on_the_reference_and_none_against_zero(trials, judged):
    zero, _ = of(judged, "zero")
    assert zero.select("alpha_per_year", "beta", "alpha_t", "reference").null_count().row(0) == (6,) * 4
    for against, reference in (("best_baseline", trials.best_baseline), ("anchor", trials.anchor)):
        rows, _ = of(judged, against)
        model = market_model(trials.net[:, 2], reference[:, 2])
        assert rows.select("alpha_per_year", "beta", "alpha_t").row(2) == pytest.approx(
            (model.alpha_per_year, model.beta, model.alpha_t)
        )
        assert rows["reference"][2] == {"best_baseline": "minimum_variance", "anchor": "equal_weight"}[against]


@pytest.mark.parametrize("against", AGAINST)
def test_overfitting_is_that_of_the_cross_validation(trials, judged, against):
    row = of(judged, against)[1].row(0, named=True)
    found = backtest_overfitting(returns_against(trials, against), 6)
    assert row["n_combinations"] == len(row["logits"]) == 20
    assert row["probability_of_overfitting"] == found.probability
    assert row["logits"] == found.logits.tolist()
    assert row["out_of_sample"] == pytest.approx((found.out_of_sample * 252**0.5).tolist())
    assert row["degradation_intercept"] == pytest.approx(found.degradation().intercept * 252**0.5)
    assert 1.0 <= row["effective_n_trials"] <= 6.5
    assert 0.0 < row["rademacher_complexity"] <= row["massart_bound"]


def test_against_zero_all_pass_where_over_the_baseline_none_does():
    """A market that rises lets everyone through: the reason why the active deflated Sharpe ratio is what counts."""
    trials = some_trials(n_sessions=2000, seed=3)
    lifted = replace(
        trials, net=trials.net + 0.0006, best_baseline=trials.best_baseline + 0.0006, anchor=trials.anchor + 0.0006
    )
    found = validate(lifted, QUICK)
    assert (of(found, "zero")[0]["deflated_sharpe"] > 0.95).all()
    assert (of(found, "best_baseline")[0]["deflated_sharpe"] < 0.95).all()


def test_the_same_seed_gives_the_same_frames(trials, judged):
    again = validate(trials, QUICK)
    assert again.trials.equals(judged.trials)
    assert again.overfitting.equals(judged.overfitting)


def test_trials_whose_returns_are_lost_deflate_the_others(trials, judged):
    found = validate(replace(trials, without_returns=("lost-0", "lost-1")), QUICK)
    rows, summary = of(found, "anchor")
    assert rows["n_trials"].to_list() == [8] * 8
    lost = rows.filter(pl.col("run_id").str.starts_with("lost"))
    assert set(lost["note"]) == {"its returns are not in the tables any more"}
    assert lost["sharpe"].null_count() == 2
    before, after = of(judged, "anchor")[0], rows.filter(~pl.col("run_id").str.starts_with("lost"))
    assert (after["deflated_sharpe"] < before["deflated_sharpe"]).all()
    assert (after["holm"] >= before["holm"]).all()
    assert summary["n_trials"][0] == 8


def one_of(trials, n):
    keep = {name: getattr(trials, name)[:, :n] for name in ("net", "best_baseline", "anchor")}
    return replace(
        trials, names=trials.names[:n], best_baselines=trials.best_baselines[:n], anchors=trials.anchors[:n], **keep
    )


def test_one_trial_has_no_overfitting_and_nothing_deflates_it(trials):
    found = validate(one_of(trials, 1), QUICK)
    rows, summary = of(found, "best_baseline")
    assert rows["deflated_sharpe"].to_list() == rows["probabilistic_sharpe"].to_list()
    assert "one trial only, so nothing deflates" in rows["note"][0]
    assert summary.select(PROMISES).null_count().row(0) == (1,) * len(PROMISES)
    assert "at least two trials" in summary["note"][0]


def test_one_trial_left_of_several_is_not_deflated_by_a_guess(trials):
    found = validate(replace(one_of(trials, 1), without_returns=("lost",)), QUICK)
    row = of(found, "zero")[0].filter(pl.col("run_id") == "run-0").row(0, named=True)
    assert row["deflated_sharpe"] is None
    assert row["probabilistic_sharpe"] is not None
    assert "needs the returns of two trials" in row["note"]


def test_trials_alike_have_no_overfitting(trials):
    found = validate(replace(trials, net=np.repeat(trials.net[:, :1], 6, axis=1)), QUICK)
    rows, summary = of(found, "best_baseline")
    assert "the 6 trials have the same Sharpe ratio" in rows["note"][0]
    assert "trials that differ" in summary["note"][0]
    assert summary["probability_of_overfitting"][0] is None
    assert summary["rademacher_complexity"][0] == pytest.approx(0.0, abs=0.2)  # copies: Monte Carlo error alone


def test_a_trial_that_is_its_anchor_has_no_active_sharpe_ratio_and_says_so(trials):
    net = trials.net.copy()
    net[:, 1] = trials.anchor[:, 1]
    row = of(validate(replace(trials, net=net), QUICK), "anchor")[0].row(1, named=True)
    assert [row[name] for name in INFERRED] == [None] * len(INFERRED)
    assert row["sharpe"] == 0.0
    assert "needs returns that vary, but all 400 are 0" in row["note"]


@pytest.mark.parametrize("n_sessions", [0, 1, 3])
def test_trials_that_share_too_few_sessions_get_a_note(trials, n_sessions):
    parts = {name: getattr(trials, name)[:n_sessions] for name in ("sessions", "net", "best_baseline", "anchor")}
    found = validate(replace(trials, **parts), QUICK)
    assert set(found.trials["note"]) == {f"the 6 trials share {n_sessions} sessions, and 4 are needed"}
    assert found.trials["sharpe"].null_count() == 18
    assert found.overfitting["probability_of_overfitting"].null_count() == 3
    assert found.overfitting["note"].null_count() == 0


def test_no_trial_at_all_makes_empty_rows(trials):
    found = validate(one_of(trials, 0), QUICK)
    assert found.trials.is_empty()
    assert found.overfitting["n_trials"].to_list() == [0, 0, 0]


def verdicts(runs):
    spans = [("all", "2015-01-01", "2030-01-01"), ("from_2016", "2016-01-01", "2030-01-01")]
    rows = [(run, period, first, last) for run in runs for period, first, last in [*spans, ("fold", *spans[0][1:])]]
    frame = pl.DataFrame(rows, schema=["run_id", "period", "first_session", "last_session"], orient="row")
    return frame.with_columns(pl.col("first_session", "last_session").str.to_date())


def test_every_source_and_period_is_validated_by_itself():
    curves = pl.concat([run_curves(name, seed=i) for i, name in enumerate("abcd")])
    runs = pl.concat([some_runs("a", "b", "c"), some_runs("d", source="other")])
    found = validate_sources(runs, curves, verdicts("abcd"), QUICK)
    groups = found.trials.group_by("source", "period", maintain_order=True).agg(pl.col("n_trials").unique().item())
    assert groups.rows() == [
        ("other", "all", 1),
        ("other", "from_2016", 1),
        ("sample", "all", 3),
        ("sample", "from_2016", 3),
    ]
    assert set(found.trials["experiment"]) == {"ppo-a", "ppo-b", "ppo-c", "ppo-d"}
    assert len(found.overfitting) == 12


def test_a_trial_with_a_short_window_is_named_as_the_reason_why_all_are_judged_on_few_sessions():
    curves = pl.concat([run_curves("a"), run_curves("b", first=200, last=500, seed=1)])
    found = validate_sources(some_runs("a", "b"), curves, verdicts("ab"), QUICK)
    whole = found.trials.filter(pl.col("period") == "all")
    assert set(whole["n_sessions"]) == {300}
    sentence = "all trials share 300 of the 700 sessions of the longest; the shortest has 300"
    assert whole["note"].str.ends_with(sentence).all()
    assert found.overfitting.filter(pl.col("period") == "all")["note"].to_list() == [sentence] * 3


def test_trials_of_one_window_have_no_note_for_it():
    curves = pl.concat([run_curves("a"), run_curves("b", seed=1)])
    found = validate_sources(some_runs("a", "b"), curves, verdicts("ab"), QUICK)
    assert found.overfitting["note"].null_count() == 6


def test_nothing_run_yet_makes_empty_tables():
    nothing = validate_sources(some_runs("a").clear(), run_curves("a").clear(), verdicts("a").clear(), QUICK)
    assert nothing.trials.is_empty()
    assert nothing.overfitting.is_empty()
    assert all(frame.is_empty() for frame in headlines(nothing))


def test_headlines_are_the_newest_trials_of_the_reported_period():
    curves = pl.concat([run_curves(name, seed=i) for i, name in enumerate("abc")])
    judged = validate_sources(some_runs("a", "b", "c"), curves, verdicts("abc"), QUICK)
    trials, overfitting = headlines(judged, n_trials=2)
    assert trials.select("run_id", "period").unique(maintain_order=True).rows() == [
        ("b", "from_2016"),
        ("c", "from_2016"),
    ]
    assert "logits" not in overfitting.columns


@pytest.mark.parametrize(
    ("periods", "shown"),
    [(["all", "from_2010", "from_2015"], "from_2015"), (["all", "before_2010"], "all"), ([], "all")],
)
def test_the_reported_period_is_the_last_from_a_year(periods, shown):
    assert reported_period(pl.Series(periods, dtype=pl.String)) == shown
