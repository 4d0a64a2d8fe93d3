from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.components.columns import UTC_TIME
from nvtrader_pipelines.evaluation.sharpe.deflation import deflated_sharpe_ratio
from nvtrader_pipelines.evaluation.sharpe.inference import (
    sharpe_moments,
)
from nvtrader_pipelines.evaluation.sharpe.ratio_curve import sharpe_ratio_curve
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.trial_validation import validate
from nvtrader_pipelines.evaluation.trials import Against, trials_of
from nvtrader_pipelines.evaluation.verdict_tables import RATIO_CURVE
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK
from tests.evaluation.small_trials import SESSIONS, WHOLE, run_curves
from tests.evaluation.test_trial_validation import QUICK

PERIODS = ("fold", "all", "from_2016")
SEARCHES = {
    **dict.fromkeys(("session_id", "spec_hash", "status", "source"), pl.String),
    "trial_id": pl.Int64,
    "finished_at": UTC_TIME,
    **dict.fromkeys(("validation_from", "sealed_from"), pl.Date),
    **dict.fromkeys(("sharpe", "max_drawdown"), pl.Float64),
    "net_returns": pl.List(pl.Float64),
}
NOT_SEARCHED = pl.DataFrame(schema=SEARCHES)


def runs(n_runs, validation_only=()):
    return pl.DataFrame(
        {
            "run_id": [f"run-{i}" for i in range(n_runs)],
            "spec_hash": [f"hash-{i}" for i in range(n_runs)],
            "experiment": [f"ppo@{i}" for i in range(n_runs)],
            "source": "sample",
            "finished_at": [datetime(2024, 1, 1 + i, tzinfo=UTC) for i in range(n_runs)],
            "validation_only": [i in validation_only for i in range(n_runs)],
        }
    )


def trials(n_runs, source="sample", validation_only=()):
    columns = ["run_id", "finished_at", "validation_only"]
    return runs(n_runs, validation_only).select(*columns, pl.lit(source).alias("source"))


def curves(n_runs, **changes):
    return pl.concat([run_curves(f"run-{i}", seed=i, **changes) for i in range(n_runs)])


def evaluations(sharpes, kinds=("policy", "ensemble", "baseline")):
    rows = [
        (f"run-{i}", kind, period, sharpe if kind == "ensemble" else 9.0, sharpe - 1.0, sharpe + 1.0, 0.2)
        for i, sharpe in enumerate(sharpes)
        for period in PERIODS
        for kind in kinds
    ]
    columns = ["run_id", "kind", "period", "sharpe", "sharpe_low", "sharpe_high", "max_drawdown"]
    first = pl.when(pl.col("period") == "from_2016").then(date(2016, 1, 1)).otherwise(WHOLE.first)
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    return frame.with_columns(first_session=first, last_session=WHOLE.last)


def searches(*days, first=0, last=700, **changes):
    """Search trials that finished on these days of January 2024, before the runs of those days, on a validation."""
    rows = [
        {
            "session_id": "search",
            "trial_id": i + 1,
            "spec_hash": f"configuration-{day}-{i}",
            "status": "judged",
            "source": "sample",
            "finished_at": datetime(2024, 1, day, tzinfo=UTC) - timedelta(hours=1),
            "sharpe": 0.1 * i,
            "max_drawdown": 0.3,
            "validation_from": SESSIONS[first].item(),
            "sealed_from": SESSIONS[last - 1].item() + timedelta(days=1),
            "net_returns": np.random.default_rng([9, i]).normal(0.0004, 0.01, last - first).tolist(),
            **changes,
        }
        for i, day in enumerate(days)
    ]
    return pl.DataFrame(rows, schema=SEARCHES, orient="row")


def curve_of(sharpes, n_runs=None, returns=None, validation_only=(), searched=NOT_SEARCHED, **changes):
    n = n_runs or len(sharpes)
    returns = curves(n) if returns is None else returns
    own = trials(n, validation_only=validation_only)
    return sharpe_ratio_curve(
        runs(n, validation_only), evaluations(sharpes, **changes), own, returns, searched, ALL_NEW_YORK
    )


