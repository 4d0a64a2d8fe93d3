"""What the page of a run draws, against the tables of a built home."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_pipelines.runs.run_charts import kept_places, replay, run_charts
from nvtrader_pipelines.runs.run_comparison import compare_named_runs
from nvtrader_pipelines.runs.run_library import Claim, library_runs
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTION_LOGS, EQUITY_CURVES, REWARD_DECOMPOSITION
from tests.homes import copy_home, expose_run, run_of


@pytest.fixture(scope="module")
def store(built_home):
    return Store(built_home)


@pytest.fixture(scope="module")
def run(store):
    """Run that learned."""
    run_id = next(row.run_id for row in library_runs(store) if row.agent == "ppo")
    return store.ledger.run(run_id)


def rows_of(store, run, table):
    return store.tables.read(table, {"run_id": [run.run_id]}).filter(kind="ensemble")


@given(st.lists(st.floats(-1e6, 1e6), max_size=120), st.integers(1, 9))
def test_thinned_values_keep_first_last_lowest_and_highest(values, n_buckets):
    values = np.array(values)
    places = kept_places(values, n_buckets)
    assert np.array_equal(places, np.unique(places))
    assert len(places) <= 4 * n_buckets
    if len(values):
        kept = values[places]
        assert (kept.min(), kept.max()) == (values.min(), values.max())
        assert (places[0], places[-1]) == (0, len(values) - 1)


def test_curves_are_those_of_the_tables(store, run):
    charts = run_charts(store, run)
    curve = rows_of(store, run, EQUITY_CURVES).sort("session")
    own, *baselines = charts.equity
    assert (own.kind, {account.kind for account in baselines}) == ("ensemble", {"baseline"})
    assert own.equity[-1] == curve["equity"][-1]
    assert max(own.drawdown) == curve["drawdown"].max()
    rewards = rows_of(store, run, REWARD_DECOMPOSITION)
    *terms, total = charts.rewards
    assert total.term == "total"
    assert total.total[-1] == pytest.approx(rewards["contribution"].sum())
    assert sum(term.total[-1] for term in terms) == pytest.approx(total.total[-1])
    assert np.sum([band.weights for band in charts.weights], axis=0) == pytest.approx(1.0)
    assert {curve.seed for curve in charts.training} == set(run.seeds)


def test_replayed_decisions_are_those_of_the_log(store, run):
    log = rows_of(store, run, ACTION_LOGS)
    fold = int(log["fold"].max())
    replayed = replay(store, run, fold)
    of_fold = log.filter(fold=fold).sort("step")
    assert [decision.session for decision in replayed.decisions] == of_fold["session"].to_list()
    first = replayed.decisions[0]
    assert np.subtract(first.after, first.before) == pytest.approx(np.array(of_fold["trades"][0]))
    assert first.after == tuple(of_fold["executed_weights"][0])
    assert sum(first.before) == pytest.approx(1.0)
    curve = dict(rows_of(store, run, EQUITY_CURVES).select("session", "equity").iter_rows())
    assert [decision.equity for decision in replayed.decisions] == [curve.get(d.session) for d in replayed.decisions]
    rewards = rows_of(store, run, REWARD_DECOMPOSITION).filter(fold=fold, step=first.step)
    assert first.rewards == dict(rewards.select("term", "contribution").iter_rows())
    with pytest.raises(StorageError):
        replay(store, run, 99)


def test_long_only_run_without_guards_has_no_gross_and_no_words_on_guards(store, run):
    assert run_charts(store, run).gross is None
    assert {decision.guards for decision in replay(store, run, 0).decisions} == {None}


def test_levered_run_has_its_gross_and_the_guards_of_each_decision(built_home, tmp_path):
    store = expose_run(copy_home(built_home, tmp_path / "home"))
    gross = run_charts(store, run_of(store)).gross
    assert (set(gross.gross), set(gross.before_cap)) == ({1.5}, {1.6})
    assert len(gross.sessions) == len(gross.gross)
    guards = {decision.guards for decision in replay(store, run_of(store), 0).decisions}
    assert guards == {("drawdown: weights scaled by 0.50",)}


def test_library_names_agent_and_claim_of_every_run(store):
    runs = library_runs(store)
    assert {row.agent for row in runs} >= {"ppo"}
    assert {row.claim for row in runs} <= set(Claim)
    assert [row.started_at for row in runs] == sorted((row.started_at for row in runs), reverse=True)


def test_compared_runs_have_figures_curves_and_differences(swept_home):
    store = Store(swept_home)
    names = [row.run_id for row in library_runs(store)][-2:]  # trainings; tests of other modules add walks
    comparison = compare_named_runs(store, names)
    assert [row.run_id for row in comparison.runs] == names
    shared = comparison.shared
    assert (shared.figures[0].sharpe_difference, shared.picture) == (None, None)
    assert [curve.policy for curve in shared.curves] == [row.account for row in shared.figures]
    assert {row.run for row in comparison.spec_differences} == {names[1][:8]}
    assert "curves" not in comparison.model_dump()["shared"]
    traces = comparison.plot().data
    assert [trace.name for trace in traces[::2]] == [row.account for row in shared.figures]
    assert traces[0].y == shared.curves[0].equity
