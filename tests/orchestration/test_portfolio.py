"""From a judgement through the promotion gate to a few rebalances of an account."""

import datetime as dt
from collections.abc import Iterable
from types import SimpleNamespace

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.desk.account_access import lock_account
from nvtrader_pipelines.desk.account_checks import outside_limits
from nvtrader_pipelines.desk.desk import Desk
from nvtrader_pipelines.desk.halt import halt, resume
from nvtrader_pipelines.execution.brokers import simulated_venue
from nvtrader_pipelines.execution.brokers.simulated_venue import SimulatedVenue
from nvtrader_pipelines.execution.reconciliation import Difference
from nvtrader_pipelines.orchestration import rebalance_steps, sensors
from nvtrader_pipelines.orchestration.assets import portfolio
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVATION, VERDICT
from nvtrader_pipelines.orchestration.jobs import CONTEST
from nvtrader_pipelines.orchestration.portfolio_checks import audit_is_whole
from nvtrader_pipelines.orchestration.rebalance_steps import SESSION
from nvtrader_pipelines.orchestration.resources import DeskResource
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.rounds import evaluate_newest, newest_runs
from nvtrader_pipelines.runs.input_digests import promotion_digest
from nvtrader_pipelines.runs.lifecycle import now
from nvtrader_pipelines.storage.account_book import SqliteBook
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    PROMOTION_DECISIONS,
    REBALANCE_PLAN,
    RUNS,
)
from tests.homes import check_outcomes, materialized_assets, run_job, small_home, step_errors
from tests.orchestration.desk_home import BETTER, LIMITS, WORSE, desk_home
from tests.orchestration.evenings import (
    Evenings,
    landing_meanwhile,
    leave_out_pictures,
    metadata,
    retried,
    unanswered_once,
)
from tests.runs.small_runs import land

pytestmark = pytest.mark.slow

CONTEST_STATE = "0123456789abcdef"
CHAIN = ("orders", "portfolio_state", "target_weights", "rebalance_plan")


@pytest.fixture(scope="module")
def gate_decisions(tmp_path_factory, instance):
    """Home whose gate decided twice, with the metadata and the sensor's answer of each run."""
    store = desk_home(tmp_path_factory.mktemp("desk") / "home", WORSE, BETTER)
    reported = []
    for _ in range(2):
        state = promotion_digest(store.home, CONTEST_STATE)
        finished = run_job(store.home, "promotion", instance, tags={CONTEST: state})
        assert finished.success, step_errors(finished)
        (event,) = finished.get_asset_materialization_events()
        reported.append((event.materialization.metadata, activated(instance, store)))
    return store, reported


def activated(instance, store):
    """Answer of the sensor to the last materialization of the active policy."""
    key = dg.AssetKey(["portfolio", "active_policy"])
    (record,) = instance.fetch_materializations(key, limit=1).records
    with dg.build_sensor_context(instance=instance) as context:
        answers = sensors.policy_activated._asset_materialization_fn(
            context, record.event_log_entry, store=store, desk=DeskResource()
        )
        assert isinstance(answers, Iterable)
        (answer,) = answers
    return answer


def test_promotion_decides_on_newest_runs_and_activates_the_better(gate_decisions):
    store, [(metadata, _), _] = gate_decisions
    rows = store.tables.read(PROMOTION_DECISIONS).sort("considered_at")
    answers = [("worse", False, False), ("better", True, True), ("worse", False, False)]  # the last against the other
    assert rows.select("policy", "passed", "activated").rows() == answers
    assert "not above 0" in rows["sentence"][0]
    assert metadata[VERDICT].value == rows["sentence"][1]
    assert rows["sentence"][0] in metadata["answers"].value
    active = read_active(store)
    assert active is not None
    assert (active.policy, active.by) == ("better", "gate")
    assert (metadata["policy"].value, metadata["run_id"].value) == ("better", active.run_id)
    shown = metadata["activation_document"].value
    assert shown["snapshot_ids"] == {table: str(of_64_bits) for table, of_64_bits in active.snapshot_ids.items()}
    assert {**shown, "snapshot_ids": active.snapshot_ids} == active.model_dump(mode="json")
    assert store.tables.read(ACTIVE_POLICY)["event_id"].to_list() == [active.event.event_id]


def test_activation_requests_one_rebalance_from_any_later_decision(gate_decisions):
    store, [(first, request), (second, again)] = gate_decisions
    active = read_active(store)
    assert active is not None
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == first[ACTIVATION].value == active.event.event_id
    assert second[ACTIVATION].value == first[ACTIVATION].value  # the gate said no, and two answers may lie in a tick
    assert isinstance(again, dg.RunRequest)
    assert again.run_key == request.run_key  # of which Dagster launches one run


