import datetime as dt
import itertools
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.fill_timing import resolve_fill
from nvtrader_pipelines.evaluation.backtest import PolicyAccount, backtest
from nvtrader_pipelines.evaluation.splits import Block
from nvtrader_pipelines.evaluation.statistics import sharpe_ratio
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.experiments.entrant_specs import BaselineEntrantSpec, WeightsEntrantSpec
from nvtrader_pipelines.experiments.recorded_folds import Parent, fold_dates
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.baselines import BuyAndHold, EqualWeight
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.portfolio.costs import ProportionalCost
from nvtrader_pipelines.scoreboard.contest_backtest import (
    MIN_WINDOW_SESSIONS,
    Meter,
    admit_entrants,
    contest_environment,
    default_contest,
    run_contest_backtest,
)
from nvtrader_pipelines.scoreboard.contests import ContestSpec
from nvtrader_pipelines.scoreboard.entrants import Entrant, TrainingSpan, baseline_entrant, run_entrant, weights_entrant
from nvtrader_pipelines.scoreboard.scorecard import Contest
from tests.markets import synthetic_panel

pytestmark = pytest.mark.slow

EQUAL_WEIGHT = baseline_entrant("equal_weight", BaselineEntrantSpec())


def metered(step=1.0):
    """Meter whose clock advances by `step` seconds at every reading."""
    seconds, memory = itertools.count(step=step), itertools.chain([5, 9], itertools.repeat(7))
    return Meter(lambda: next(seconds), lambda: next(memory))


def contest_on(panel, window, execution=None):
    """Contest over a window, at the given fills and costs."""
    terms = execution or Execution()
    first, last = (panel.index_of(np.datetime64(day)) for day in window)
    return Contest(
        source=panel.source,
        panel_digest=panel_digest(panel),
        first_session=window[0],
        last_session=window[1],
        n_sessions=last - first + 1,
        fill=resolve_fill(terms.fill, panel),
        costs=terms.costs,
        gross_limit=terms.gross_limit,
    )


def trained_entrant(name, first, last):
    """Entrant that was trained on a span of days and holds cash only."""

    class Cash:
        def decide(self, panel, t, account):
            target = np.zeros(len(panel.symbols) + 1)
            target[-1] = 1.0
            return Decision(target=target)

    return Entrant(
        name, "sb3", MarketChoice(), 5, {}, "code", lambda *_: Cash(), (TrainingSpan(first=first, last=last),)
    )


def fixed_target(name, target):
    """Entrant with the same target in every decision."""

    class Policy:
        def decide(self, panel, t, account):
            return Decision(target=np.array(target))

    return Entrant(name, "weights", MarketChoice(), 5, {}, "code", lambda *_: Policy())


@pytest.fixture(scope="module")
def entrant(plan, run):
    parent = Parent(plan.run_id, fold_dates(plan))
    return run_entrant(
        "tiny", plan.spec, parent, run.archives(), run.seed_weights(), run.thresholds(), run_id=plan.run_id
    )


def test_run_entrant_on_its_own_terms_reproduces_recorded_equity(plan, run, entrant):
    environment = plan.spec.environment
    terms = Execution(fill=environment.fill, costs=environment.cost_models)
    found = run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, plan.window, terms), metered())
    recorded = run.record.equity_curves.filter(pl.col("policy") == plan.spec.name)
    for name in ("equity", "net_return", "drawdown", "turnover", "cost", "cash"):
        assert found.curves[name].to_numpy().tobytes() == recorded[name].to_numpy().tobytes(), name
    assert found.curves["session"].equals(recorded["session"])


def test_baseline_entrant_reproduces_equity_recorded_beside_run(plan, run):
    environment = plan.spec.environment
    terms = Execution(fill=environment.fill, costs=environment.cost_models)
    contest = contest_on(plan.panel, plan.window, terms)
    for rule in plan.spec.baselines:
        found = run_contest_backtest(
            baseline_entrant("x", BaselineEntrantSpec(rule=rule)), plan.panel, contest, metered()
        )
        recorded = run.record.equity_curves.filter(pl.col("policy") == rule.kind)["equity"]
        assert found.curves["equity"].to_numpy().tobytes() == recorded.to_numpy().tobytes()