def test_each_run_and_period_has_one_row_of_its_ensemble():
    curve = curve_of([0.5, 0.9, 0.7, 0.9])
    assert curve.columns == RATIO_CURVE.names()
    assert len(curve) == 8
    every = curve.filter(pl.col("period") == "all")
    assert every["sharpe"].to_list() == [0.5, 0.9, 0.7, 0.9]
    assert every["rank"].to_list() == [4, 1, 3, 1]
    assert every["best_so_far"].to_list() == [True, True, False, False]


def test_runs_on_different_markets_are_ranked_apart():
    two = runs(2).with_columns(source=pl.Series(["sample", "landing"]))
    own = two.select("run_id", "finished_at", "validation_only", "source")
    every = sharpe_ratio_curve(two, evaluations([0.9, 0.5]), own, curves(2), NOT_SEARCHED, ALL_NEW_YORK).filter(
        pl.col("period") == "all"
    )
    assert every["rank"].to_list() == [1, 1]
    assert every["best_so_far"].to_list() == [True, True]


def test_validation_only_run_is_unranked_but_counts_as_trial():
    every = curve_of([0.5, 0.9, 0.7, 0.8], validation_only=[1]).filter(pl.col("period") == "all")
    assert every["rank"].to_list() == [3, None, 2, 1]
    assert every["best_so_far"].to_list() == [True, False, True, True]
    assert every["n_trials"].to_list() == [1, 2, 3, 4]
    assert every["note"][1].startswith("validation only")
    assert every["deflated_sharpe"].null_count() == every["information_ratio"].null_count() == 1


def test_a_market_with_nothing_but_a_run_for_validation_has_no_rank():
    only = curve_of([0.5], validation_only=[0])
    assert (only["rank"].null_count(), only["best_so_far"].any()) == (len(only), False)
    assert only["note"].str.starts_with("validation only").all()


def test_runs_stand_in_the_order_they_finished():
    curve = sharpe_ratio_curve(
        runs(3).reverse(), evaluations([0.5, 0.6, 0.7]), trials(3), curves(3), NOT_SEARCHED, ALL_NEW_YORK
    )
    assert curve.filter(pl.col("period") == "all")["run_id"].to_list() == ["run-0", "run-1", "run-2"]


def test_a_run_without_an_ensemble_is_represented_by_its_policy():
    assert curve_of([0.5], kinds=("baseline", "policy"))["sharpe"].to_list() == [9.0, 9.0]


def test_a_run_that_is_not_complete_is_left_out():
    assert set(curve_of([0.5, 0.6], n_runs=1)["run_id"]) == {"run-0"}


def test_no_runs_make_an_empty_curve():
    nothing = runs(1).clear()
    assert sharpe_ratio_curve(
        nothing, evaluations([0.5]), trials(1).clear(), curves(1).clear(), NOT_SEARCHED, ALL_NEW_YORK
    ).is_empty()


@pytest.mark.slow
def test_a_run_is_deflated_for_those_that_had_finished_by_then():
    curve = curve_of([0.5] * 4).filter(pl.col("period") == "all")
    assert curve["n_trials"].to_list() == [1, 2, 3, 4]
    for i, row in enumerate(curve.iter_rows(named=True)):
        known = trials_of(trials(i + 1), curves(4), WHOLE, 252).known
        assert row["best_baseline"] == known[i].best_baseline_name
        assert row["information_ratio"] == pytest.approx(sharpe_ratio(known[i].returns("best_baseline"), 252))
        columns: dict[str, Against] = {"deflated_sharpe": "zero", "deflated_information_ratio": "best_baseline"}
        for name, against in columns.items():
            moments = [sharpe_moments(trial.returns(against)) for trial in known]
            variance = float(np.var([each.sharpe for each in moments], ddof=1)) if i else 0.0
            assert row[name] == pytest.approx(deflated_sharpe_ratio(moments[i], i + 1, variance))


def test_what_later_runs_are_like_changes_nothing_of_earlier_ones():
    few, many = curve_of([0.5] * 3), curve_of([0.5] * 5)
    names = ["run_id", "period", "n_trials", "deflated_sharpe", "information_ratio", "deflated_information_ratio"]
    assert many.select(names).head(len(few)).equals(few.select(names))


