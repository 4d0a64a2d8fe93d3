import dataclasses
import datetime as dt

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.evaluation.invariants import equity_gaps, off_portfolio, reward_gaps
from nvtrader_pipelines.experiments.recorded_folds import fold_dates
from nvtrader_pipelines.experiments.replay import replay_plan
from nvtrader_pipelines.market.panel import PANEL_ARRAYS
from nvtrader_pipelines.policies.archive import PolicyArchiveError
from nvtrader_pipelines.portfolio.pipeline import RiskLimits
from tests.experiments.memory import MemoryStore, walk_and_judge
from tests.experiments.small import EXPERIMENT, TABLES, planned
from tests.markets import synthetic_panel
from tests.panels import cut, with_other_future


def replayed(run, plan):
    """The store of a replay of a run."""
    store = MemoryStore(parent=run)
    store.reported = list(walk_and_judge(plan, store))
    return store


def day(plan, index) -> dt.date:
    return plan.panel.sessions[index].item()


def longer(n_sessions=760):
    """The market with newer bars: its past is the same."""
    known = synthetic_panel(700, 3)
    grown = with_other_future(synthetic_panel(n_sessions, 3), 699)
    changed = {}
    for name in PANEL_ARRAYS:
        array = getattr(grown, name).copy()
        array[:700] = getattr(known, name)
        changed[name] = array
    everywhere = np.ones((n_sessions, 3), dtype=bool)
    changed |= {"tradable": everywhere, "eligible": everywhere, "delisted": ~everywhere}
    return dataclasses.replace(grown, **changed)


@pytest.mark.slow
def test_replay_of_own_test_window_is_bit_identical(plan, run, parent):
    again = replay_plan(EXPERIMENT, plan.panel, parent)
    store = replayed(run, again)
    for name in TABLES:
        was, is_now = getattr(run.record, name), getattr(store.record, name)
        if name == "trajectories":
            assert set(is_now["phase"]) == {"replay"}
            was, is_now = was.drop("phase"), is_now.drop("phase")
        assert is_now.equals(was)


def test_a_replay_is_a_run_of_its_own_of_the_same_version(plan, run, parent):
    again = replay_plan(EXPERIMENT, plan.panel, parent)
    assert (again.kind, again.parent_run_id) == ("replay", plan.run_id)
    assert again.run_id != plan.run_id
    assert again.spec.spec_hash == plan.spec.spec_hash
    assert replay_plan(EXPERIMENT, plan.panel, parent, parent.window).run_id == again.run_id
    shorter = (parent.window[0], day(plan, plan.folds[0].test_last))
    assert replay_plan(EXPERIMENT, plan.panel, parent, shorter).run_id != again.run_id
    assert replay_plan(EXPERIMENT, longer(), parent).run_id != again.run_id


@pytest.mark.slow
def test_newer_bars_do_not_change_a_replay(run, parent):
    store = replayed(run, replay_plan(EXPERIMENT, longer(), parent))
    assert store.record.equity_curves.equals(run.record.equity_curves)


@pytest.mark.slow
def test_replay_uses_latest_fold_whose_test_window_has_begun(plan, run, parent):
    change = plan.folds[1].test_first
    window = (day(plan, change - 7), day(plan, change + 20))
    curve = replayed(run, replay_plan(EXPERIMENT, plan.panel, parent, window)).record.equity_curves
    own = curve.filter(pl.col("policy") == "tiny")
    assert (own["session"].min(), own["session"].max()) == window
    assert own.filter(pl.col("fold") == 1)["session"].min() >= day(plan, change)
    assert set(own["fold"]) == {0, 1}


@pytest.mark.slow
def test_after_the_last_test_window_its_policy_stays_in_force(plan, run, parent):
    grown = longer()
    window = (day(plan, 690), grown.sessions[750].item())
    store = replayed(run, replay_plan(EXPERIMENT, grown, parent, window))
    assert set(store.record.equity_curves["fold"]) == {1}
    assert store.record.equity_curves["session"].max() == window[1]


@pytest.mark.slow
def test_a_replay_keeps_every_identity_and_its_verdict_is_over_all_of_it(plan, run, parent):
    window = (day(plan, 600), day(plan, 660))
    store = replayed(run, replay_plan(EXPERIMENT, plan.panel, parent, window))
    assert equity_gaps(store.record.equity_curves).is_empty()
    assert off_portfolio(store.record.action_logs, RiskLimits()).is_empty()
    assert reward_gaps(store.record.trajectories, store.record.reward_decomposition).is_empty()
    assert set(store.verdict["period"]) == {"all"}
    assert set(store.verdict["kind"]) == {"policy", "ensemble", "baseline"}
    assert store.reported[-1].stage == "done"
    assert set(store.reported[-1].metrics) == {"all/sharpe", "all/max_drawdown"}


def test_a_session_the_policies_were_trained_on_is_refused(plan, parent):
    begin = plan.folds[0].test_first
    window = (day(plan, begin - 1), day(plan, begin + 30))
    with pytest.raises(ValueError):
        replay_plan(EXPERIMENT, plan.panel, parent, window)


def test_a_window_without_a_session_is_refused(plan, parent):
    later = (dt.date(2030, 1, 1), dt.date(2030, 2, 1))
    weekend = (dt.date(2017, 3, 4), dt.date(2017, 3, 5))
    backwards = (day(plan, 650), day(plan, 640))
    for window in (later, weekend, backwards):
        with pytest.raises(ValueError):
            replay_plan(EXPERIMENT, plan.panel, parent, window)


def test_a_market_of_other_symbols_is_refused(plan, run, parent):
    with pytest.raises(PolicyArchiveError):
        replayed(run, replay_plan(EXPERIMENT, synthetic_panel(700, 4), parent))


def test_policies_of_another_experiment_are_refused(plan, run, parent):
    other = EXPERIMENT.model_copy(update={"description": "another"})
    with pytest.raises(PolicyArchiveError):
        replayed(run, replay_plan(other, plan.panel, parent))


def test_the_folds_of_a_run_are_known_by_their_sessions(plan, parent):
    assert [(fold.test_first, fold.test_last) for fold in parent.folds] == [
        (day(plan, fold.test_first), day(plan, fold.test_last)) for fold in plan.folds
    ]
    assert fold_dates(planned(panel=cut(synthetic_panel(700, 3), 650)))[0] == parent.folds[0]
