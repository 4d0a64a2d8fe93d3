"""From a judgement through the gate to the policy that trades, and a few evenings of the account that it trades."""

from collections.abc import Iterable

import dagster as dg
import polars as pl
import pytest

from nvtrader_pipelines.execution.brokers.broker import BrokerTimeout
from nvtrader_pipelines.execution.brokers.paper import PaperBroker
from nvtrader_pipelines.orchestration import retries, sensors
from nvtrader_pipelines.orchestration.assets import portfolio
from nvtrader_pipelines.orchestration.assets.active_policy import ACTIVATION, VERDICT
from nvtrader_pipelines.orchestration.jobs import CONTEST
from nvtrader_pipelines.orchestration.portfolio_checks import audit_is_whole, not_reconciled
from nvtrader_pipelines.orchestration.rebalancing import SESSION, looked_to
from nvtrader_pipelines.orchestration.resources import DeskResource, WarehouseResource
from nvtrader_pipelines.storage.active_policy import read_active
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.kill_switch import halt, resume
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.promotion_round import consider_newest, newest_runs, summary
from nvtrader_pipelines.storage.recording import now
from nvtrader_pipelines.storage.tables import (
    ACTIVE_POLICY,
    FILLS,
    ORDERS,
    PORTFOLIO_STATE,
    PROMOTIONS,
    REBALANCE_PLAN,
    RUNS,
)
from nvtrader_pipelines.storage.warehouse import Warehouse
from tests.homes import materialized, problems, run_job, small_home
from tests.orchestration.desk_home import BETTER, LIMITS, WORSE, desk_home
from tests.storage.small_runs import land

STATE = "0123456789abcdef"
CHAIN = ("orders", "portfolio_state", "target_weights", "rebalance_plan")


@pytest.fixture(scope="module")
def instance():
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture(scope="module")
def asked(tmp_path_factory, instance):
    """A home whose gate was asked twice, and what each run told with what the sensor made of it."""
    lake = desk_home(tmp_path_factory.mktemp("desk") / "home", WORSE, BETTER)
    told = []
    for _ in range(2):
        finished = run_job(lake.home, "promotion", instance, tags={CONTEST: STATE})
        assert finished.success, problems(finished)
        (event,) = finished.get_asset_materialization_events()
        told.append((event.materialization.metadata, activated(instance)))
    return lake, told


def activated(instance):
    """What the sensor answers to the last materialisation of the active policy."""
    key = dg.AssetKey(["portfolio", "active_policy"])
    (record,) = instance.fetch_materializations(key, limit=1).records
    with dg.build_sensor_context(instance=instance) as context:
        answers = sensors.policy_activated._asset_materialization_fn(context, record.event_log_entry)
        assert isinstance(answers, Iterable)
        (answer,) = answers
    return answer


def test_every_experiments_newest_policy_is_asked_about_and_the_one_that_is_better_trades(asked):
    lake, [(metadata, _), _] = asked
    rows = lake.read(PROMOTIONS).sort("considered_at")
    answers = [("worse", False, False), ("better", True, True), ("worse", False, False)]  # the last against the other
    assert rows.select("policy", "passed", "activated").rows() == answers
    assert "not above 0" in rows["sentence"][0]
    assert metadata[VERDICT].value == rows["sentence"][1]
    assert rows["sentence"][0] in metadata["answers"].value
    active = read_active(lake.home)
    assert active is not None
    assert (active.policy, active.by) == ("better", "gate")
    assert metadata["pointer"].value["run_id"] == active.run_id
    assert lake.read(ACTIVE_POLICY)["event_id"].to_list() == [active.event.event_id]


def test_an_activation_asks_for_one_rebalance_even_if_only_the_answer_after_it_is_seen(asked):
    lake, [(first, request), (second, again)] = asked
    active = read_active(lake.home)
    assert active is not None
    assert isinstance(request, dg.RunRequest)
    assert request.run_key == first[ACTIVATION].value == active.event.event_id
    assert second[ACTIVATION].value == first[ACTIVATION].value  # the gate said no, and two answers may lie in a tick
    assert isinstance(again, dg.RunRequest)
    assert again.run_key == request.run_key  # of which Dagster launches one run


def test_a_run_for_validation_only_is_no_candidate(asked, monkeypatch):
    lake, _ = asked
    assert newest_runs(lake)["experiment"].to_list() == ["worse", "better"]
    read = Warehouse.read

    def marked(own, table, *arguments, **options):
        rows = read(own, table, *arguments, **options)
        only = rows["experiment"] == "better" if table is RUNS else None
        return rows if only is None else rows.with_columns(validation_only=only)

    monkeypatch.setattr(Warehouse, "read", marked)
    assert newest_runs(lake)["experiment"].to_list() == ["worse"]


