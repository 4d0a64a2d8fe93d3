import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines import figures
from nvtrader_pipelines.evaluation.guard_telemetry import GUARDS
from nvtrader_pipelines.evaluation.regime_evaluation import SegmentIntervals, evaluate_regimes
from nvtrader_pipelines.evaluation.shared_sessions import shared_curves
from nvtrader_pipelines.evaluation.tear_sheet import TearSheet
from nvtrader_pipelines.figures.regime_figures import regimes_figure
from nvtrader_pipelines.figures.scoreboard_figure import scoreboard_figure
from nvtrader_pipelines.market.calendar import ALL_NEW_YORK
from nvtrader_pipelines.market.regimes import regime_labels
from nvtrader_pipelines.portfolio.pipeline.stage import Guards
from tests.evaluation.accounts import REPORT_FROM, WHO, equity_curves
from tests.figures.pictures import pixels
from tests.markets import csv_file, market_tables, synthetic_bars, synthetic_sessions

pytestmark = pytest.mark.slow


def training_curves(n_folds=7):
    rows = [
        (fold, seed, 1000 * step, 0.01 * step - 0.02 * seed)
        for fold in range(n_folds)
        for seed in range(3)
        for step in range(5)
    ]
    return pl.DataFrame(rows, schema=["fold", "seed", "timesteps", "mean_reward"], orient="row")


DEFLATED = ("deflated_sharpe", "deflated_information_ratio")


def ratio_curve(n_runs, periods=("all", "from_2010")):
    start = datetime(2024, 1, 1, tzinfo=UTC)
    rows = [
        (
            "run",
            f"run-{i}",
            f"ppo-{i}@12345678",
            start + timedelta(hours=i),
            period,
            0.5,
            0.1,
            0.9,
            0.3,
            i + 1,
            0.99,
            None if i == 1 else 0.4,
        )
        for i in range(n_runs)
        for period in periods
    ]
    columns = ["kind", "run_id", "experiment", "finished_at", "period", "sharpe", "sharpe_low", "sharpe_high"]
    return pl.DataFrame(rows, schema=[*columns, "max_drawdown", "rank", *DEFLATED], orient="row")


def searched_curve(n_runs, n_trials):
    """Ratio curve of runs, and of search trials after the first of them."""
    runs = ratio_curve(max(n_runs, 1), periods=("all",))
    trials = pl.concat([runs.head(1)] * n_trials).with_columns(
        kind=pl.lit("trial"),
        period=pl.lit("validation"),
        run_id=pl.lit(None, pl.String),
        experiment=pl.format("search/trial-{}", pl.int_range(1, n_trials + 1)),
        sharpe=0.5 + 0.001 * pl.int_range(n_trials),
        finished_at=pl.col("finished_at") + pl.duration(seconds=pl.int_range(1, n_trials + 1)),
    )
    return pl.concat([runs.head(n_runs), trials])


def action_logs(n_names=20, n_decisions=60):
    weights = np.random.default_rng(0).dirichlet(np.ones(n_names + 1), n_decisions)
    return pl.DataFrame(
        {
            "session": synthetic_sessions(n_decisions).tolist(),
            "symbols": [[*(f"N{i}" for i in range(n_names)), "cash"]] * n_decisions,
            "executed_weights": weights.tolist(),
        }
    )


def decomposition(n_decisions=60):
    rows = [
        (session, term, 0.01 * i - 0.02 * (term == "volatility_penalty"))
        for i, session in enumerate(synthetic_sessions(n_decisions).tolist())
        for term in ("log_growth", "volatility_penalty", "cvar_excess")
    ]
    return pl.DataFrame(rows, schema=["session", "term", "contribution"], orient="row")


@cache
def regimes():
    """Rows of `gold.regimes` of one source."""
    return regime_labels(market_tables(csv_file(synthetic_bars(n_sessions=600))).returns).rows


def regime_evaluation(who=WHO):
    return evaluate_regimes(equity_curves(who=who), regimes(), 252, SegmentIntervals(n_draws=50))


