from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from nvtrader_pipelines.evaluation.prudex import AXES, MEASURES, PRIDE, RING, axis_scores, pictures, prudex_compass
from nvtrader_pipelines.evaluation.prudex.measures import OF_AXIS, STATISTICS
from nvtrader_pipelines.evaluation.prudex.measures_table import table_of
from nvtrader_pipelines.evaluation.prudex.pictures import PLANE
from nvtrader_pipelines.evaluation.prudex.record import latest_runs
from nvtrader_pipelines.evaluation.prudex.return_windows import return_windows
from nvtrader_pipelines.evaluation.statistics import max_drawdown, sharpe_ratio
from nvtrader_pipelines.evaluation.verdict_tables import PRUDEX
from nvtrader_pipelines.market.calendar import Calendars, TradingCalendar
from tests.evaluation.prudex.records import (
    BASELINES,
    N_FOLDS,
    NAMES,
    compass_of_two,
    record_of,
    run_of,
    two_experiments,
)

TO_2020 = "5y"  # from the year of the records' sessions


@pytest.fixture
def record():
    return two_experiments()


@pytest.fixture
def compass():
    return compass_of_two()


@pytest.fixture
def compass_of(compass, monkeypatch):
    """The function of a compass, without the plane of actions: half of its time, and shown by the shared one."""
    nothing = None, "not embedded", table_of((), PLANE)
    monkeypatch.setattr(pictures, "_embed_actions", lambda *_: nothing)
    return prudex_compass


@pytest.fixture
def table(compass):
    return compass.table


def row(table, policy, statistic):
    return table.filter(pl.col("policy") == policy, pl.col("statistic") == statistic).row(0, named=True)


def window_measures(record, policy, run_id="run-1"):
    """Sharpe ratios of an account's test windows."""
    mine = record.curves.filter(pl.col("policy") == policy, pl.col("run_id") == run_id).sort("session")
    windows = mine.partition_by("fold", maintain_order=True)
    assert len(windows) == N_FOLDS
    return [sharpe_ratio(window["net_return"].to_numpy(), 252) for window in windows]


def test_compass_has_six_axes_seventeen_measures_sixteen_in_ring():
    in_source = [measure for measure in MEASURES if measure.axis != "explainability"]  # which has none there
    assert len(AXES) == 6
    assert len(in_source) == 17
    assert set(RING) == {
        *("profit", "alpha_decay", "equity_curve", "risk", "risk_adjusted", "extreme_market"),
        *("country", "asset_type", "time_scale", "rolling_window", "t_sne", "entropy", "correlation"),
        *("profile", "variability", "rank_order"),
    }
    assert len(PRIDE) == 8
    assert set(PRIDE.values()) <= set(STATISTICS)


def test_every_policy_has_every_statistic_once_and_every_axis(table):
    assert table.schema == PRUDEX
    policies = {*(f"{name}/seed-{i}" for name in ("ppo", "a2c") for i in range(3)), "ppo", "a2c", *BASELINES}
    assert set(table["policy"]) == policies
    assert len(table) == len(policies) * (len(STATISTICS) + len(AXES))
    assert not table.select("policy", "axis", "measure", "statistic").is_duplicated().any()


def test_nothing_is_missing_without_a_word(table):
    silent = table.filter(pl.col("value").is_null() | pl.col("score").is_null(), pl.col("note").is_null())
    assert not len(silent)
    assert not table["value"].is_nan().any()


def test_scores_lie_within_range_and_equal_weight_has_fifty(table):
    scores = table["score"].drop_nulls()
    assert scores.is_between(0.0, 100.0).all()
    assert scores.n_unique() > 50
    assert table.filter(pl.col("policy") == "equal_weight")["score"].drop_nulls().to_list() == pytest.approx(
        [50.0] * table.filter(pl.col("policy") == "equal_weight")["score"].count()
    )