def test_of_several_runs_of_an_experiment_the_last_completed_is_the_candidate(asked, monkeypatch):
    lake, _ = asked
    runs = lake.read(RUNS)
    first = runs["finished_at"].min()
    older = runs.filter(experiment="better").with_columns(run_id=pl.lit("older"), finished_at=pl.lit(first))
    monkeypatch.setattr(Warehouse, "read", lambda _self, _table: older.vstack(runs.select(older.columns)))
    assert newest_runs(lake).sort("experiment").equals(runs.select("experiment", "run_id").sort("experiment"))


def test_a_home_without_runs_has_nothing_to_promote(tmp_path):
    home = small_home(tmp_path / "home")
    answers = consider_newest(Warehouse(home), Ledger.open(home), "gate", now)
    assert answers == []
    assert summary(answers) == "no run may trade yet"


def judgement_ended(home, instance, **tags):
    """What the sensor answers to a judgement that ended well."""

    @dg.op
    def work() -> None: ...

    @dg.job(name="judgement", tags=tags)
    def judgement() -> None:
        work()

    result = judgement.execute_in_process(instance=instance)
    (event,) = result.filter_events(lambda each: each.event_type is dg.DagsterEventType.RUN_SUCCESS)
    context = dg.build_run_status_sensor_context(
        sensor_name="judged", dagster_instance=instance, dagster_run=result.dagster_run, dagster_event=event
    )
    return result.run_id, sensors.judged(context, warehouse=WarehouseResource(root=str(home.root)))


def test_a_judgement_asks_the_gate_unless_it_was_asked_about_the_same(asked, instance):
    lake, _ = asked
    _, skipped = judgement_ended(lake.home, instance, **{CONTEST: STATE})
    assert isinstance(skipped, dg.SkipReason)
    run_id, request = judgement_ended(lake.home, instance, **{CONTEST: "another"})
    assert isinstance(request, dg.RunRequest)
    assert (request.run_key, request.tags[CONTEST]) == (run_id, "another")


class Evenings:
    """The account's runs, one after the other."""

    def __init__(self, lake, instance):
        self.lake, self.instance = lake, instance

    def rebalance(self, *assets, acknowledge=False, tags=None):
        keys = [dg.AssetKey(["portfolio", name]) for name in assets] or None
        desk = {"desk": DeskResource(acknowledge=acknowledge)}
        finished = run_job(self.lake.home, "rebalance", self.instance, desk, asset_selection=keys, tags=tags or {})
        return finished, self.statuses()

    def limits(self, text):
        (self.lake.home.compliance / "limits.yaml").write_text(text)

    def statuses(self):
        return self.lake.read(REBALANCE_PLAN).sort("session")["status"].to_list()


def unanswered_once(submit):
    """A broker that takes its second order and does not say so."""
    submitted = []

    def submitting(own, order):
        receipt = submit(own, order)
        submitted.append(order.order_id)
        if len(submitted) == 2:
            raise BrokerTimeout("no answer")
        return receipt

    return submitting


@pytest.fixture(scope="module")
def story(asked, instance):
    """What became of each evening's run, and the plans after it; the account decides at every second close."""
    lake = asked[0]
    evenings = Evenings(lake, instance)
    told = {"opening": evenings.rebalance()}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("account_figures", "stages_figures", "plan_figures"):
            patch.setattr(portfolio, name, lambda *_: {})  # once is enough
        patch.setattr(retries, "WAIT_SECONDS", 0.0)
        land(lake, 481)
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(PaperBroker, "submit", unanswered_once(PaperBroker.submit))
            told["no answer"] = evenings.rebalance()
        land(lake, 482)
        evenings.limits("max_position: 0.3\n")
        told["beyond"] = evenings.rebalance()
        told["after beyond"] = evenings.rebalance()
        evenings.limits(LIMITS.replace("1.0", "1e-6"))  # the least change waits for a person
        told["mended"] = evenings.rebalance("target_weights", "rebalance_plan")
        told["acknowledged"] = evenings.rebalance("rebalance_plan", acknowledge=True)
        land(lake, 483)
        halt(lake.home, JsonlAudit(lake.home), "ann", "a fire drill", now)
        told["halted"] = evenings.rebalance()
        resume(lake.home, JsonlAudit(lake.home), "ann", "it was a drill", now)
        told["too early"] = evenings.rebalance(tags={SESSION: "2030-01-02"})
    return told


def metadata(finished, asset):
    """What the asset told."""
    events = {
        event.asset_key.path[-1]: event.materialization.metadata
        for event in finished.get_asset_materialization_events()
    }
    return {name: value.value for name, value in events[asset].items()}


def test_the_first_evening_opens_the_account_and_leaves_a_plan_with_pictures(story, asked):
    finished, statuses = story["opening"]
    assert finished.success, problems(finished)
    assert materialized(finished) == {f"portfolio/{name}" for name in CHAIN}
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
        path = asked[0].home.pictures / asset / "paper" / f"{picture}.png"
        assert metadata(finished, asset)[picture].startswith("![plot](data:image/png;base64,")
        assert metadata(finished, asset)["pictures"] == str(path.parent)


