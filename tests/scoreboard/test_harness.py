import datetime as dt
import itertools
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.envs.dynamics import resolve_fill
from nvtrader_pipelines.evaluation.weights_backtest import Execution, weights_backtest
from nvtrader_pipelines.experiments.replay import Parent, fold_dates
from nvtrader_pipelines.experiments.spec import MarketChoice
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.policies.baselines import BuyAndHold
from nvtrader_pipelines.policies.policy import Decision
from nvtrader_pipelines.policies.weights_table import WeightsTable
from nvtrader_pipelines.portfolio.costs import ProportionalCost
from nvtrader_pipelines.scoreboard.candidates import (
    Candidate,
    Training,
    baseline_candidate,
    run_candidate,
    weights_candidate,
)
from nvtrader_pipelines.scoreboard.entrants import BaselineEntrant, WeightsEntrant
from nvtrader_pipelines.scoreboard.harness import LEAST_SESSIONS, Meter, contenders, walked
from nvtrader_pipelines.scoreboard.scorecard import Contest
from tests.markets import synthetic_panel

EQUAL_WEIGHT = baseline_candidate("equal_weight", BaselineEntrant())


def metered(step=1.0):
    """A meter whose clock shows `step` seconds more whenever it is read."""
    seconds, memory = itertools.count(step=step), itertools.chain([5, 9], itertools.repeat(7))
    return Meter(lambda: next(seconds), lambda: next(memory))


def contest_on(panel, window, execution=None):
    """The contest of a window, at the given fills and costs."""
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


def learned(name, first, last):
    """An entrant that was trained on some days and holds nothing but cash."""

    class Cash:
        def decide(self, panel, t, account):
            target = np.zeros(len(panel.symbols) + 1)
            target[-1] = 1.0
            return Decision(target=target)

    return Candidate(name, "sb3", MarketChoice(), 5, {}, lambda *_: Cash(), (Training(first, last),))


def wanting(name, target):
    """An entrant that always wants the same."""

    class Policy:
        def decide(self, panel, t, account):
            return Decision(target=np.array(target))

    return Candidate(name, "weights", MarketChoice(), 5, {}, lambda *_: Policy())


@pytest.fixture(scope="module")
def candidate(plan, run):
    parent = Parent(plan.run_id, fold_dates(plan))
    return run_candidate("tiny", plan.spec, parent, run.archives(), run.chosen(), run.thresholds(), run_id=plan.run_id)


def test_a_run_under_its_own_environment_and_window_has_the_equity_it_recorded_bit_for_bit(plan, run, candidate):
    environment = plan.spec.environment
    terms = Execution(fill=environment.fill, costs=environment.cost_models)
    found = walked(candidate, plan.panel, contest_on(plan.panel, plan.window, terms), metered())
    recorded = run.record.equity_curves.filter(pl.col("policy") == plan.spec.name)
    for name in ("equity", "net_return", "drawdown", "turnover", "cost", "cash"):
        assert found.curves[name].to_numpy().tobytes() == recorded[name].to_numpy().tobytes(), name
    assert found.curves["session"].equals(recorded["session"])


def test_a_baseline_under_the_same_terms_has_the_equity_it_had_beside_the_run(plan, run):
    environment = plan.spec.environment
    terms = Execution(fill=environment.fill, costs=environment.cost_models)
    contest = contest_on(plan.panel, plan.window, terms)
    for rule in plan.spec.baselines:
        found = walked(baseline_candidate("x", BaselineEntrant(rule=rule)), plan.panel, contest, metered())
        recorded = run.record.equity_curves.filter(pl.col("policy") == rule.kind)["equity"]
        assert found.curves["equity"].to_numpy().tobytes() == recorded.to_numpy().tobytes()


def test_weights_from_a_file_earn_what_the_back_test_of_arrays_says(plan):
    panel, window = plan.panel, plan.window
    first = panel.index_of(np.datetime64(window[0]))
    days = panel.sessions[first - 1 :: 17]
    weights = np.random.default_rng(3).dirichlet(np.ones(4), len(days))[:, :3]
    rows = pl.DataFrame({"date": days, **dict(zip(panel.symbols, weights.T, strict=True))})
    entrant = weights_candidate("mine", WeightsEntrant(), WeightsTable.from_frame(rows), panel, 1.0)
    terms = Execution(costs=(ProportionalCost(bps=25.0),))
    found = walked(entrant, panel, contest_on(panel, (window[0], panel.sessions[-1].item()), terms), metered())
    path = weights_backtest(panel, weights, terms, sessions=days)
    np.testing.assert_allclose(found.curves["equity"], path.equity, rtol=1e-12)
    assert len(path.equity) == len(found.curves)