def test_activation_does_not_continue_a_replayed_account(gate_decisions, instance, monkeypatch):
    store, _ = gate_decisions
    state = SimpleNamespace(session=dt.date(2017, 6, 1), in_replay=True)
    monkeypatch.setattr(SqliteBook, "last", lambda _: state)
    answer = activated(instance, store)
    assert isinstance(answer, dg.SkipReason)
    assert f"a replay traded the account paper to {state.session}" in str(answer.skip_message)


def test_validation_only_run_is_not_a_candidate(gate_decisions, monkeypatch):
    store, _ = gate_decisions
    assert newest_runs(store)["experiment"].to_list() == ["worse", "better"]
    read = Warehouse.read

    def marked(own, table, *arguments, **options):
        rows = read(own, table, *arguments, **options)
        only = rows["experiment"] == "better" if table is RUNS else None
        return rows if only is None else rows.with_columns(validation_only=only)

    monkeypatch.setattr(Warehouse, "read", marked)
    assert newest_runs(store)["experiment"].to_list() == ["worse"]


def test_last_completed_run_of_an_experiment_is_the_candidate(gate_decisions, monkeypatch):
    store, _ = gate_decisions
    runs = store.tables.read(RUNS)
    first = runs["finished_at"].min()
    older = runs.filter(experiment="better").with_columns(run_id=pl.lit("older"), finished_at=pl.lit(first))
    monkeypatch.setattr(Warehouse, "read", lambda _self, _table: older.vstack(runs.select(older.columns)))
    assert newest_runs(store).sort("experiment").equals(runs.select("experiment", "run_id").sort("experiment"))


def test_promotion_without_runs_decides_nothing(tmp_path):
    home = small_home(tmp_path / "home")
    found = evaluate_newest(Store(home), "gate", now)
    assert (found.decisions, found.problems) == ([], {})
    assert found.summary == "no policy to judge yet"


def test_removed_policies_do_not_block_other_candidates(gate_decisions):
    store, _ = gate_decisions
    (manifest,) = store.home.policies.glob("worse@*/*/manifest.json")
    removed = manifest.rename(manifest.with_name("removed.json"))
    try:
        found = evaluate_newest(store, "gate", now)
    finally:
        removed.rename(manifest)
    assert "its policies are not all trained" in found.problems["worse"]
    assert [decision.candidate.policy for decision in found.decisions] == ["better"]
    assert found.summary.endswith("is the active policy already; not judged: worse")


def judgement_ended(home, instance, **tags):
    """Answer of the sensor to a successful run of `judgement`."""

    @dg.op
    def work() -> None: ...

    @dg.job(name="judgement", tags=tags)
    def judgement() -> None:
        work()

    result = judgement.execute_in_process(instance=instance)
    (event,) = result.filter_events(lambda each: each.event_type is dg.DagsterEventType.RUN_SUCCESS)
    context = dg.build_run_status_sensor_context(
        sensor_name="run_scored", dagster_instance=instance, dagster_run=result.dagster_run, dagster_event=event
    )
    return result.run_id, sensors.run_scored(context, store=Store(home))


def test_judgement_requests_promotion_unless_the_gate_has_decided(gate_decisions, instance):
    store, _ = gate_decisions
    _, skipped = judgement_ended(store.home, instance, **{CONTEST: CONTEST_STATE})
    assert isinstance(skipped, dg.SkipReason)
    run_id, request = judgement_ended(store.home, instance, **{CONTEST: "another"})
    assert isinstance(request, dg.RunRequest)
    assert (request.run_key, request.tags[CONTEST]) == (run_id, promotion_digest(store.home, "another"))


def test_changed_gate_decides_again(gate_decisions, instance):
    store, _ = gate_decisions
    before = store.home.promotion_file.read_text()
    store.home.promotion_file.write_text(before + "require_deflated: true\n")
    try:
        _, request = judgement_ended(store.home, instance, **{CONTEST: CONTEST_STATE})
    finally:
        store.home.promotion_file.write_text(before)
    assert isinstance(request, dg.RunRequest)