def test_axis_row_has_mean_score_and_number_of_measures(table):
    mine = table.filter(pl.col("policy") == "ppo", pl.col("axis") == "risk_control")
    by_measure = mine.filter(pl.col("measure") != OF_AXIS).group_by("measure").agg(pl.col("score").mean())
    axis = mine.filter(pl.col("measure") == OF_AXIS).row(0, named=True)
    assert axis["score"] == pytest.approx(by_measure["score"].mean())
    assert (axis["value"], axis["reported"]) == (2.0, True)  # no extreme market lies in the windows
    unscored = table.filter(pl.col("axis") == "explainability", pl.col("measure") == OF_AXIS)
    assert unscored["score"].is_null().all()
    assert unscored["note"].unique().to_list() == ["no measure of explainability has a score"]


def test_a_value_is_the_mean_over_the_test_windows(record, table):
    mine = (
        record.curves.filter(pl.col("policy") == "ppo")
        .group_by("fold")
        .agg((1.0 + pl.col("net_return")).product().alias("end"))
    )
    totals = mine["end"] - 1.0
    assert row(table, "ppo", "sharpe")["value"] == pytest.approx(np.mean(window_measures(record, "ppo")))
    assert row(table, "ppo", "total_return")["value"] == pytest.approx(totals.mean())


def test_score_is_mean_of_window_scores_against_equal_weight(record, table):
    windows = (
        record.curves.sort("session")
        .group_by("run_id", "policy", "fold")
        .agg(((1.0 + pl.col("net_return")).product() - 1.0).alias("value"))
    )
    market = record.curves.filter(pl.col("policy") == "equal_weight").group_by("run_id", "fold")
    market = market.agg(((1.0 + pl.col("net_return")).product() - 1.0).alias("market"))
    excess = windows.join(market, on=["run_id", "fold"]).with_columns(d=pl.col("value") - pl.col("market"))
    scored = excess.with_columns(score=50.0 * (1.0 + pl.col("d") / pl.col("d").abs().max().over("fold")))
    expected = scored.filter(pl.col("policy") == "ppo")["score"].mean()
    assert row(table, "ppo", "total_return")["score"] == pytest.approx(expected)


def test_one_over_n_has_the_greatest_entropy(table):
    found = table.filter(pl.col("statistic") == "entropy").sort("value", descending=True)
    assert found["policy"][0] == "equal_weight"
    assert found["value"][0] == pytest.approx(np.log(len(NAMES)))
    assert found["score"].max() == 50.0
    bets = table.filter(pl.col("statistic") == "effective_bets")["value"]
    assert bets.is_between(1.0, len(NAMES)).all()


def test_single_seeds_have_no_statistics_over_seeds(table):
    of_seeds = table.filter(pl.col("axis") == "reliability", pl.col("measure") != OF_AXIS)
    assert of_seeds.filter(pl.col("kind") == "policy")["value"].is_null().all()
    assert of_seeds.filter(pl.col("kind") == "ensemble")["value"].is_not_null().all()
    baseline = row(table, "buy_and_hold", "seed_deviation")
    assert (baseline["value"], baseline["note"]) == (None, "a deviation over seeds needs 2 seeds, got 1")


def test_the_spread_over_seeds_is_that_of_their_total_returns(record, table):
    seeds = (
        record.curves.filter(pl.col("policy").str.starts_with("ppo/"))
        .group_by("policy", "fold")
        .agg((1.0 + pl.col("net_return")).product().alias("end"))
    )
    expected = seeds.group_by("fold").agg(pl.col("end").std())["end"].mean()
    assert row(table, "ppo", "seed_deviation")["value"] == pytest.approx(expected)


def test_one_market_of_one_is_counted_and_not_scored(record, table):
    country = row(table, "ppo", "markets")
    assert (country["value"], country["score"], country["reported"]) == (1.0, None, False)
    assert country["note"].startswith("1 of 1")
    windows = row(table, "ppo", "windows")
    assert (windows["value"], windows["reported"]) == (float(N_FOLDS), True)
    sharpes = [window_measures(record, policy) for policy in ("ppo", "equal_weight")]
    assert windows["score"] == pytest.approx(
        100.0 * np.mean([mine > market for mine, market in zip(*sharpes, strict=True)])
    )