def board(n_entrants=16):
    """A scoreboard with an account in cash among gains and losses, and one that was not judged."""
    kinds = ("run", "sb3", "weights", "baseline")
    rows = [
        {
            "source": "sample",
            "calendar": "XNYS",
            "first_session": date(2001, 1, 2),
            "last_session": date(2022, 12, 28),
            "rank": i + 1 if i else None,
            "entrant": f"entrant_of_many_words-{i}",
            "kind": kinds[i % 4],
            "sharpe": 0.1 * (8 - i) if i else None,
            "sharpe_low": 0.1 * (8 - i) - 0.4,
            "sharpe_high": 0.1 * (8 - i) + 0.4,
            "openings": [0.1 * (8 - i) + 0.02 * k for k in range(-2, 3)] if i else None,
            "information_ratio": None if i % 4 == 3 else 0.05 * (8 - i),
            "deflated_information_ratio": None if i % 4 == 3 else 0.5,
            "max_drawdown": 0.3,
        }
        for i in range(n_entrants)
    ]
    return pl.DataFrame(rows)


def tear_sheet(n_sessions=400):
    """Tear sheet of a random account."""
    generator = np.random.default_rng(1)
    values = {"net_return": generator.normal(0.0005, 0.01, n_sessions), "turnover": 0.1, "cash": 0.2, "gross": 0.8}
    return TearSheet.of(pl.DataFrame({"session": synthetic_sessions(n_sessions).tolist()}).with_columns(**values), 252)


def shared(n_sessions=200, n_accounts=8):
    """Curves of accounts on shared sessions."""
    generator = np.random.default_rng(2)
    days = synthetic_sessions(n_sessions).tolist()
    rows = [
        pl.DataFrame({"account": f"ppo-{i}", "session": days, "net_return": generator.normal(0.0005, 0.01, n_sessions)})
        for i in range(n_accounts)
    ]
    return shared_curves(pl.concat(rows), 252)


def exposures(gross=1.5):
    """Closes of an account with this gross, which is a tenth higher before the cap where it is levered."""
    days = synthetic_sessions(60).tolist()
    before, financing = (1.1 * gross, 0.0001) if gross > 1.0 else (gross, 0.0)
    return pl.DataFrame({"session": days}).with_columns(
        gross=gross, gross_before_cap=before, financing=pl.lit(financing)
    )


def fired_guards(n_decisions=60, scale=0.5):
    """Decisions with guards, of which every second was in a drawdown."""
    rows = [Guards(drawdown=i % 2 == 0, scale=scale, n_shutdown=i % 3)._asdict() for i in range(n_decisions)]
    days = pl.Series("session", synthetic_sessions(60).tolist()[:n_decisions])
    return pl.DataFrame(rows, schema=dict(GUARDS)).insert_column(0, days)


FIGURES = {
    "exposure": lambda note: figures.exposure_figure(exposures(), fired_guards(), {"cap": 1.5}, "ppo", note).png(),
    "comparison": lambda note: figures.comparison_figure(shared(), "8 runs", note).png(),
    "scoreboard": lambda note: scoreboard_figure(board().drop_nulls("rank"), note).png(),
    "regimes": lambda note: regimes_figure(regimes(), "Regimes", 252, note).png(),
    "regime_evaluation": lambda note: figures.regime_evaluation_figure(regime_evaluation(), "By regime", note).png(),
    "equity": lambda note: figures.equity_figure(equity_curves(), "Equity", REPORT_FROM, note).png(),
    "learning": lambda note: figures.learning_figure(training_curves(), "Mean reward while training", note).png(),
    "ratio_curve": lambda note: figures.ratio_curve_figure(ratio_curve(6), note=note).png(),
    "weights": lambda note: figures.weights_figure(action_logs(), "Weights over time", note).png(),
    "reward_terms": lambda note: figures.reward_terms_figure(
        decomposition(), "Reward by term, summed over time", note
    ).png(),
}


@pytest.mark.parametrize(
    ("gross", "guards", "panels"),
    [
        (1.5, fired_guards(0), ["gross", "financing"]),
        (0.9, fired_guards(scale=1.0), ["gross", "guards"]),
        (0.9, fired_guards(scale=0.5), ["gross", "guards", "scale"]),
        (1.5, fired_guards(scale=0.5), ["gross", "financing", "guards", "scale"]),
    ],
)
def test_exposure_has_panels_for_what_the_account_has(gross, guards, panels):
    axes = figures.exposure_figure(exposures(gross), guards, {}, "ppo").figure.axes
    assert [re.split(r"\W", each.get_ylabel())[0] for each in axes] == panels
    assert len(axes[0].lines) == (2 if gross > 1.0 else 1)


def test_a_scoreboard_without_anybody_ranked_has_no_figure():
    assert figures.scoreboard_figures(board(1)) == {}
    assert list(figures.scoreboard_figures(board(3))) == ["scoreboard_sample"]


@pytest.mark.parametrize("name", list(FIGURES))
def test_a_figure_is_a_png_of_one_slide(name, tmp_path):
    assert pixels(FIGURES[name]("survivorship bias flatters every result"), tmp_path).shape[:2] == (900, 1599)