def test_weights_entrant_matches_weights_backtest(plan):
    panel, window = plan.panel, plan.window
    first = panel.index_of(np.datetime64(window[0]))
    days = panel.sessions[first - 1 :: 17]
    weights = np.random.default_rng(3).dirichlet(np.ones(4), len(days))[:, :3]
    rows = pl.DataFrame({"date": days, **dict(zip(panel.symbols, weights.T, strict=True))})
    entrant = weights_entrant("mine", WeightsEntrantSpec(), WeightsTable.from_frame(rows), panel, 1.0)
    terms = Execution(costs=(ProportionalCost(bps=25.0),))
    found = run_contest_backtest(
        entrant, panel, contest_on(panel, (window[0], panel.sessions[-1].item()), terms), metered()
    )
    path = weights_backtest(panel, weights, terms, sessions=days)
    np.testing.assert_allclose(found.curves["equity"], path.equity, rtol=1e-12)
    assert len(path.equity) == len(found.curves)


@pytest.mark.parametrize("rebal_freq", [1, 5, 10])
def test_entrant_decides_at_its_cadence_over_the_whole_window(plan, rebal_freq):
    entrant = baseline_entrant("x", BaselineEntrantSpec(rebal_freq=rebal_freq))
    found = run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, plan.window), metered())
    n_sessions = len(found.curves)
    assert len(found.actions) == -(-n_sessions // rebal_freq)
    assert (found.curves["session"][0], found.curves["session"][-1]) == plan.window


def test_latency_is_measured_from_close_to_weights(plan):
    found = run_contest_backtest(EQUAL_WEIGHT, plan.panel, contest_on(plan.panel, plan.window), metered(0.25))
    assert set(found.latencies) == {0.25}
    assert len(found.latencies) == len(found.actions)
    assert found.seconds == 0.25 * (2 * len(found.actions) + 1)
    assert found.peak_memory == 9


def test_policy_on_its_training_sessions_is_refused(plan):
    seen = trained_entrant("foreign", dt.date(2015, 1, 2), dt.date(2016, 6, 1))
    with pytest.raises(ValueError) as caught:
        run_contest_backtest(seen, plan.panel, contest_on(plan.panel, plan.window), metered())
    assert f"{plan.window[0]} to {plan.window[1]}" in str(caught.value)


def test_run_is_refused_where_any_fold_trained_on_the_window(plan, entrant):
    early = (dt.date(2015, 6, 1), plan.window[1])
    with pytest.raises(ValueError):
        run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, early), metered())
    both_sides = replace(
        entrant, trained=(TrainingSpan(first=dt.date(2015, 1, 2), last=dt.date(2017, 9, 1), used_from=plan.window[0]),)
    )
    with pytest.raises(ValueError):
        run_contest_backtest(both_sides, plan.panel, contest_on(plan.panel, plan.window), metered())


@pytest.mark.parametrize(
    "target", [[np.nan, 0.0, 0.0, 1.0], [0.9, 0.9, 0.0, -0.8], [0.5, 0.0, 0.0, 0.0]], ids=["nan", "leverage", "sum"]
)
def test_weights_that_are_not_a_portfolio_are_refused(plan, target):
    with pytest.raises(ValueError):
        run_contest_backtest(fixed_target("odd", target), plan.panel, contest_on(plan.panel, plan.window), metered())


def test_window_starts_after_the_latest_training_session(plan, entrant):
    foreign = trained_entrant("foreign", dt.date(2015, 1, 2), dt.date(2016, 3, 1))
    entrants = [entrant, foreign, EQUAL_WEIGHT]
    found = admit_entrants(plan.panel, entrants, {each.name: plan.panel for each in entrants})
    assert found.contest.window == (dt.date(2016, 3, 2), plan.panel.sessions[-1].item())
    assert [each.name for each in found.admitted] == ["tiny", "foreign", "equal_weight"]
    assert found.refused == {}