def test_a_broker_that_does_not_answer_is_asked_again_and_nothing_is_placed_twice(story, asked):
    finished, statuses = story["no answer"]
    assert finished.success, problems(finished)
    retried = finished.filter_events(lambda event: event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY)
    assert [event.step_key for event in retried] == ["portfolio__orders"]
    assert statuses == ["filled"]
    first = pl.col("session") == pl.col("session").min()
    placed = asked[0].read(ORDERS).filter(first)
    assert placed["symbol"].sort().to_list() == ["AAA", "BBB", "CCC"]
    assert asked[0].read(FILLS).filter(first)["order_id"].sort().equals(placed["order_id"].sort())
    events = [event for event in JsonlAudit(asked[0].home).events() if event.order_id in set(placed["order_id"])]
    assert sorted(event.kind for event in events) == ["filled"] * 3 + ["placed"] * 3


def test_weights_beyond_the_limits_stop_the_run_before_a_plan_is_cleared_and_the_next_run_before_an_order(story):
    finished, statuses = story["beyond"]
    assert not finished.success
    assert materialized(finished) == {f"portfolio/{name}" for name in CHAIN[:-1]}
    assert statuses == ["filled", "constructed"]
    refused, unchanged = story["after beyond"]
    assert not refused.success
    assert materialized(refused) == set()
    assert "account paper is not traded: limits_hold of portfolio/target_weights did not pass" in problems(refused)
    assert unchanged == statuses


def test_once_the_check_passes_the_run_goes_on_and_a_soft_finding_waits_for_a_person(story):
    finished, statuses = story["mended"]
    assert finished.success, problems(finished)
    assert statuses == ["filled", "waiting"]
    assert "| soft | turnover_pct_warn |" in metadata(finished, "rebalance_plan")["findings"]


def test_a_run_that_was_told_to_acknowledges_soft_findings_with_a_row(story, asked):
    assert story["acknowledged"][1] == ["filled", "approved"]
    (event,) = [event for event in JsonlAudit(asked[0].home).events() if event.kind == "approved"]
    assert (event.by, event.reason) == ("dagster", "the run was told to acknowledge soft findings")


def test_a_halted_desk_holds_and_its_run_ends_well_and_says_so(story, asked):
    finished, statuses = story["halted"]
    assert finished.success, problems(finished)
    assert statuses == ["filled", "cancelled"]
    for asset in CHAIN:
        assert metadata(finished, asset)["kill_switch"].startswith("HALTED: ann stopped trading")
    assert "| halted | None | ann stopped trading" in metadata(finished, "orders")["events"]
    assert asked[0].read(PORTFOLIO_STATE).sort("session")["turnover"].to_list()[-1] == 0.0


def test_a_rebalance_before_its_sessions_bars_are_there_fails_with_a_sentence(story):
    finished, _ = story["too early"]
    assert not finished.success
    assert "needs the bars of that session, but the market landing ends on 2016-11-30" in problems(finished)


def test_an_audit_that_was_changed_by_hand_does_not_pass(story, asked):
    assert story
    home = asked[0].home
    path = JsonlAudit(home).path
    before = path.read_bytes()
    warehouse = WarehouseResource(root=str(home.root))
    whole = audit_is_whole(warehouse)
    assert isinstance(whole, dg.AssetCheckResult)
    assert whole.passed
    path.write_bytes(before.replace(b"a fire drill", b"b fire drill", 1))
    try:
        changed = audit_is_whole(warehouse)
    finally:
        path.write_bytes(before)
    assert isinstance(changed, dg.AssetCheckResult)
    assert not changed.passed
    assert "is not what was appended" in (changed.description or "")


def test_a_difference_from_the_brokers_books_does_not_pass_once_it_is_the_last_word(story, asked):
    assert story
    states = asked[0].read(PORTFOLIO_STATE).sort("session")
    differs = pl.lit(["AAA: 1 shares expected, 2 held"])
    wrong = states.with_columns(n_differences=pl.lit(1), differences=differs)
    days = states["session"]
    assert not_reconciled(states, None).is_empty()
    assert not_reconciled(wrong, days[-1]).rows() == [(days[-1], "AAA: 1 shares expected, 2 held")]
    before = pl.concat([wrong.head(1), states.tail(-1)], how="vertical_relaxed")
    assert not_reconciled(before, days[0]).is_empty()
    assert not_reconciled(before, None)["session"].to_list() == [days[0]]  # the account caught up since


def test_the_check_of_the_brokers_books_says_to_which_session_it_looked(story, asked, instance):
    assert story
    last = asked[0].read(PORTFOLIO_STATE, {"account": ["paper"]})["session"].max()
    key = dg.AssetCheckKey(dg.AssetKey(["portfolio", "portfolio_state"]), "reconciliation")
    assert looked_to(instance, key, "paper") == last
    assert looked_to(instance, key, "another") is None
