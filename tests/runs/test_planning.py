import pytest

from nvtrader_pipelines.evaluation.splits import WalkForward
from nvtrader_pipelines.experiments.sealed_run import SealedRun
from nvtrader_pipelines.experiments.spec import ExperimentSpec, MarketChoice
from nvtrader_pipelines.runs.fingerprints import market_is_current, market_state, question_state, remember_market
from nvtrader_pipelines.runs.planning import completed_run, has_panel, read_forward, read_plan, read_replay, reopen_plan
from nvtrader_pipelines.runs.tables import complete
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.medallion import pin_panels
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import BARS, CLEAN_BARS, FEATURES, RETURNS
from tests.markets import INGESTED_AT, csv_file, market_tables, synthetic_bars
from tests.storage.table_rows import AT

SPEC = ExperimentSpec(
    name="a", market=MarketChoice(source="landing"), splitter=WalkForward(train_months=4, test_months=2)
)
KEY = SPEC.partition_key


def derive(store, seed, n_sessions=460):
    made = market_tables(csv_file(synthetic_bars(n_sessions=n_sessions, seed=seed)))
    tables = {BARS: made.bars, CLEAN_BARS: made.clean_bars, RETURNS: made.returns, FEATURES: made.features}
    for table, rows in tables.items():
        store.tables.replace(table, rows, {})
    pin_panels(store.tables, INGESTED_AT)


def sealed(plan):
    return SealedRun.of(plan, {}, {}, {})


@pytest.fixture
def market(store, home):
    derive(store, seed=0)
    Store(home).ledger.register(SPEC)
    return store


def test_the_same_spec_on_the_same_market_is_the_same_run(market):
    assert read_plan(market, KEY).run_id == read_plan(market, KEY).run_id
    assert len(read_plan(market, KEY).folds) >= 1


def test_a_run_is_reopened_on_the_snapshots_it_was_trained_on(market):
    run = sealed(read_plan(market, KEY))
    derive(market, seed=1)
    assert read_plan(market, KEY).run_id != run.run_id
    assert reopen_plan(market, run).panel_digest == run.panel_digest


def test_a_run_of_another_spec_or_code_is_not_reopened(market):
    run = sealed(read_plan(market, KEY)).model_copy(update={"run_id": "0" * 16})
    with pytest.raises(StorageError, match="materialise trained_policy again"):
        reopen_plan(market, run)


def test_a_run_is_complete_when_it_was_judged_on_the_market_as_it_is_now(market):
    assert not completed_run(market, KEY)
    complete(market, sealed(read_plan(market, KEY)), AT)
    assert completed_run(market, KEY)
    derive(market, seed=0)  # other snapshots, the same rows
    assert completed_run(market, KEY)
    derive(market, seed=1)
    assert not completed_run(market, KEY)


def test_a_replay_is_no_completed_run_of_the_market(market):
    parent = sealed(read_plan(market, KEY))
    complete(market, SealedRun.of(read_replay(market, parent), {}, {}, {}), AT)
    assert not completed_run(market, KEY)


def test_a_replay_reads_the_market_as_it_is_now_or_at_the_snapshots_it_is_given(market):
    parent = sealed(read_plan(market, KEY))
    derive(market, seed=0, n_sessions=470)
    current = read_replay(market, parent)
    assert current.panel_digest != parent.panel_digest
    assert current.window == parent.as_parent.window
    assert read_replay(market, parent, snapshot_ids=parent.snapshot_ids).panel_digest == parent.panel_digest


def test_recorded_snapshots_that_give_another_market_are_refused(market):
    parent = sealed(read_plan(market, KEY)).model_copy(update={"panel_digest": "0" * 64})
    with pytest.raises(StorageError, match=r"trained on the market 00000000, but its snapshots give"):
        read_replay(market, parent, snapshot_ids=parent.snapshot_ids)


def test_a_paper_account_goes_on_after_the_tests_on_the_market_as_it_is_now(market):
    parent = sealed(read_plan(market, KEY))
    derive(market, seed=0, n_sessions=470)
    plan = read_forward(market, parent)
    assert plan.kind == "forward"
    assert plan.window[0] > parent.as_parent.window[1]
    assert plan.window[1] == plan.panel.sessions[-1].item()


def test_the_market_is_current_until_a_file_lands(store, home):
    assert not has_panel(store)
    remember_market(home, market_state(home))
    assert not market_is_current(store)  # nothing is built
    derive(store, seed=0)
    assert has_panel(store)
    assert market_is_current(store)
    (home.landing / "a.csv").write_text("symbol,date,close\n")
    assert not market_is_current(store)


def test_the_gate_is_asked_again_once_its_file_is_another(home):
    state = question_state(home, "contest")
    assert state == question_state(home, "contest")
    home.promotion_file.parent.mkdir(parents=True, exist_ok=True)
    home.promotion_file.write_text("least_sessions: 20\n")
    assert len({state, question_state(home, "contest"), question_state(home, "another")}) == 3