def test_entrant_that_leaves_less_than_a_year_is_refused(plan, entrant):
    late = trained_entrant("late", dt.date(2015, 1, 2), dt.date(2017, 6, 1))
    entrants = [entrant, late, EQUAL_WEIGHT]
    found = admit_entrants(plan.panel, entrants, {each.name: plan.panel for each in entrants})
    assert found.contest.first_session == plan.window[0]
    assert list(found.refused) == ["late"]
    for figure in (MIN_WINDOW_SESSIONS, plan.window[0], plan.panel.sessions[-1], "2017-06-01", "2017-06-02"):
        assert str(figure) in found.refused["late"]


def test_only_trained_entrant_sets_the_window(plan):
    late = trained_entrant("late", dt.date(2015, 1, 2), dt.date(2017, 6, 1))
    found = admit_entrants(plan.panel, [EQUAL_WEIGHT, late], {"equal_weight": plan.panel, "late": plan.panel})
    assert found.contest.first_session == dt.date(2017, 6, 2)
    assert found.refused == {}


@pytest.mark.parametrize("newest_first", [True, False])
def test_admission_does_not_depend_on_entrant_order(plan, entrant, newest_first):
    late = trained_entrant("late", dt.date(2015, 1, 2), plan.panel.sessions[-23].item())
    entrants = [late, entrant] if newest_first else [entrant, late]
    found = admit_entrants(plan.panel, entrants, {each.name: plan.panel for each in entrants})
    assert found.contest.first_session == plan.window[0]
    assert "leaves 22 sessions" in found.refused["late"]


def test_without_a_year_runs_take_precedence_over_files(plan, entrant):
    sessions = plan.panel.sessions
    short = replace(entrant, trained=(), earliest=sessions[-100].item())
    shorter = replace(short, name="shorter", earliest=sessions[-40].item())
    longer = trained_entrant("longer", dt.date(2015, 1, 2), sessions[-200].item())
    entrants = [shorter, short, longer]
    found = admit_entrants(plan.panel, entrants, {each.name: plan.panel for each in entrants})
    assert [each.name for each in found.admitted] == ["tiny", "longer"]
    assert found.contest.n_sessions == 100
    assert "at least 100 sessions" in found.refused["shorter"]


def test_pinned_window_refuses_an_entrant_that_starts_later_and_does_not_move(plan, entrant):
    late = trained_entrant("late", dt.date(2015, 1, 2), dt.date(2016, 3, 1))
    named = "early", ContestSpec(first=plan.window[0], last=dt.date(2017, 6, 1))
    entrants = [late, entrant, EQUAL_WEIGHT]
    found = admit_entrants(plan.panel, entrants, {each.name: plan.panel for each in entrants}, named)
    assert found.contest.window == (plan.window[0], dt.date(2017, 6, 1))
    assert found.contest.name == "early"
    assert [each.name for each in found.admitted] == ["tiny", "equal_weight"]
    assert "'early'" in found.refused["late"]
    assert "2016-03-02" in found.refused["late"]


def test_sessions_after_the_last_test_score_no_entrant(plan, entrant):
    ended = replace(entrant, name="ended", latest=dt.date(2017, 6, 1))
    entrants = [entrant, ended]
    panels = {each.name: plan.panel for each in entrants}
    common = admit_entrants(plan.panel, entrants, panels)
    assert common.contest.window == (plan.window[0], dt.date(2017, 6, 1))
    assert common.refused == {}
    pinned = admit_entrants(plan.panel, entrants, panels, ("all", ContestSpec(last=plan.window[1])))
    assert pinned.contest.last_session == plan.window[1]
    assert "its tests end on 2017-06-01" in pinned.refused["ended"]