@pytest.mark.slow
def test_an_experiment_on_two_markets_has_a_row_for_both_together(compass_of):
    there = run_of("ppo", "run-3", seed=2, source="other", days=2)
    both = compass_of(record_of(run_of("ppo", "run-1"), there, sources=("sample", "other"))).table
    country = row(both, "ppo", "markets")
    assert (country["value"], country["reported"]) == (2.0, True)
    assert country["score"] in {0.0, 50.0, 100.0}
    assert row(both, "ppo", "windows")["value"] == 2.0 * N_FOLDS
    assert both.filter(pl.col("policy") == "ppo")["markets"][0].to_list() == ["other", "sample"]


@pytest.mark.parametrize(
    ("statistic", "note"),
    [
        ("countries", "1 of 1: US (sample); too few to compare: 1 of at least 2"),
        ("asset_types", "1 of 1: stocks (sample); too few to compare: 1 of at least 2"),
        ("time_scales", "1 of 1: daily (sample); too few to compare: 1 of at least 2"),
    ],
)
def test_kinds_of_one_market_are_counted_and_not_scored(table, statistic, note):
    kind = row(table, "ppo", statistic)
    assert (kind["value"], kind["score"], kind["reported"], kind["note"]) == (1.0, None, False, note)


@pytest.mark.slow
def test_kinds_of_two_markets_are_those_of_their_calendars(compass_of):
    calendars = Calendars({"coins": TradingCalendar("24/7")})
    runs = run_of("ppo", "run-1"), run_of("ppo", "run-3", seed=2, source="coins"), run_of("a2c", "run-2", seed=1)
    table = compass_of(record_of(*runs, sources=("coins", "sample"), calendars=calendars)).table
    names = ("markets", "countries", "asset_types", "time_scales")
    both, one = ({name: row(table, policy, name) for name in names} for policy in ("ppo", "a2c"))
    assert [both[name]["value"] for name in names] == [2.0, 2.0, 2.0, 1.0]
    assert both["countries"]["score"] == both["asset_types"]["score"] == both["markets"]["score"] is not None
    assert [both[name]["note"] for name in names] == [
        None,
        "2 of 2: US (sample), international (coins)",
        "2 of 2: coins (coins), stocks (sample)",
        "1 of 1: daily (coins, sample); too few to compare: 1 of at least 2",
    ]
    assert [both[name]["reported"] for name in names] == [True, True, True, False]
    assert [one[name]["value"] for name in names] == [1.0] * 4
    assert one["markets"]["note"].startswith("1 of 2: ")
    assert one["asset_types"]["note"].startswith("1 of 2: stocks (sample); ")


def test_a_baseline_stands_once_in_a_window_as_the_newest_run_walked_it(record, table):
    newest = np.mean(window_measures(record, "buy_and_hold", "run-2"))
    assert row(table, "buy_and_hold", "sharpe")["value"] == pytest.approx(newest)
    assert row(table, "buy_and_hold", "windows")["value"] == float(N_FOLDS)


@pytest.mark.slow
def test_who_finished_last_changes_nothing_of_an_experiment(record, compass, compass_of):
    runs = [run_of("a2c", "run-2", seed=1), run_of("ppo", "run-1", seed=0, days=1)]
    turned = compass_of(record_of(*runs)).table.filter(pl.col("kind") != "baseline")
    before = compass.table.filter(pl.col("kind") != "baseline")
    order = ["policy", "statistic", "axis"]
    of_all = pl.col("statistic").str.starts_with("rank:") | (pl.col("statistic") == "trustworthiness")
    frames = [rows.filter(~of_all, pl.col("measure") != OF_AXIS).sort(order) for rows in (turned, before)]
    assert_frame_equal(*frames)


def shifted(run, by):
    runs, curves, actions = run
    return runs, *(frame.with_columns(pl.col("session").dt.offset_by(by)) for frame in (curves, actions))


