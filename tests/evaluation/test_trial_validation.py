from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from nvtrader_pipelines.evaluation.alpha import market_model
from nvtrader_pipelines.evaluation.intervals import SharpeIntervals
from nvtrader_pipelines.evaluation.multiple_testing import adjusted_p_values
from nvtrader_pipelines.evaluation.overfitting import backtest_overfitting
from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import (
    expected_maximum_sharpe,
    minimum_track_record_length,
    probabilistic_sharpe_ratio,
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trial_validation import (
    PLACE,
    ValidationSettings,
    headlines,
    reported_period,
    validate,
    validate_sources,
)
from nvtrader_pipelines.evaluation.trials import AGAINST
from nvtrader_pipelines.evaluation.verdict_tables import OVERFITTING, VALIDATION
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK, Calendars, TradingCalendar
from tests.evaluation.small_trials import SESSIONS, Returns, run_curves, some_returns, some_runs

QUICK = ValidationSettings(n_blocks=6, n_sign_draws=200, intervals=SharpeIntervals(n_draws=100))
PROMISES = ["probability_of_overfitting", "degradation_slope", "probability_of_loss", "mean_correlation", "logits"]
INFERRED = ["probabilistic_sharpe", "deflated_sharpe", "p_value", "holm", "benjamini_hochberg"]


@pytest.fixture(scope="module")
def returns():
    return some_returns(skill=0.0003)


@pytest.fixture(scope="module")
def judged(returns):
    return validate(returns.trials(), QUICK)


def of(judged, against):
    return judged.trials.filter(pl.col("against") == against), judged.overfitting.filter(pl.col("against") == against)


def residual(returns, against):
    if against == "zero":
        return returns.net
    columns = zip(returns.net.T, getattr(returns, against).T, strict=True)
    return np.column_stack([own - np.polyfit(reference, own, 1)[0] * reference for own, reference in columns])


def test_every_trial_has_a_row_per_reference(judged):
    assert judged.trials.schema == VALIDATION.without(*PLACE, "experiment")
    assert judged.overfitting.schema == OVERFITTING.without(*PLACE)
    expected = [(f"run-{i}", against) for against in AGAINST for i in range(6)]
    assert judged.trials.select("run_id", "against").rows() == expected
    assert judged.overfitting["against"].to_list() == list(AGAINST)


@pytest.mark.parametrize("against", AGAINST)
def test_numbers_are_those_of_the_pure_functions_on_residual_returns(returns, judged, against):
    rows, _ = of(judged, against)
    columns = residual(returns, against).T
    moments = [sharpe_moments(column) for column in columns]
    variance = float(np.var([each.sharpe for each in moments], ddof=1))
    for i, (row, each) in enumerate(zip(rows.iter_rows(named=True), moments, strict=True)):
        assert row["sharpe"] == pytest.approx(sharpe_ratio(columns[i], 252))
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
            kind = "Sharpe ratio" if against == "zero" else "information ratio"
            assert row["note"] == f"no record is long enough: its {kind} is not positive"


@pytest.mark.parametrize("against", AGAINST)
def test_p_values_are_adjusted_over_all_trials(judged, against):
    rows, _ = of(judged, against)
    p_values = rows["p_value"].to_numpy()
    assert rows["holm"].to_list() == adjusted_p_values(p_values, "holm").tolist()
    assert rows["benjamini_hochberg"].to_list() == adjusted_p_values(p_values, "benjamini_hochberg").tolist()


def test_alpha_and_beta_are_on_the_reference_and_none_against_zero(returns, judged):
    zero, _ = of(judged, "zero")
    assert zero.select("alpha_per_year", "beta", "alpha_t", "reference").null_count().row(0) == (6,) * 4
    for against, reference in (("best_baseline", returns.best_baseline), ("anchor", returns.anchor)):
        rows, _ = of(judged, against)
        model = market_model(returns.net[:, 2], reference[:, 2], 252)
        assert rows.select("alpha_per_year", "beta", "alpha_t").row(2) == pytest.approx(
            (model.alpha_per_year, model.beta, model.alpha_t)
        )
        assert rows["reference"][2] == {"best_baseline": "minimum_variance", "anchor": "equal_weight"}[against]


@pytest.mark.parametrize("against", AGAINST)
def test_overfitting_is_that_of_the_cross_validation(returns, judged, against):
    row = of(judged, against)[1].row(0, named=True)
    found = backtest_overfitting(residual(returns, against), 6)
    assert row["n_combinations"] == len(row["logits"]) == 20
    assert row["probability_of_overfitting"] == found.probability
    assert row["logits"] == found.logits.tolist()
    assert row["out_of_sample"] == pytest.approx((found.out_of_sample * 252**0.5).tolist())
    assert row["degradation_intercept"] == pytest.approx(found.degradation().intercept * 252**0.5)
    assert 1.0 <= row["effective_n_trials"] <= 6.5
    assert 0.0 < row["rademacher_complexity"] <= row["massart_bound"]


def test_against_zero_all_pass_where_over_the_baseline_none_does():
    """A market that rises lets everyone through: the reason why the deflated information ratio is what counts."""
    level = some_returns(n_sessions=2000, seed=3)
    lifted = Returns(level.net + 0.0006, level.best_baseline + 0.0006, level.anchor + 0.0006)
    found = validate(lifted.trials(), QUICK)
    assert (of(found, "zero")[0]["deflated_sharpe"] > 0.95).all()
    assert (of(found, "best_baseline")[0]["deflated_sharpe"] < 0.95).all()


@pytest.mark.parametrize(
    ("beta", "alpha", "is_skill"), [(1.6, 0.0, False), (0.5, 0.0003, True)], ids=["exposure", "skill"]
)
def test_deflated_ratio_judges_skill_and_not_exposure(beta, alpha, is_skill):
    """Returns less the reference's would show the exposure (+1.3 a year) and hide the skill (-0.5)."""
    drawn = some_returns(n_sessions=2500, seed=4)
    reference = np.repeat(drawn.anchor[:, :1] + 0.0008, 6, axis=1)
    noise = 0.1 * (drawn.net - drawn.net.mean(axis=0)) * np.linspace(1.0, 1.2, 6)
    net = reference + noise
    net[:, 0] = alpha + beta * reference[:, 0] + noise[:, 0]
    rows, _ = of(validate(Returns(net, reference, reference).trials(), QUICK), "best_baseline")
    assert (rows["deflated_sharpe"][0] >= 0.95) is is_skill
    difference = sharpe_ratio(net[:, 0] - reference[:, 0], 252)
    assert (difference > 1.0) is not is_skill


def test_the_same_seed_gives_the_same_frames(returns, judged):
    again = validate(returns.trials(), QUICK)
    assert again.trials.equals(judged.trials)
    assert again.overfitting.equals(judged.overfitting)


def test_trial_interval_is_that_of_its_account_in_every_verdict(returns, judged):
    low, high = QUICK.intervals.draw(returns.net[:, 2:3], 252).interval(0)
    row = of(judged, "zero")[0].row(2, named=True)
    assert (row["sharpe_low"], row["sharpe_high"]) == pytest.approx((low, high), rel=1e-9)


def test_settings_with_a_negative_seed_are_refused():
    with pytest.raises(ValidationError):
        ValidationSettings(seed=-1)


def test_trials_whose_returns_are_lost_deflate_the_others(returns, judged):
    found = validate(returns.trials(without_returns=("lost-0", "lost-1")), QUICK)
    rows, summary = of(found, "anchor")
    assert rows["n_trials"].to_list() == [8] * 8
    lost = rows.filter(pl.col("run_id").str.starts_with("lost"))
    assert set(lost["note"]) == {"its returns are no longer in the tables"}
    assert lost["sharpe"].null_count() == 2
    before, after = of(judged, "anchor")[0], rows.filter(~pl.col("run_id").str.starts_with("lost"))
    assert (after["deflated_sharpe"] < before["deflated_sharpe"]).all()
    assert (after["holm"] >= before["holm"]).all()
    assert summary.select("n_trials", "n_compared").row(0) == (8, 6)
    assert summary["note"][0] == "compared: 6 of 8 trials, those with all 400 sessions"


def test_one_trial_has_no_overfitting_and_nothing_deflates_it(returns):
    found = validate(returns.first(n_trials=1).trials(), QUICK)
    rows, summary = of(found, "best_baseline")
    assert rows["deflated_sharpe"].to_list() == rows["probabilistic_sharpe"].to_list()
    assert "one trial only" in rows["note"][0]
    assert summary.select(PROMISES).null_count().row(0) == (1,) * len(PROMISES)
    assert "two or more trials" in summary["note"][0]


def test_one_trial_left_of_several_is_not_deflated_by_a_guess(returns):
    found = validate(returns.first(n_trials=1).trials(without_returns=("lost",)), QUICK)
    row = of(found, "zero")[0].filter(pl.col("run_id") == "run-0").row(0, named=True)
    assert row["deflated_sharpe"] is None
    assert row["probabilistic_sharpe"] is not None
    assert "needs two trials with enough returns" in row["note"]


def test_trials_alike_have_no_overfitting(returns):
    found = validate(replace(returns, net=np.repeat(returns.net[:, :1], 6, axis=1)).trials(), QUICK)
    rows, summary = of(found, "best_baseline")
    assert "the 6 trials have equal ratios" in rows["note"][0]
    assert "trials that differ" in summary["note"][0]
    assert summary["probability_of_overfitting"][0] is None
    assert summary["rademacher_complexity"][0] == pytest.approx(0.0, abs=0.2)  # copies: Monte Carlo error alone


def test_trial_equal_to_its_anchor_has_no_information_ratio(returns):
    net = returns.net.copy()
    net[:, 1] = returns.anchor[:, 1]
    row = of(validate(replace(returns, net=net).trials(), QUICK), "anchor")[0].row(1, named=True)
    assert [row[name] for name in INFERRED] == [None] * len(INFERRED)
    assert row["sharpe"] == 0.0
    assert "needs returns that vary, but all 400 are 0" in row["note"]


@pytest.mark.parametrize("scale", [1.0, 1.0 + 1.5e-8, 1.3])
def test_scaled_anchor_has_no_t_statistic(returns, scale):
    net = returns.net.copy()
    net[:, 1] = scale * returns.anchor[:, 1]
    row = of(validate(replace(returns, net=net).trials(), QUICK), "anchor")[0].row(1, named=True)
    assert row["alpha_t"] is None
    assert (row["alpha_per_year"], row["beta"]) == pytest.approx((0.0, scale), abs=1e-9)
    assert "alpha has no t statistic: the returns are beta times those of the reference" in row["note"]
    assert row["p_value"] is None


@pytest.mark.parametrize(("n_sessions", "said"), [(0, "0 sessions"), (1, "1 session"), (3, "3 sessions")])
def test_trials_of_too_few_sessions_get_a_note(returns, n_sessions, said):
    found = validate(returns.first(n_sessions).trials(), QUICK)
    assert set(found.trials["note"]) == {f"{said} in the period, 4 needed"}
    assert set(found.trials["n_sessions"]) == {n_sessions}
    assert found.trials["sharpe"].null_count() == 18
    assert found.overfitting["probability_of_overfitting"].null_count() == 3
    assert set(found.overfitting["note"]) == {"no trial has the required 4 sessions in the period"}


def test_no_trial_at_all_makes_empty_rows(returns):
    found = validate(returns.first(n_trials=0).trials(), QUICK)
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
    found = validate_sources(runs, curves, verdicts("abcd"), ALL_NEW_YORK, QUICK)
    groups = found.trials.group_by("source", "period", maintain_order=True).agg(pl.col("n_trials").unique().item())
    assert groups.rows() == [
        ("other", "all", 1),
        ("other", "from_2016", 1),
        ("sample", "all", 3),
        ("sample", "from_2016", 3),
    ]
    assert set(found.trials["experiment"]) == {"ppo-a", "ppo-b", "ppo-c", "ppo-d"}
    assert len(found.overfitting) == 12


@pytest.mark.slow
def test_trials_of_two_markets_are_annualized_by_their_own_calendars():
    curves = [run_curves(name, seed=i, skill=0.0004) for name, i in zip("abcd", (0, 1, 0, 1), strict=True)]
    runs = pl.concat([some_runs("a", "b"), some_runs("c", "d", source="coins")])
    calendars = Calendars({"coins": TradingCalendar("24/7")})
    found = validate_sources(runs, pl.concat(curves), verdicts("abcd"), calendars, QUICK)
    new_york, coins = (
        found.trials.filter(pl.col("run_id").is_in(list(names)), period="all").sort("against", "run_id")
        for names in ("ab", "cd")
    )
    root = (365 / 252) ** 0.5
    rates = dict.fromkeys(("sharpe", "sharpe_low", "sharpe_high", "expected_maximum_sharpe", "rademacher_lower"), root)
    for name, rate in (rates | {"alpha_per_year": 365 / 252}).items():
        np.testing.assert_allclose(coins[name].drop_nulls(), rate * new_york[name].drop_nulls(), rtol=1e-9)
    for name in ("n_trials", "deflated_sharpe", "p_value", "holm", "beta", "alpha_t", "minimum_track_record_length"):
        assert coins[name].to_list() == new_york[name].to_list()
    net = pl.concat(curves).filter(run_id="c", kind="ensemble")["net_return"]
    annual = coins.filter(run_id="c", against="zero")["sharpe"].item()
    assert annual == pytest.approx(net.mean() * 365 / (net.std() * 365**0.5))
    overfitting = [found.overfitting.filter(source=source, period="all") for source in ("coins", "sample")]
    assert overfitting[0]["probability_of_overfitting"].equals(overfitting[1]["probability_of_overfitting"])
    bounds = [frame["massart_bound"].to_numpy() for frame in overfitting]
    np.testing.assert_allclose(bounds[0], root * bounds[1], rtol=1e-9)


DEFLATION = ["n_trials", "expected_maximum_sharpe", "deflated_sharpe"]
WITH_ALL = [*DEFLATION, "holm", "benjamini_hochberg", "rademacher_lower", "note"]  # what may depend on other trials


def with_a_short_one(n_sessions):
    """Three trials, judged without and with a fourth that has a few sessions only."""
    three = pl.concat([run_curves(name, seed=i, skill=0.0004 * i) for i, name in enumerate("abc")])
    four = pl.concat([three, run_curves("d", first=200, last=200 + n_sessions, seed=3)])
    return [
        validate_sources(some_runs(*names), curves, verdicts(names), ALL_NEW_YORK, QUICK)
        for names, curves in (("abc", three), ("abcd", four))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("n_sessions", [2, 20, 300])
def test_short_trial_changes_count_and_variance_only(n_sessions):
    without, found = with_a_short_one(n_sessions)
    others = found.trials.filter(pl.col("run_id") != "d")
    assert_frame_equal(others.drop(WITH_ALL), without.trials.drop(WITH_ALL))
    assert without.trials["n_trials"].unique().to_list() == [3]
    assert others["n_trials"].unique().to_list() == [4]
    assert set(others.filter(pl.col("period") == "all")["n_sessions"]) == {700}


@pytest.mark.slow
def test_deflation_counts_each_trial_by_the_sessions_it_shares():
    _, found = with_a_short_one(300)
    for _, rows in found.trials.filter(pl.col("period") == "all").group_by("against"):
        ratios, is_long = rows["sharpe"].to_numpy() / 252**0.5, rows["n_sessions"].to_numpy() == 700
        shares = np.where(is_long, 1.0, 300 / 700)
        of_long = expected_maximum_sharpe(3 + 300 / 700, float(np.cov(ratios, aweights=shares)))
        of_short = expected_maximum_sharpe(4, float(np.var(ratios, ddof=1)))
        expected = np.where(is_long, of_long, of_short) * 252**0.5
        assert rows["expected_maximum_sharpe"].to_list() == pytest.approx(expected.tolist())


@pytest.mark.slow
def test_short_trial_counts_but_does_not_inflate_the_variance():
    _, found = with_a_short_one(20)
    for _, rows in found.trials.filter(pl.col("period") == "all").group_by("against"):
        long = rows.filter(pl.col("n_sessions") >= 252)
        variance = float(np.var(long["sharpe"].to_numpy(), ddof=1)) / 252
        expected = [expected_maximum_sharpe(3 + 20 / 700, variance) * 252**0.5] * 3
        assert long["expected_maximum_sharpe"].to_list() == pytest.approx(expected)


@pytest.mark.slow
def test_a_short_trial_is_judged_on_its_own_sessions():
    _, found = with_a_short_one(300)
    own = run_curves("d", first=200, last=500, seed=3)
    net = own.filter(pl.col("kind") == "ensemble")["net_return"].to_numpy()
    row = found.trials.filter(pl.col("run_id") == "d", pl.col("period") == "all").row(0, named=True)
    assert (row["first_session"], row["last_session"], row["n_sessions"]) == (
        SESSIONS[200].item(),
        SESSIONS[499].item(),
        300,
    )
    assert row["sharpe"] == pytest.approx(sharpe_ratio(net, 252))
    assert row["sharpe_low"] < row["sharpe"] < row["sharpe_high"]
    assert row["probabilistic_sharpe"] == pytest.approx(probabilistic_sharpe_ratio(sharpe_moments(net)))


def test_short_trial_is_excluded_from_comparison_with_notes():
    without, found = with_a_short_one(300)
    short = found.trials.filter(pl.col("run_id") == "d", pl.col("period") == "all")
    assert short["rademacher_lower"].null_count() == 3
    sentence = "not compared with other trials: has 300 of the 700 sessions of the longest"
    assert short["note"].str.contains(sentence, literal=True).all()
    whole = found.overfitting.filter(pl.col("period") == "all")
    assert whole.select("n_trials", "n_compared", "n_sessions").rows() == [(4, 3, 700)] * 3
    assert set(whole["note"]) == {"compared: 3 of 4 trials, those with all 700 sessions"}
    by_others = ["n_trials", "n_compared", "effective_n_trials", "note"]
    assert found.overfitting.drop(by_others).equals(without.overfitting.drop(by_others))


@pytest.mark.slow
def test_validation_only_run_affects_others_by_count_only():
    three = pl.concat([run_curves(name, first=100, seed=i, skill=0.0004 * i) for i, name in enumerate("abc")])
    four = pl.concat([three, run_curves("cv", seed=3, skill=0.01)])
    names = ("a", "b", "c", "cv")
    lost = validate_sources(some_runs(*names), three, verdicts("abc"), ALL_NEW_YORK, QUICK)
    found = validate_sources(some_runs(*names, validation_only=["cv"]), four, verdicts(names), ALL_NEW_YORK, QUICK)
    assert_frame_equal(*(each.trials.filter(pl.col("run_id") != "cv") for each in (found, lost)))
    assert found.overfitting.equals(lost.overfitting)
    assert found.overfitting["probability_of_overfitting"].null_count() == 0
    own = found.trials.filter(pl.col("run_id") == "cv")
    assert own["sharpe"].null_count() == own["deflated_sharpe"].null_count() == len(own) > 0
    assert own["note"].str.starts_with("validation only").all()


def test_one_trial_that_covers_the_period_has_nobody_to_be_compared_with():
    curves = pl.concat([run_curves("a"), run_curves("b", first=200, last=500, seed=1)])
    row = validate_sources(some_runs("a", "b"), curves, verdicts("ab"), ALL_NEW_YORK, QUICK).overfitting.row(
        0, named=True
    )
    assert (row["n_trials"], row["n_compared"], row["probability_of_overfitting"]) == (2, 1, None)
    assert row["note"].startswith("compared: 1 of 2 trials")
    assert "needs two or more trials" in row["note"]


def test_trials_of_one_window_have_no_note_for_it():
    curves = pl.concat([run_curves("a"), run_curves("b", seed=1)])
    found = validate_sources(some_runs("a", "b"), curves, verdicts("ab"), ALL_NEW_YORK, QUICK)
    assert found.overfitting["note"].null_count() == 6


def test_nothing_run_yet_makes_empty_tables():
    nothing = validate_sources(
        some_runs("a").clear(), run_curves("a").clear(), verdicts("a").clear(), ALL_NEW_YORK, QUICK
    )
    assert nothing.trials.is_empty()
    assert nothing.overfitting.is_empty()
    assert all(frame.is_empty() for frame in headlines(nothing))


def test_headlines_are_the_newest_trials_of_the_reported_period():
    curves = pl.concat([run_curves(name, seed=i) for i, name in enumerate("abc")])
    judged = validate_sources(some_runs("a", "b", "c"), curves, verdicts("abc"), ALL_NEW_YORK, QUICK)
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
    assert reported_period(periods) == shown