@pytest.mark.parametrize(
    "name", ["equity", *(pytest.param(name, marks=pytest.mark.nightly) for name in FIGURES if name != "equity")]
)
def test_a_figure_drawn_twice_is_the_same(name):
    first, second = (FIGURES[name]("survivorship bias flatters every result") for _ in range(2))
    assert first == second


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(FIGURES))
def test_figures_leave_edges_free_and_only_a_note_at_the_foot(name, tmp_path):
    bare, noted = (pixels(FIGURES[name](note), tmp_path) for note in (None, "survivorship bias"))
    assert (bare[835:] == 1.0).all()
    assert (noted[835:] < 1.0).any()
    edges = (noted[:5], noted[-5:], noted[:, :5], noted[:, -5:])
    assert all((edge == 1.0).all() for edge in edges)


@pytest.mark.parametrize("report_from", [date(2000, 1, 1), date(2030, 1, 1)])
def test_the_reported_period_may_be_everything_or_nothing(report_from):
    assert figures.equity_figure(equity_curves(n_sessions=30), "Equity", report_from).png()


def test_baselines_alone_have_an_equity_figure():
    assert figures.equity_figure(equity_curves(who=(("equal_weight", "baseline"),)), "Equity", REPORT_FROM).png()


def test_a_long_name_is_cut_before_the_edge(tmp_path):
    who = (("ppo-residual-with-a-larger-network", "ensemble"), ("a_baseline_of_many_words", "baseline"))
    image = pixels(figures.equity_figure(equity_curves(who=who), "Equity", REPORT_FROM).png(), tmp_path)
    assert (image[:, -5:] == 1.0).all()


@pytest.mark.parametrize("n_folds", [1, pytest.param(4, marks=pytest.mark.nightly), 12])
def test_any_number_of_folds_has_a_learning_figure(n_folds):
    assert figures.learning_figure(training_curves(n_folds), "Mean reward while training").png()


@pytest.mark.parametrize("n_runs", [0, pytest.param(1, marks=pytest.mark.nightly), 40])
def test_any_number_of_runs_has_a_ratio_curve_figure(n_runs):
    assert figures.ratio_curve_figure(ratio_curve(n_runs) if n_runs else ratio_curve(1).clear()).png()


@pytest.mark.parametrize(("n_runs", "n_trials"), [(0, 3), (2, 1), (10, 500)])
def test_search_trials_are_points_apart_from_runs_in_every_panel(n_runs, n_trials):
    picture = figures.ratio_curve_figure(searched_curve(n_runs, n_trials))
    assert picture.png()
    for axes in picture.figure.axes:
        places = np.asarray(axes.collections[0].get_offsets())[:, 0]
        assert len(places) == n_trials
        assert (np.diff(places) > 0.0).all()
        assert np.ptp(places) <= max(n_runs, 0.5 * n_trials)
        ticks = np.array(axes.get_xticks())
        assert np.diff(np.sort(ticks)).min(initial=np.inf) >= np.ptp(axes.get_xlim()) / 11
    points, runs = picture.figure.axes[0].collections[0], picture.figure.axes[0].collections[-1]
    assert points.get_sizes()[0] < runs.get_sizes()[0]
    assert len(runs.get_offsets()) == n_runs


@pytest.mark.nightly
@pytest.mark.parametrize("n_sessions", [2, 10, 125, 126, 3000])
def test_tear_sheet_grows_with_years_and_leaves_edges_free(n_sessions, tmp_path):
    sheet = tear_sheet(n_sessions)
    image = pixels(figures.tear_sheet_figure(sheet, "ppo", "note").png(), tmp_path)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))
    heights = [figures.tear_sheet_figure(tear_sheet(n), "").figure.get_figheight() for n in (n_sessions, 4000)]
    assert heights[0] < heights[1]


def test_rolling_figures_of_a_narrow_range_have_distinct_tick_labels():
    sheet = tear_sheet(400)
    quiet = sheet.by_session.with_columns(exposure=0.75 + 0.002 * pl.col("exposure"))
    picture = figures.tear_sheet_figure(replace(sheet, by_session=quiet), "ppo")
    picture.png()
    exposure = picture.figure.axes[3]
    labels = [label.get_text() for label in exposure.get_yticklabels()]
    assert len(set(labels)) == len(labels)
    assert all(label.endswith("%") for label in labels)


