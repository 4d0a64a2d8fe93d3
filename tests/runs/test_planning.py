from datetime import date
from functools import cache

import polars as pl
import pytest

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.market.calendar import TradingCalendar
from nvtrader_pipelines.runs.ingestion import pin_panels
from nvtrader_pipelines.runs.input_digests import promotion_digest
from nvtrader_pipelines.runs.market_state import has_panel, market_digest, market_is_current, record_market_digest
from nvtrader_pipelines.runs.pipeline_state import read_pipeline_state, record_pipeline_state
from nvtrader_pipelines.runs.planning import (
    JudgedRuns,
    read_forward_plan,
    read_plan,
    read_replay_plan,
    reopen_plan,
)
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, FEATURES, QUARANTINE, RETURNS
from tests.homes import copy_home
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_bars
from tests.runs import untrained
from tests.storage.table_rows import AT

pytestmark = pytest.mark.slow
SPEC = ExperimentSpec(
    name="a", market=MarketChoice(source="landing"), splitter=WalkForward(train_months=4, test_months=2)
)
KEY = SPEC.partition_key


@cache
def made_market(seed, n_sessions):
    """Tables of random walks."""
    return market_tables(csv_file(synthetic_bars(n_sessions=n_sessions, seed=seed)))


def derive(store, seed, n_sessions=460):
    made = made_market(seed, n_sessions)
    tables = {BARS: made.bars, CLEAN_BARS: made.clean_bars, RETURNS: made.returns, FEATURES: made.features}
    for table, rows in tables.items():
        store.tables.replace(table, rows, {})
    pin_panels(store.tables, INGESTED_AT)


def sealed(plan):
    return SealedRun.of(plan, {}, {}, {}, "")


@pytest.fixture(scope="module")
def derived(tmp_path_factory):
    """Home with a market and the experiment; tests copy it."""
    home = Home(tmp_path_factory.mktemp("derived") / "home")
    home.landing.mkdir(parents=True)
    derive(Store(home), seed=0)
    Store(home).ledger.register(SPEC)
    return home


@pytest.fixture
def market(derived, tmp_path):
    return Store(copy_home(derived, tmp_path / "market"))


def test_equal_spec_and_market_give_the_same_run(market):
    assert read_plan(market, KEY).run_id == read_plan(market, KEY).run_id
    assert len(read_plan(market, KEY).folds) >= 1


def test_reopen_plan_uses_the_training_snapshots(market):
    run = sealed(read_plan(market, KEY))
    derive(market, seed=1)
    assert read_plan(market, KEY).run_id != run.run_id
    assert reopen_plan(market, run).panel_digest == run.panel_digest


def test_reopen_plan_other_spec_or_code_raises(market):
    run = sealed(read_plan(market, KEY)).model_copy(update={"run_id": "0" * 16})
    with pytest.raises(StorageError):
        reopen_plan(market, run)


def test_completed_run_needs_a_verdict_on_the_current_market(market):
    assert not JudgedRuns(market).current_run(KEY)
    complete_run(market, sealed(read_plan(market, KEY)), AT)
    assert not JudgedRuns(market).current_run(KEY)  # its policies are gone
    untrained.sealed(market, read_plan(market, KEY))
    assert JudgedRuns(market).current_run(KEY)
    derive(market, seed=0)  # other snapshots, the same rows
    assert JudgedRuns(market).current_run(KEY)
    derive(market, seed=1)
    assert not JudgedRuns(market).current_run(KEY)


def test_completed_run_ignores_replays(market):
    parent = sealed(read_plan(market, KEY))
    complete_run(market, SealedRun.of(read_replay_plan(market, parent), {}, {}, {}, ""), AT)
    assert not JudgedRuns(market).current_run(KEY)


def test_read_replay_plan_uses_the_current_market_or_given_snapshots(market):
    parent = sealed(read_plan(market, KEY))
    derive(market, seed=0, n_sessions=470)
    current = read_replay_plan(market, parent)
    assert current.panel_digest != parent.panel_digest
    assert current.window == parent.as_parent.window
    assert read_replay_plan(market, parent, snapshot_ids=parent.snapshot_ids).panel_digest == parent.panel_digest


def test_read_replay_plan_changed_market_of_snapshots_raises(market):
    parent = sealed(read_plan(market, KEY)).model_copy(update={"panel_digest": "0" * 64})
    with pytest.raises(StorageError):
        read_replay_plan(market, parent, snapshot_ids=parent.snapshot_ids)


def test_read_forward_plan_starts_after_the_tests(market):
    parent = sealed(read_plan(market, KEY))
    derive(market, seed=0, n_sessions=470)
    plan = read_forward_plan(market, parent)
    assert plan.kind == "forward"
    assert plan.window[0] > parent.as_parent.window[1]
    assert plan.window[1] == plan.panel.sessions[-1].item()


def test_market_is_current_until_a_file_lands(store, home):
    assert not has_panel(store)
    record_market_digest(home, market_digest(home))
    assert not market_is_current(store)  # nothing is built
    derive(store, seed=0)
    assert has_panel(store)
    assert market_is_current(store)
    (home.landing / "a.csv").write_text("symbol,date,close\n")
    assert not market_is_current(store)


@pytest.mark.parametrize(("session", "is_current"), [("2024-01-02", False), ("2049-12-30", True)])
def test_market_is_current_until_a_waiting_session_ends(store, home, session, is_current):
    derive(store, seed=0)
    record_market_digest(home, market_digest(home))
    waiting = {"source": "landing", "year": 2024, "file": "a.csv", "line": 2, "symbol": "KO", "date": session}
    rule = {"rule": "session_not_ended", "value": session, "reason": "its session has not ended"}
    store.tables.replace(QUARANTINE, pl.DataFrame([waiting | rule], schema=QUARANTINE.schema), {})
    assert market_is_current(store) is is_current
    home.duckdb_file.parent.mkdir(parents=True, exist_ok=True)
    home.duckdb_file.touch()
    record_pipeline_state(store, [], [])
    assert read_pipeline_state(store, []) == ([] if is_current else None)


def test_live_market_is_current_until_a_session_of_its_calendar_ends(home, monkeypatch):
    home.market_file.write_text("sources: [{kind: yahoo}]\n")
    digests = []
    for day in (2, 2, 3):
        monkeypatch.setattr(TradingCalendar, "last_ended", lambda *_, day=day: date(2024, 1, day))
        digests.append(market_digest(home))
    assert digests[0] == digests[1] != digests[2]


def test_promotion_state_changes_with_the_gate_file(home):
    state = promotion_digest(home, "contest")
    assert state == promotion_digest(home, "contest")
    home.promotion_file.parent.mkdir(parents=True, exist_ok=True)
    home.promotion_file.write_text("least_sessions: 20\n")
    assert len({state, promotion_digest(home, "contest"), promotion_digest(home, "another")}) == 3