@pytest.mark.slow
def test_windows_of_an_older_run_keep_its_baselines_to_be_scaled_by(compass_of):
    alone = compass_of(record_of(run_of("ppo"))).table
    beside = compass_of(record_of(run_of("ppo"), shifted(run_of("late", "run-9", seed=3, days=5), "1y"))).table
    for statistic in ("total_return", "volatility", "entropy", "area_under_profile"):
        assert row(beside, "ppo", statistic)["score"] == pytest.approx(row(alone, "ppo", statistic)["score"])
    assert row(beside, "buy_and_hold", "windows")["value"] == 2.0 * N_FOLDS


def ruined(record, policy="ppo", at=100):
    """The record in which an account loses everything at a session and has zeros for ever after."""
    lost = sorted(record.curves["session"].unique())[at]
    mine = (pl.col("policy") == policy) & (pl.col("session") >= lost)
    after = pl.when(mine & (pl.col("session") == lost)).then(-1.0).when(mine).then(0.0).otherwise("net_return")
    return replace(record, curves=record.curves.with_columns(net_return=after)), lost


@pytest.mark.slow
def test_ruined_account_scores_zero_from_then_on(record, compass_of):
    bankrupt, lost = ruined(record)
    table = compass_of(bankrupt).table
    n_before, n_after = 1, N_FOLDS - 1
    for statistic in ("volatility", "downside_deviation", "max_drawdown", "sharpe", "total_return"):
        found = row(table, "ppo", statistic)
        assert found["score"] <= 100.0 * n_before / N_FOLDS, statistic
        assert found["note"] == f"{n_after} of {N_FOLDS} windows score 0: all was lost on {lost}"
    assert row(table, "ppo", "excess_growth_slope")["score"] == 0.0
    drawdown = bankrupt.curves.filter(pl.col("policy") == "ppo", pl.col("fold") == 0)["net_return"].to_numpy()
    assert row(table, "ppo", "max_drawdown")["value"] == pytest.approx((max_drawdown(drawdown) + n_after) / N_FOLDS)
    assert row(table, "ppo", "final_equity")["value"] == 0.0


@pytest.mark.slow
def test_who_lost_all_ranks_last_and_is_behind_in_its_windows(record, compass_of):
    table = compass_of(ruined(record, at=0)[0]).table
    assert row(table, "ppo", "windows")["score"] == 0.0
    found = compass_of(ruined(record, "buy_and_hold", at=0)[0])
    for statistic in ("sharpe", "total_return", "volatility"):
        last = found.ranks.filter(policy="buy_and_hold", statistic=statistic).sort("rank")["share"].to_list()
        assert last == pytest.approx([0.0, 0.0, 0.0, 0.0, 1.0])


def test_seed_deviation_has_a_value_but_no_score(table):
    spread = table.filter(pl.col("statistic") == "seed_deviation")
    assert spread["score"].is_null().all()
    assert "1/N has no seeds" in row(table, "ppo", "seed_deviation")["note"]


@pytest.mark.slow
def test_an_axis_of_fewer_measures_than_others_have_says_so(compass_of):
    runs, curves, actions = run_of("brief", "run-9", days=5)
    brief = (runs, curves.filter(pl.col("fold") == 0), actions.filter(pl.col("fold") == 0))
    table = compass_of(record_of(run_of("ppo"), brief)).table
    axis = table.filter(policy="brief", axis="profitability", measure=OF_AXIS).row(0, named=True)
    assert axis["note"] == "mean of 1 of the 2 measures that other policies have scores in"
    assert table.filter(policy="ppo", axis="profitability", measure=OF_AXIS)["note"].item() is None


def test_only_the_latest_run_of_an_experiment_on_a_market_counts():
    runs = [run_of("ppo", f"run-{i}", days=day)[0] for i, day in enumerate((0, 2, 1))]
    elsewhere = run_of("ppo", "run-9", source="other", days=-1)[0]
    assert latest_runs(pl.concat([*runs, elsewhere]))["run_id"].to_list() == ["run-9", "run-1"]


def test_run_without_equal_weight_has_values_but_no_scores(compass_of):
    alone = compass_of(record_of(run_of(baselines=("buy_and_hold",)))).table
    found = row(alone, "ppo", "sharpe")
    assert found["value"] is not None
    assert found["score"] is None
    assert found["note"] == "no score: the run has no baseline equal_weight, the market average"
    assert alone["score"].is_null().all()
    assert not alone.filter(pl.col("score").is_null() & pl.col("note").is_null()).height