@pytest.mark.parametrize("short", [{}, {"first": 200, "last": 500}, {"last": 3}])
def test_the_newest_run_is_worth_what_the_validation_says(short):
    returns = pl.concat([run_curves("run-0"), run_curves("run-1", seed=1, **short), run_curves("run-2", seed=2)])
    newest = curve_of([0.5] * 3, returns=returns).filter(pl.col("period") == "all").tail(1)
    judged = validate(trials_of(trials(3), returns, WHOLE, 252), QUICK).trials.filter(pl.col("run_id") == "run-2")
    assert judged["deflated_sharpe"].to_list()[:2] == pytest.approx(
        [newest["deflated_sharpe"][0], newest["deflated_information_ratio"][0]]
    )


def test_shorter_run_is_deflated_on_its_own_sessions():
    returns = pl.concat([run_curves("run-0"), run_curves("run-1", last=400, seed=1), run_curves("run-2", seed=2)])
    curve = curve_of([0.5] * 3, returns=returns).filter(pl.col("period") == "all")
    for i, trial in enumerate(trials_of(trials(3), returns, WHOLE, 252).known):
        assert len(trial.sessions) == (400 if i == 1 else 700)
        assert curve["information_ratio"][i] == pytest.approx(sharpe_ratio(trial.returns("best_baseline"), 252))
    assert curve["deflated_information_ratio"].null_count() == 0


def test_a_run_of_too_few_sessions_counts_and_says_why_it_has_nothing():
    returns = pl.concat([run_curves("run-0"), run_curves("run-1", last=3, seed=1), run_curves("run-2", seed=2)])
    curve = curve_of([0.5] * 3, returns=returns).filter(pl.col("period") == "all")
    assert curve["n_trials"].to_list() == [1, 2, 3]
    assert curve.row(1, named=True)["information_ratio"] is None
    assert curve["note"][1] == "3 sessions in the period, 4 needed"
    assert curve["deflated_information_ratio"][2] is not None


def test_runs_of_another_market_deflate_nothing():
    curve = sharpe_ratio_curve(
        runs(3),
        evaluations([0.5] * 3),
        pl.concat([trials(2), trials(3, source="other").tail(1)]),
        curves(3),
        NOT_SEARCHED,
        ALL_NEW_YORK,
    )
    assert curve.filter(pl.col("period") == "all")["n_trials"].to_list() == [1, 2, 1]


def test_a_run_whose_returns_are_lost_counts_and_has_none_of_its_own():
    returns = curves(3).filter(pl.col("run_id") != "run-1")
    every = curve_of([0.5] * 3, returns=returns).filter(pl.col("period") == "all")
    assert every["n_trials"].to_list() == [1, None, 3]
    assert every["deflated_information_ratio"].null_count() == 1
    assert "no such completed run with returns" in every["note"][1]


def test_first_run_and_copy_of_baseline_carry_notes():
    returns = curves(2)
    copied = pl.concat(
        [
            returns.filter(pl.col("run_id") == "run-0"),
            pl.concat(
                [
                    run_curves("run-1", baselines=("equal_weight",)).filter(pl.col("kind") == "baseline"),
                    run_curves("run-1", baselines=("equal_weight",))
                    .filter(pl.col("kind") == "baseline")
                    .with_columns(kind=pl.lit("ensemble"), policy=pl.lit("run-1")),
                ]
            ),
        ]
    )
    every = curve_of([0.5, 0.5], returns=copied).filter(pl.col("period") == "all")
    assert "one trial only" in every["note"][0]
    assert every["information_ratio"][1] == 0.0
    assert every["deflated_information_ratio"][1] is None
    assert every["deflated_sharpe"][1] is not None
    assert "needs returns that vary" in every["note"][1]