@pytest.mark.parametrize("rebal_freq", [1, 5, 10])
def test_everybody_decides_at_their_own_cadence_on_the_same_sessions(plan, rebal_freq):
    entrant = baseline_candidate("x", BaselineEntrant(rebal_freq=rebal_freq))
    found = walked(entrant, plan.panel, contest_on(plan.panel, plan.window), metered())
    n_sessions = len(found.curves)
    assert len(found.actions) == -(-n_sessions // rebal_freq)
    assert (found.curves["session"][0], found.curves["session"][-1]) == plan.window


def test_latency_is_what_the_clock_says_between_close_and_weights(plan):
    found = walked(EQUAL_WEIGHT, plan.panel, contest_on(plan.panel, plan.window), metered(0.25))
    assert set(found.latencies) == {0.25}
    assert len(found.latencies) == len(found.actions)
    assert found.seconds == 0.25 * (2 * len(found.actions) + 1)
    assert found.peak_memory == 9


def test_a_policy_is_refused_on_a_session_that_trained_it(plan):
    seen = learned("foreign", dt.date(2015, 1, 2), dt.date(2016, 6, 1))
    with pytest.raises(ValueError, match=r"by its card foreign was trained from 2015-01-02 to 2016-06-01") as caught:
        walked(seen, plan.panel, contest_on(plan.panel, plan.window), metered())
    assert f"would be judged from {plan.window[0]} to {plan.window[1]}" in str(caught.value)


def test_a_run_is_refused_before_its_tests_and_where_a_later_fold_has_seen_the_sessions(plan, candidate):
    early = (dt.date(2015, 6, 1), plan.window[1])
    with pytest.raises(ValueError, match=r"tiny was trained from 2015-01-02 to 2015-12-22"):
        walked(candidate, plan.panel, contest_on(plan.panel, early), metered())
    both_sides = replace(candidate, trained=(Training(dt.date(2015, 1, 2), dt.date(2017, 9, 1), plan.window[0]),))
    with pytest.raises(ValueError, match=r"trained from 2015-01-02 to 2017-09-01 and would be judged"):
        walked(both_sides, plan.panel, contest_on(plan.panel, plan.window), metered())


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ([np.nan, 0.0, 0.0, 1.0], "wants a sum of nan"),
        ([0.9, 0.9, 0.0, -0.8], "names to at most 1 .* a gross of 1.8"),
        ([0.5, 0.0, 0.0, 0.0], "wants a sum of 0.5"),
    ],
    ids=["nan", "leverage", "sum"],
)
def test_what_is_no_portfolio_within_the_limit_is_refused(plan, target, sentence):
    with pytest.raises(ValueError, match=sentence):
        walked(wanting("odd", target), plan.panel, contest_on(plan.panel, plan.window), metered())


def test_the_window_is_what_every_learned_entrant_may_be_judged_on(plan, candidate):
    foreign = learned("foreign", dt.date(2015, 1, 2), dt.date(2016, 3, 1))
    everybody = [candidate, foreign, EQUAL_WEIGHT]
    found = contenders(plan.panel, everybody, {each.name: plan.panel for each in everybody})
    assert found.contest.window == (dt.date(2016, 3, 2), plan.panel.sessions[-1].item())
    assert [each.name for each in found.admitted] == ["tiny", "foreign", "equal_weight"]
    assert found.refused == {}


def test_who_would_leave_the_others_less_than_a_year_is_refused_by_the_dates_of_its_card(plan, candidate):
    late = learned("late", dt.date(2015, 1, 2), dt.date(2017, 6, 1))
    everybody = [candidate, late, EQUAL_WEIGHT]
    found = contenders(plan.panel, everybody, {each.name: plan.panel for each in everybody})
    assert found.contest.first_session == plan.window[0]
    assert list(found.refused) == ["late"]
    assert re.search(
        r"late was by its card trained from 2015-01-02 to 2017-06-01 and may be judged from 2017-06-02 on only, "
        r"which leaves \d+ "
        rf"sessions of the window {plan.window[0]} to {plan.panel.sessions[-1]}, of which at least {LEAST_SESSIONS}",
        found.refused["late"],
    )


def test_the_first_whose_window_is_short_sets_it_for_all(plan):
    late = learned("late", dt.date(2015, 1, 2), dt.date(2017, 6, 1))
    found = contenders(plan.panel, [EQUAL_WEIGHT, late], {"equal_weight": plan.panel, "late": plan.panel})
    assert found.contest.first_session == dt.date(2017, 6, 2)
    assert found.refused == {}


@pytest.mark.parametrize("newest_first", [True, False])
def test_the_order_does_not_let_somebody_cut_a_year_from_those_who_have_it(plan, candidate, newest_first):
    late = learned("late", dt.date(2015, 1, 2), plan.panel.sessions[-23].item())
    everybody = [late, candidate] if newest_first else [candidate, late]
    found = contenders(plan.panel, everybody, {each.name: plan.panel for each in everybody})
    assert found.contest.first_session == plan.window[0]
    assert "which leaves 22 sessions" in found.refused["late"]


def test_where_nobody_has_a_year_a_file_drives_no_run_out(plan, candidate):
    sessions = plan.panel.sessions
    short = replace(candidate, trained=(), earliest=sessions[-100].item())
    shorter = replace(short, name="shorter", earliest=sessions[-40].item())
    longer = learned("longer", dt.date(2015, 1, 2), sessions[-200].item())
    everybody = [shorter, short, longer]
    found = contenders(plan.panel, everybody, {each.name: plan.panel for each in everybody})
    assert [each.name for each in found.admitted] == ["tiny", "longer"]
    assert found.contest.n_sessions == 100
    assert "at least 100 must remain" in found.refused["shorter"]


def test_who_has_seen_every_session_is_refused(plan):
    whole = learned("whole", dt.date(2015, 1, 2), plan.panel.sessions[-1].item())
    found = contenders(plan.panel, [whole, EQUAL_WEIGHT], {"whole": plan.panel, "equal_weight": plan.panel})
    assert "may be judged on no session: the market ends on" in found.refused["whole"]


def test_names_without_bars_on_a_session_of_the_window_are_refused(plan):
    short = synthetic_panel(300, 3)
    with pytest.raises(ValueError, match=r"must have a market on each of the \d+ sessions"):
        walked(EQUAL_WEIGHT, short, contest_on(plan.panel, plan.window), metered())


def test_the_digest_of_a_contest_is_of_what_must_be_alike(plan):
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


def test_a_buy_and_hold_never_trades_again_however_often_it_is_asked(plan):
    entrant = baseline_candidate("x", BaselineEntrant(rule=BuyAndHold(), rebal_freq=1))
    found = walked(entrant, plan.panel, contest_on(plan.panel, plan.window), metered())
    assert (found.curves["turnover"] > 0.0).sum() == 1
