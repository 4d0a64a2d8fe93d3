import datetime as dt

import pytest

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion import promote as promote_module
from nvtrader_pipelines.promotion import track_records
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.decision_log import read_promotions_of
from nvtrader_pipelines.promotion.eligibility import sealed_run
from nvtrader_pipelines.promotion.promote import activate, activation_command
from nvtrader_pipelines.promotion.rounds import evaluate_newest, newer_run_message
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.iceberg.warehouse import Warehouse
from nvtrader_pipelines.storage.tables import EQUITY_CURVES, PROMOTION_DECISIONS
from tests.promotion.activations import LATER, Killed, dying_at
from tests.promotion.gate import MARKET, active_name, decisions, judge, overrule, spec, write_returns
from tests.runs.untrained import AT, planned, sealed

pytestmark = pytest.mark.slow


@pytest.fixture
def store(gate_store):
    return gate_store


@pytest.mark.parametrize("candidates_per_read", [1, pytest.param(64, marks=pytest.mark.nightly)])
def test_round_skips_policies_that_a_person_replaced(store, runs, candidates_per_read, monkeypatch):
    monkeypatch.setattr(track_records, "_CANDIDATES_PER_READ", candidates_per_read)

    def asked(day):
        return evaluate_newest(store, "gate", lambda: AT + dt.timedelta(days=day))

    def answered(found):
        return [(answer.candidate.policy, answer.activated) for answer in found.decisions], active_name(store)

    assert answered(asked(0)) == ([("steady", True), ("still", True)], "still")
    overrule(store, "steady", "still misbehaved", AT + dt.timedelta(days=1))
    found = asked(2)
    assert answered(found) == ([("steady", False)], "steady")
    for detail in ("ann replaced still", runs["steady"].run_id[:8], "2024-01-04", "still misbehaved"):
        assert detail in found.problems["still"]
    assert judge(store, "still", by="ann", at=AT + dt.timedelta(days=3)).activated
    assert answered(asked(4)) == ([("steady", False), ("still", False)], "still")
    moves = store.tables.read(PROMOTION_DECISIONS).filter("activated").sort("considered_at")
    assert moves.select("policy", "decision", "by").rows() == [
        ("steady", "gate", "gate"),
        ("still", "gate", "gate"),
        ("steady", "person", "ann"),
        ("still", "gate", "ann"),
    ]
    assert [event.policy for event in store.audit.events()] == moves["policy"].to_list()


def test_round_reads_the_returns_of_its_candidates_once(store, runs, monkeypatch):
    activate(store, PolicyRef(runs["trend"].run_id, "trend"), "desk", "", AT)  # it has no returns
    read, tables = Warehouse.read, []

    def counted(warehouse, table, *arguments, **options):
        tables.append(table)
        return read(warehouse, table, *arguments, **options)

    monkeypatch.setattr(Warehouse, "read", counted)
    assert len(evaluate_newest(store, "gate", lambda: AT + dt.timedelta(days=2)).decisions) == 2
    assert tables.count(EQUITY_CURVES) == 2  # those of the candidates, and of the active policy


def test_round_that_fails_keeps_the_decisions_before(store, runs, monkeypatch):
    overrule(store, "still")

    def fails_at_still(store, ref):
        if ref.run_id == runs["still"].run_id:
            raise StorageError("the run was deleted meanwhile")
        return sealed_run(store, ref)

    monkeypatch.setattr(promote_module, "sealed_run", fails_at_still)
    with pytest.raises(StorageError):
        evaluate_newest(store, "gate", lambda: LATER)
    assert ("gate", "steady", "still", False, False) in decisions(store)


@pytest.mark.parametrize("step", [1, 3, *(pytest.param(step, marks=pytest.mark.nightly) for step in (0, 2))])
def test_decision_killed_at_any_write_is_recorded_as_it_ended(store, runs, step, monkeypatch):
    dies = dying_at(step)
    overrule(store, "still")
    with monkeypatch.context() as patch:
        for module, name in [
            (promote_module, "write_promotion"),  # step 0: there is no row; 3: its activation is in the audit only
            (promote_module, "activate"),
            (JsonlAudit, "append"),
        ]:
            patch.setattr(module, name, dies(getattr(module, name)))
        with pytest.raises(Killed):
            overrule(store, "steady", at=LATER)
    replaced = step > 2
    found = evaluate_newest(store, "gate", lambda: LATER)
    assert ("ann replaced still" in found.problems.get("still", "")) == replaced
    assert active_name(store) == ("steady" if replaced else "still")
    decisions = read_promotions_of(store, PolicyRef(runs["steady"].run_id, "steady")).filter(decision="person")
    assert decisions["activated"].to_list() == ([] if step < 1 else [replaced])
    assert overrule(store, "steady", at=LATER).activated == (not replaced)
    assert active_name(store) == "steady"
    assert [event.policy for event in store.audit.events()] == ["still", "steady"]


def test_full_disk_leaves_a_row_without_activation(store, monkeypatch):
    def fails(*_):
        raise StorageError("the audit cannot be written: No space left on device; nothing was appended")

    overrule(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(JsonlAudit, "append", fails)
        with pytest.raises(StorageError):
            overrule(store, "still")
    assert ("person", "still", "steady", True, False) in decisions(store)


def test_newer_run_message_has_decision_and_command(store):
    before, after = (sealed(store, planned(store, spec("again", description=text))) for text in ("", "once more"))
    for run, at in ((before, AT), (after, LATER)):
        write_returns(store, run, MARKET)
        complete_run(store, run, at)
    judge(store, before.run_id)
    active = read_active(store)
    assert active is not None
    command = activation_command(PolicyRef(after.run_id, "again"))
    message = newer_run_message(store, active) or ""
    assert message.startswith(
        f"run {after.run_id[:8]} of again is newer than the active one: the gate has not judged it"
    )
    assert command in message
    decision = judge(store, after.run_id)
    difference = decision.verdict.against("active")
    assert difference is not None
    assert difference.is_equal
    message = newer_run_message(store, active) or ""
    assert decision.verdict.sentence in message
    assert command in message
    activated = overrule(store, after.run_id)
    assert activated.activated
    latest = read_active(store)
    assert latest is not None
    assert newer_run_message(store, latest) is None
    overrule(store, before.run_id, "it was steadier", LATER)
    back = read_active(store)
    assert back is not None
    replaced = f"ann replaced again (run {after.run_id[:8]}) by again (run {before.run_id[:8]}) on 2024-01-04 (it was"
    assert f"{replaced} steadier)" in (newer_run_message(store, back) or "")