def test_contest_outside_the_market_is_refused(plan, entrant):
    with pytest.raises(ValueError):
        admit_entrants(plan.panel, [entrant], {"tiny": plan.panel}, ("far", ContestSpec(last=dt.date(2040, 1, 1))))


def test_default_contest_is_the_first_that_a_run_can_be_scored_in(plan, entrant):
    contests = {
        "before": ContestSpec(first=plan.panel.sessions[5].item()),
        "tests": ContestSpec(first=plan.window[0]),
        "common": ContestSpec(),
    }
    panels = {"tiny": plan.panel, "equal_weight": plan.panel}
    assert default_contest(plan.panel, [EQUAL_WEIGHT, entrant], panels, contests)[0] == "tests"
    assert default_contest(plan.panel, [EQUAL_WEIGHT], panels, contests)[0] == "common"


def test_contest_digest_does_not_depend_on_its_name(plan):
    contest = contest_on(plan.panel, plan.window)
    assert contest.model_copy(update={"name": "tests"}).digest == contest.digest


def test_entrant_without_unseen_session_is_refused(plan):
    whole = trained_entrant("whole", dt.date(2015, 1, 2), plan.panel.sessions[-1].item())
    found = admit_entrants(plan.panel, [whole, EQUAL_WEIGHT], {"whole": plan.panel, "equal_weight": plan.panel})
    assert f"the market ends on {plan.panel.sessions[-1]}" in found.refused["whole"]


def test_entrant_without_bars_in_the_window_is_refused(plan):
    short = synthetic_panel(300, 3)
    with pytest.raises(ValueError):
        run_contest_backtest(EQUAL_WEIGHT, short, contest_on(plan.panel, plan.window), metered())


def test_contest_digest_depends_on_every_shared_term(plan):
    contest = contest_on(plan.panel, plan.window)
    assert contest.digest == contest_on(plan.panel, plan.window).digest
    later = (plan.panel.sessions[300].item(), plan.window[1])
    others = [
        contest_on(plan.panel, later),
        contest_on(plan.panel, plan.window, Execution(costs=())),
        contest_on(plan.panel, plan.window, Execution(fill="next_close")),
        contest_on(plan.panel, plan.window, Execution(gross_limit=2.0)),
        contest_on(synthetic_panel(700, 3, seed=1), plan.window),
    ]
    assert len({contest.digest, *(each.digest for each in others)}) == 6


def test_buy_and_hold_trades_once_at_any_cadence(plan):
    entrant = baseline_entrant("x", BaselineEntrantSpec(rule=BuyAndHold(), rebal_freq=1))
    found = run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, plan.window), metered())
    assert (found.curves["turnover"] > 0.0).sum() == 1


def test_openings_are_sharpe_ratios_by_session_of_the_second_decision(plan):
    panel, contest = plan.panel, contest_on(plan.panel, plan.window)
    run = run_contest_backtest(EQUAL_WEIGHT, panel, contest, metered())
    first, last = (panel.index_of(np.datetime64(day)) for day in contest.window)
    environment = contest_environment(contest, EQUAL_WEIGHT.rebal_freq)
    expected = []
    for first_hold in range(1, 6):
        account = PolicyAccount("a", "baseline", (None,), (EqualWeight().start(),))
        curves = backtest(panel, environment, [Block(0, first, last)], [account], first_hold).equity_curves
        expected.append(sharpe_ratio(curves["net_return"].to_numpy(), 252))
    assert run.openings == tuple(expected)
    assert run.openings[-1] == sharpe_ratio(run.curves["net_return"].to_numpy(), 252)
    assert len(set(run.openings)) == 5


def test_account_that_decides_once_has_no_timing_luck(plan):
    entrant = baseline_entrant("buy_and_hold", BaselineEntrantSpec(rule=BuyAndHold()))
    run = run_contest_backtest(entrant, plan.panel, contest_on(plan.panel, plan.window), metered())
    assert run.openings == pytest.approx([run.openings[-1]] * 5)