def test_a_policy_without_seeds_is_judged_by_its_own_account(compass_of):
    found = compass_of(record_of(run_of("optimizer", n_seeds=0))).table
    area = row(found, "optimizer", "area_under_profile")
    assert area["score"] == pytest.approx(100.0 * area["value"])
    assert area["note"] == "no band: a band over seeds needs 2 per task, but one has 1"
    assert row(found, "optimizer", "seed_deviation")["value"] is None


@pytest.mark.slow
def test_policies_of_other_test_windows_are_not_ranked_with_the_rest(compass_of):
    runs, curves, actions = run_of("late", "run-9", days=5, baselines=("equal_weight",))
    shifted = [frame.with_columns(pl.col("session").dt.offset_by("20y")) for frame in (curves, actions)]
    pair = compass_of(record_of(run_of("ppo"), (runs, *shifted))).table
    note = row(pair, "late", "rank:sharpe")["note"]
    assert note == "its test windows differ from those of the 4 ranked policies"
    assert row(pair, "late", "average_correlation")["note"].startswith("correlations need 3 sessions")


def test_extreme_market_statistics_use_its_sessions(record):
    back = [frame.with_columns(pl.col("session").dt.offset_by(TO_2020)) for frame in (record.curves, record.actions)]
    moved = replace(record, curves=back[0], actions=back[1])
    rows = return_windows(moved).filter(pl.col("policy") == "ppo", pl.col("statistic") == "total_return:covid_crash")
    inside = back[0].filter(
        pl.col("policy") == "ppo", pl.col("session").is_between(date(2020, 2, 20), date(2020, 4, 30))
    )
    assert len(inside) > 20
    assert rows["value"].item() == pytest.approx((1.0 + inside["net_return"]).product() - 1.0)


@pytest.mark.slow
def test_compass_does_not_depend_on_row_order(record, compass):
    shuffled = [frame.sample(fraction=1.0, shuffle=True, seed=1) for frame in (record.curves, record.actions)]
    again = prudex_compass(replace(record, curves=shuffled[0], actions=shuffled[1]))
    for name in ("table", "profiles", "ranks", "plane", "heat"):
        assert_frame_equal(getattr(again, name), getattr(compass, name), rel_tol=0.0, abs_tol=0.0)
    assert again.note == compass.note == "survivorship bias"


def test_a_return_that_is_no_number_is_refused_with_its_account(record):
    broken = record.curves.with_columns(
        pl.when((pl.col("policy") == "a2c") & (pl.col("fold") == 1))
        .then(np.nan)
        .otherwise("net_return")
        .alias("net_return")
    )
    with pytest.raises(ValueError, match="a2c of run run-2"):
        prudex_compass(replace(record, curves=broken))


def test_accounts_of_unequal_length_are_refused(record):
    first = record.curves["session"].min()
    shorter = record.curves.filter((pl.col("policy") != "ppo") | (pl.col("session") != first))
    with pytest.raises(ValueError):
        prudex_compass(replace(record, curves=shorter))


def test_no_runs_have_no_rows(record):
    nothing = replace(record, **{name: getattr(record, name).clear() for name in ("runs", "curves", "actions")})
    empty = prudex_compass(nothing)
    assert empty.table.schema == PRUDEX
    assert not any(map(len, (empty.table, empty.profiles, empty.ranks, empty.plane, empty.heat)))


def test_the_scores_of_axes_are_a_line_for_each_experiment_and_baseline(table):
    lines = axis_scores(table)
    assert lines["policy"].to_list() == [*sorted(BASELINES), "a2c", "ppo"]
    assert lines.columns == ["kind", "policy", *AXES, "measures of 16"]
    reported = table.filter(pl.col("policy") == "ppo", pl.col("reported"), pl.col("measure").is_in(RING))
    assert lines["measures of 16"][-1] == reported["measure"].n_unique()