@pytest.mark.parametrize(
    ("n_sessions", "n_runs"),
    [(2, 12), *(pytest.param(*of, marks=pytest.mark.nightly) for of in ((10, 2), (125, 2))), (300, 12)],
)
def test_comparison_of_few_sessions_or_many_runs_leaves_edges_free(n_sessions, n_runs, tmp_path):
    picture = figures.comparison_figure(shared(n_sessions, n_runs), "runs")
    image = pixels(picture.png(), tmp_path)
    dates = [label.get_text() for label in picture.figure.axes[2].get_xticklabels()]
    assert all(len(words) in {len("2015-01"), len("2015-01-02")} for words in dates)
    assert all((edge == 1.0).all() for edge in (image[:5], image[-5:], image[:, :5], image[:, -5:]))


def test_svg_is_equal_twice_and_has_no_date_or_link():
    first, second = (figures.comparison_figure(shared(), "8 runs").svg() for _ in range(2))
    assert first == second
    assert first.startswith(b"<?xml")
    assert b"<dc:date>" not in first
    assert re.search(rb' d="[^"]*\.\d\d', first) is None


def test_ratio_curve_shows_reported_period_if_there_is_one():
    curve = ratio_curve(2)
    reported = curve.filter(pl.col("period").str.starts_with("from_"))
    assert figures.ratio_curve_figure(curve).png() == figures.ratio_curve_figure(reported).png()
    assert (
        figures.ratio_curve_figure(curve).png()
        != figures.ratio_curve_figure(curve.filter(pl.col("period") == "all")).png()
    )


def test_a_portfolio_of_few_names_and_one_decision_has_a_weights_figure():
    assert figures.weights_figure(action_logs(n_names=2, n_decisions=1), "Weights over time").png()


def test_weights_of_a_levered_portfolio_have_debt_below_zero():
    levered = action_logs(n_names=2, n_decisions=2).with_columns(executed_weights=pl.lit([0.9, 0.6, -0.5]))
    axes = figures.weights_figure(levered, "Weights over time").figure.axes[0]
    assert axes.get_ylim() == pytest.approx((-0.5, 1.5))
    axes = figures.weights_figure(action_logs(), "Weights over time").figure.axes[0]
    assert axes.get_ylim() == (0.0, 1.0)


@pytest.mark.parametrize(
    ("figure", "record"), [(figures.weights_figure, action_logs), (figures.reward_terms_figure, decomposition)]
)
def test_of_several_accounts_the_ensemble_is_drawn(figure, record):
    rows = record(n_decisions=30)
    others = record(n_decisions=20).with_columns(policy=pl.lit("equal_weight"), kind=pl.lit("baseline"))
    several = pl.concat([others, rows.with_columns(policy=pl.lit("ppo"), kind=pl.lit("ensemble"))])
    assert figure(several, "ppo").png() == figure(rows, "ppo").png()
    with pytest.raises(ValueError):
        figure(pl.concat([rows.with_columns(policy=pl.lit(name), kind=pl.lit("policy")) for name in "ab"]), "a and b")


def test_weights_of_two_sets_of_names_are_refused():
    with pytest.raises(ValueError):
        figures.weights_figure(pl.concat([action_logs(2), action_logs(3)]), "Weights over time").png()


def test_every_source_has_a_figure_of_its_regimes_in_its_name():
    other = regimes().with_columns(source=pl.lit("other"))
    found = figures.regimes_figures(pl.concat([regimes(), other]), ALL_NEW_YORK)
    assert list(found) == ["landing", "other"]
    assert found["other"].png() != found["landing"].png()


@pytest.mark.parametrize(
    "who",
    [
        WHO[3:4],
        *(pytest.param(who, marks=pytest.mark.nightly) for who in (WHO[2:3], WHO[:1] + WHO[3:])),
        (("ppo", "ensemble"), ("anchor", "baseline")),
    ],
)
def test_any_accounts_have_a_figure_by_regime(who):
    assert figures.regime_evaluation_figure(regime_evaluation(who), "By regime").png()


def test_single_seeds_are_not_drawn_by_regime():
    every = regime_evaluation()
    learned = every.filter(pl.col("kind") != "policy")
    assert (
        figures.regime_evaluation_figure(every, "By regime").png()
        == figures.regime_evaluation_figure(learned, "By regime").png()
    )


def test_regimes_that_were_never_met_leave_room_in_the_figure():
    nothing = regime_evaluation().with_columns(pl.lit(None, pl.Float64).alias(name) for name in ("sharpe", "cagr"))
    assert figures.regime_evaluation_figure(nothing, "By regime").png()