def test_runs_and_search_trials_are_deflated_for_all_before_them():
    searched = searches(1, 2, 2, 3)  # before the first run, twice before the second, and before the third
    curve = curve_of([0.5] * 3, searched=searched)
    every = curve.filter(pl.col("period").is_in(["all", "validation"]))
    assert every["kind"].to_list() == ["trial", "run", "trial", "trial", "run", "trial", "run"]
    assert every["n_trials"].to_list() == [1, 2, 3, 4, 5, 6, 7]
    net = [trial.net for trial in trials_of(trials(3), curves(3), WHOLE, 252).known]
    found = [np.array(row) for row in searched["net_returns"]]
    returns = [found[0], net[0], *found[1:3], net[1], found[3], net[2]]
    ratios = [sharpe_moments(each).sharpe for each in returns]
    for i, deflated in enumerate(every["deflated_sharpe"]):
        variance = float(np.var(ratios[: i + 1], ddof=1)) if i else 0.0
        assert deflated == pytest.approx(deflated_sharpe_ratio(sharpe_moments(returns[i]), i + 1, variance))


def test_search_trial_counts_for_a_run_by_the_share_of_its_sessions():
    searched = searches(1, last=350)
    returns = pl.concat([run_curves("run-0"), run_curves("run-1", first=350, seed=1)])
    first, later = curve_of([0.5] * 2, returns=returns, searched=searched).filter(period="all").rows(named=True)
    run, after = trials_of(trials(2), returns, WHOLE, 252).known
    ratios = [sharpe_moments(np.array(searched["net_returns"][0])).sharpe, run.sharpe["zero"]]
    variance = float(np.cov(ratios, aweights=[1, 2]))
    assert first["deflated_sharpe"] == pytest.approx(deflated_sharpe_ratio(sharpe_moments(run.net), 1.5, variance))
    pair = float(np.var([run.sharpe["zero"], after.sharpe["zero"]], ddof=1))
    assert later["n_trials"] == 3  # of which the search shares no session
    assert later["deflated_sharpe"] == pytest.approx(deflated_sharpe_ratio(sharpe_moments(after.net), 2, pair))


def test_information_ratio_is_deflated_for_search_trials_by_number():
    with_search = curve_of([0.5] * 3, searched=searches(1, 2)).filter(kind="run", period="all")
    known = trials_of(trials(3), curves(3), WHOLE, 252).known
    ratios = [trial.sharpe["best_baseline"] for trial in known]
    moments = sharpe_moments(known[-1].returns("best_baseline"))
    expected = deflated_sharpe_ratio(moments, 5, float(np.var(ratios, ddof=1)))
    assert with_search["deflated_information_ratio"][-1] == pytest.approx(expected)


def test_search_trials_are_ranked_among_themselves_and_identified():
    curve = curve_of([0.05], searched=searches(2, 2, 2))
    assert curve.columns == RATIO_CURVE.names()
    found = curve.filter(kind="trial")
    assert found["rank"].to_list() == [3, 2, 1]
    assert found["best_so_far"].to_list() == [True, True, True]
    assert found.select("session_id", "trial_id", "experiment", "run_id", "max_drawdown").row(0) == (
        *("search", 1, "search/trial-1", None, 0.3),
    )
    assert curve.filter(kind="run")["rank"].to_list() == [1, 1]


def test_configuration_searched_twice_counts_once():
    curve = curve_of([0.5], searched=searches(1, 1, 2, spec_hash="same"))
    assert curve.filter(kind="trial")["n_trials"].to_list() == [1, 1, 2]


def test_pruned_search_trial_counts_without_a_row():
    curve = curve_of([0.5], searched=searches(1, status="pruned", net_returns=None, max_drawdown=None))
    assert set(curve["kind"]) == {"run"}
    assert curve.filter(period="all")["n_trials"].to_list() == [2]
    assert "two trials with enough returns" in curve.filter(period="all")["note"][0]


def test_search_trial_without_stored_returns_has_a_row_and_a_note():
    (row,) = curve_of([0.5], searched=searches(3, net_returns=None)).filter(kind="trial").rows(named=True)
    assert (row["sharpe"], row["n_trials"], row["deflated_sharpe"]) == (0.0, 2, None)
    assert row["note"].startswith("its returns are no longer")


def test_searches_without_any_run_have_a_curve():
    nothing = runs(1).clear(), evaluations([0.5]), trials(1).clear(), curves(1).clear()
    curve = sharpe_ratio_curve(*nothing, searches(1, 2), ALL_NEW_YORK)
    assert curve["n_trials"].to_list() == [1, 2]
    assert curve["deflated_sharpe"].null_count() == 0