@pytest.fixture(scope="module")
def story(gate_decisions, instance):
    """Run of each evening and the plans after it; the account decides at every second close."""
    store = gate_decisions[0]
    evenings = Evenings(store, instance)
    reported = {"opening": evenings.rebalance()}
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pictures(patch)  # once is enough
        patch.setattr(rebalance_steps, "RETRY_WAIT_SECONDS", 0.0)
        land(store, 481)
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(SimulatedVenue, "submit", unanswered_once(SimulatedVenue.submit))
            reported["no answer"] = evenings.rebalance()
        land(store, 482)
        evenings.limits("max_position: 0.3\n")
        reported["beyond"] = evenings.rebalance()
        land(store, 484)
        evenings.limits(LIMITS.replace("1.0", "1e-6"))  # the least change waits for a person
        reported["after beyond"] = evenings.rebalance(tags={SESSION: "2016-11-30"})  # two sessions are due
        reported["acknowledged"] = evenings.rebalance("rebalance_plan", acknowledge=True)
        land(store, 485)
        halt(store, "ann", "a fire drill", now)
        reported["halted"] = evenings.rebalance()
        resume(store, "ann", "it was a drill", now)
        patch.setattr(rebalance_steps, "BAR_WAIT_SECONDS", 0.0)
        reported["too early"] = evenings.rebalance(tags={SESSION: "2030-01-02"})
        with pytest.MonkeyPatch.context() as late:
            late.setattr(rebalance_steps, "read_traded", landing_meanwhile(store, 486))
            reported["late"] = evenings.rebalance(tags={SESSION: "2016-12-05"})
    return reported


def test_first_rebalance_opens_the_account_and_plans_with_pictures(story, gate_decisions):
    finished, statuses = story["opening"]
    assert finished.success, step_errors(finished)
    assert materialized_assets(finished) == {f"portfolio/{name}" for name in CHAIN}
    assert statuses == ["cleared"]
    assert all(metadata(finished, asset)["account"] == "paper" for asset in CHAIN)
    assert metadata(finished, "orders")["events"] == "nothing"
    assert (metadata(finished, "portfolio_state")["equity"], metadata(finished, "portfolio_state")["cash"]) == (
        1.0,
        1.0,
    )
    plan = metadata(finished, "rebalance_plan")
    assert (plan["status"], plan["one_way_turnover"], plan["kill_switch"]) == ("cleared", 1.0, "not engaged")
    pictures = {
        "portfolio_state": "equity_curve",
        "target_weights": "target_weights",
        "rebalance_plan": "rebalance_plan",
    }
    for asset, picture in pictures.items():
        path = gate_decisions[0].home.pictures / asset / "paper" / f"{picture}.png"
        assert metadata(finished, asset)[picture].startswith("![plot](data:image/png;base64,")
        assert metadata(finished, asset)["pictures"] == str(path.parent)


def test_broker_timeout_is_retried_without_placing_twice(story, gate_decisions):
    finished, statuses = story["no answer"]
    assert finished.success, step_errors(finished)
    assert retried(finished) == ["portfolio__orders"]
    assert statuses == ["filled"]
    said = metadata(finished, "orders")["events"]  # by both attempts
    assert (said.count("| placed |"), said.count("| filled |")) == (3, 3)
    first = pl.col("session") == pl.col("session").min()
    placed = gate_decisions[0].tables.read(ORDERS).filter(first)
    assert placed["symbol"].sort().to_list() == ["AAA", "BBB", "CCC"]
    assert gate_decisions[0].tables.read(FILLS).filter(first)["order_id"].sort().equals(placed["order_id"].sort())
    events = [event for event in gate_decisions[0].audit.events() if event.order_id in set(placed["order_id"])]
    assert sorted(event.kind for event in events) == ["filled"] * 3 + ["placed"] * 3


def test_weights_beyond_tightened_limits_block_only_their_plan(story):
    finished, statuses = story["beyond"]
    assert finished.success, step_errors(finished)
    assert statuses == ["filled", "blocked"]
    assert "| hard | max_position_pct |" in metadata(finished, "rebalance_plan")["findings"]
    assert check_outcomes(finished)["portfolio/rebalance_plan:limits_hold"]
    following, statuses = story["after beyond"]
    assert following.success, step_errors(following)
    assert materialized_assets(following) == {f"portfolio/{name}" for name in CHAIN}
    assert statuses == ["filled", "blocked", "waiting"]
    assert "| soft | turnover_pct_warn |" in metadata(following, "rebalance_plan")["findings"]


def test_tradable_plan_beyond_limits_fails_its_check(story, gate_decisions):
    assert story
    desk = Desk(gate_decisions[0])
    plans = gate_decisions[0].tables.read(REBALANCE_PLAN, {"account": ["paper"]}).sort("session").tail(1)
    statuses = ("blocked", "waiting", "cleared", "placed", "filled")  # at a broker what is cleared is placed at once
    let_through = {status: plans.with_columns(status=pl.lit(status)) for status in statuses}
    limits = gate_decisions[0].home.compliance / "limits.yaml"
    before = limits.read_text()
    limits.write_text("max_position: 0.3\n")
    try:
        found = {status: len(outside_limits(desk, rows)) for status, rows in let_through.items()}
    finally:
        limits.write_text(before)
    assert found == {"blocked": 0, "waiting": 1, "cleared": 1, "placed": 1, "filled": 0}


def test_acknowledging_run_approves_soft_findings_in_the_audit(story, gate_decisions):
    assert story["acknowledged"][1] == ["filled", "blocked", "approved"]
    events = [event for event in gate_decisions[0].audit.events() if event.account == "paper"]
    (event,) = [event for event in events if event.kind == "approved"]
    assert event.by == "dagster"


def test_halted_desk_trades_nothing_and_its_run_succeeds(story, gate_decisions):
    finished, statuses = story["halted"]
    assert finished.success, step_errors(finished)
    assert statuses == ["filled", "blocked", "cancelled"]
    for asset in CHAIN:
        assert metadata(finished, asset)["kill_switch"].startswith("HALTED: ann stopped trading")
    assert "| 2016-12-02 | halted |  | ann stopped trading" in metadata(finished, "orders")["events"]
    assert gate_decisions[0].tables.read(PORTFOLIO_STATE).sort("session")["turnover"].to_list()[-1] == 0.0


def test_rebalance_without_bars_retries_then_fails(story):
    finished, _ = story["too early"]
    assert not finished.success
    assert len(retried(finished)) == 12
    assert "needs the bars of that session, but the market landing ends on 2016-12-02" in step_errors(finished)


def test_rebalance_during_the_ingest_waits_for_its_bars(story):
    finished, _ = story["late"]
    assert finished.success, step_errors(finished)
    assert retried(finished) == ["portfolio__orders"]
    assert metadata(finished, "portfolio_state")["session"] == "2016-12-05"


def test_account_in_use_by_another_process_is_retried(story, gate_decisions):
    assert story
    store, second = gate_decisions[0], DeskResource()
    desk = second.of(store)
    steps = (
        lambda: rebalance_steps.execute_due_sessions(desk, lambda _: None, acknowledge=False),
        lambda: portfolio.portfolio_state(store, second),
        lambda: portfolio.target_weights(store, second),
        lambda: portfolio.rebalance_plan(store, second),
    )
    with lock_account(gate_decisions[0], "paper"):
        for step in steps:
            with pytest.raises(dg.RetryRequested):
                step()


def test_catching_up_stops_at_the_first_session_with_differences(story, gate_decisions, instance, monkeypatch):
    assert story
    store = gate_decisions[0]
    store.home.accounts.mkdir(parents=True, exist_ok=True)
    (store.home.accounts / "second.yaml").write_text("kind: simulated\n")
    days = store.tables.read(PORTFOLIO_STATE, {"account": ["paper"]})["session"].sort()
    for _ in Desk(store, "second").trade(days[-4], days[-4]):
        pass
    found = [[Difference("AAA", 1.0, 2.0)]]
    leave_out_pictures(monkeypatch)
    monkeypatch.setattr(simulated_venue, "reconcile", lambda *_: found.pop() if found else [])
    finished = run_job(store.home, "rebalance", instance, {"desk": DeskResource(account="second")})
    assert materialized_assets(finished) == {"portfolio/orders", "portfolio/portfolio_state"}
    assert not check_outcomes(finished)["portfolio/portfolio_state:reconciliation"]
    states = store.tables.read(PORTFOLIO_STATE, {"account": ["second"]}).sort("session")
    assert states["session"].to_list()[-2:] == [days[-4], days[-3]]
    assert states["n_differences"].to_list()[-1] == 1
    assert Desk(store, "second").due() == days[-3:].to_list()  # nothing was decided there yet
    refused = run_job(store.home, "rebalance", instance, {"desk": DeskResource(account="second")})
    assert materialized_assets(refused) == set()
    assert "AAA: 1 shares expected, 2 held (+1); correct it at the broker" in step_errors(refused)
    Desk(store, "second").accept("ann", "a drill")
    gone_on = run_job(store.home, "rebalance", instance, {"desk": DeskResource(account="second", acknowledge=True)})
    assert gone_on.success, step_errors(gone_on)
    assert metadata(gone_on, "portfolio_state")["session"] == str(days[-1])


def test_audit_changed_by_hand_fails_its_check(story, gate_decisions):
    assert story
    home = gate_decisions[0].home
    path = Store(home).audit.path
    before = path.read_bytes()
    whole = audit_is_whole(Store(home))
    assert isinstance(whole, dg.AssetCheckResult)
    assert whole.passed
    path.write_bytes(before.replace(b"a fire drill", b"b fire drill", 1))
    try:
        changed = audit_is_whole(Store(home))
    finally:
        path.write_bytes(before)
        restored = audit_is_whole(Store(home))
    assert isinstance(changed, dg.AssetCheckResult)
    assert isinstance(restored, dg.AssetCheckResult)
    assert restored.passed
    assert not changed.passed
    assert "does not follow line" in (changed.description or "")
