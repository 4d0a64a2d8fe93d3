import datetime as dt
import errno

import pytest

from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion import active_policy, log
from nvtrader_pipelines.promotion import decide as decide_module
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.promotion.log import read_promotions, read_promotions_of
from nvtrader_pipelines.promotion.rounds import evaluate_newest, newer_run_message
from nvtrader_pipelines.runs.tables import complete
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.tables import PROMOTION_DECISIONS
from tests.promotion.activations import LATER, Killed, dying_at
from tests.promotion.gate import MARKET, answers, ask, earned, say, spec, trades
from tests.runs.untrained import AT, planned, sealed

pytestmark = pytest.mark.usefixtures("no_decision")


def test_what_a_person_replaced_no_round_puts_back_until_it_is_put_forward_again(store, runs):
    for day, name in enumerate(("steady", "still")):
        complete(store, runs[name], AT + dt.timedelta(days=day))

    def asked(day):
        return evaluate_newest(store, "gate", lambda: AT + dt.timedelta(days=day))

    def answered(found):
        return [(answer.candidate.policy, answer.activated) for answer in found.answers], trades(store)

    assert answered(asked(0)) == ([("steady", True), ("still", True)], "still")
    say(store, "steady", "still misbehaved", AT + dt.timedelta(days=1))
    found = asked(2)
    assert answered(found) == ([("steady", False)], "steady")
    assert found.problems["still"] == (
        f"ann replaced still (run {runs['still'].run_id[:8]}) by steady (run {runs['steady'].run_id[:8]}) on "
        "2024-01-04 (still misbehaved), which is not undone without a person: "
        f"`nvtrader policies promote {runs['still'].run_id[:8]}` asks the gate again"
    )
    assert ask(store, "still", by="ann", at=AT + dt.timedelta(days=3)).activated
    assert answered(asked(4)) == ([("steady", False), ("still", False)], "still")
    moves = store.tables.read(PROMOTION_DECISIONS).filter("activated").sort("considered_at")
    assert moves.select("policy", "decision", "by").rows() == [
        ("steady", "gate", "gate"),
        ("still", "gate", "gate"),
        ("steady", "person", "ann"),
        ("still", "gate", "ann"),
    ]
    assert [event.policy for event in store.audit.events()] == moves["policy"].to_list()


@pytest.mark.parametrize("step", [1, 4, 5, 6])
def test_killed_at_any_write_a_decision_is_told_as_carried_out_if_its_policy_trades(store, runs, step, monkeypatch):
    dies = dying_at(step)
    say(store, "still")
    complete(store, runs["still"], AT)
    with monkeypatch.context() as patch:
        for module, name in [
            (log, "write_atomically"),
            (log, "write_promotion"),  # step 1: there is no row
            (decide_module, "activate"),
            (active_policy, "write_atomically"),  # twice; at step 4 the pointer is the old one
            (JsonlAudit, "append"),  # 5: its event is not kept
            (active_policy, "_settled"),  # 6: it is whole
        ]:
            patch.setattr(module, name, dies(getattr(module, name)))
        with pytest.raises(Killed):
            say(store, "steady", at=LATER)
    replaced = step > 4
    found = evaluate_newest(store, "gate", lambda: LATER)
    assert ("ann replaced still" in found.problems.get("still", "")) == replaced
    assert trades(store) == ("steady" if replaced else "still")
    said = read_promotions_of(store, PolicyRef(runs["steady"].run_id, "steady")).filter(decision="person")
    told = said["activated"].to_list()
    assert told == ([] if step < 2 else [replaced])
    assert not list(store.home.runtime.glob("*.pending"))
    assert say(store, "steady", at=LATER).activated == (not replaced)
    assert trades(store) == "steady"
    assert [event.policy for event in store.audit.events()] == ["still", "steady"]


def test_a_disk_that_is_full_leaves_no_row_of_an_activation_that_it_stopped(store, monkeypatch):
    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    say(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", fails)
        with pytest.raises(OSError, match="No space left"):
            say(store, "still")
    assert ("person", "still", "steady", True, False) in answers(store)
    assert not list(store.home.runtime.glob(".promotion.pending"))


def test_an_activation_whose_event_could_not_be_kept_yet_is_told_once_it_is(store, runs, monkeypatch):
    def fails(*_):
        raise StorageError("the audit cannot be written")

    say(store, "steady")
    with monkeypatch.context() as patch:
        patch.setattr(JsonlAudit, "append", fails)
        with pytest.raises(StorageError, match="the audit cannot be written"):
            say(store, "still")
        with pytest.raises(StorageError, match="the audit cannot be written"):
            read_promotions(store)
    assert read_promotions_of(store, PolicyRef(runs["still"].run_id, "still"))["activated"].to_list() == [True]
    assert trades(store) == "still"


def test_a_decision_that_was_killed_stops_nobody_who_replaces_a_damaged_pointer(store, monkeypatch):
    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(JsonlAudit, "append", killed)
        with pytest.raises(Killed):
            say(store, "still")
    store.home.active_policy.write_text("{")
    assert say(store, "steady", at=LATER).activated
    assert trades(store) == "steady"
    assert [activated for *_, policy, _, _, activated in answers(store) if policy == "still"] == [False]


def test_what_became_of_a_newer_run_of_the_experiment_that_trades_is_told_with_what_a_person_can_do(store):
    before, after = (sealed(store, planned(store, spec("again", description=text))) for text in ("", "once more"))
    for run, at in ((before, AT), (after, LATER)):
        earned(store, run, MARKET)
        complete(store, run, at)
    ask(store, before.run_id)
    active = read_active(store)
    assert active is not None
    told = newer_run_message(store, active)
    activation_command = f"to let it trade all the same: `nvtrader policies activate {after.run_id[:8]} --reason WHY`"
    newer = f"run {after.run_id[:8]} of again is newer than the one that trades"
    assert told == f"{newer}: the gate was not asked yet: `nvtrader policies promote`; {activation_command}"
    said = ask(store, after.run_id)
    assert f"Sharpe ratio is the same as that of again (run {before.run_id[:8]}), which" in said.verdict.sentence
    assert newer_run_message(store, active) == f"{newer}: {said.verdict.sentence}; {activation_command}"
    activated = say(store, after.run_id)
    assert activated.activated
    latest = read_active(store)
    assert latest is not None
    assert newer_run_message(store, latest) is None
    say(store, before.run_id, "it was steadier", LATER)
    back = read_active(store)
    assert back is not None
    replaced = f"ann replaced again (run {after.run_id[:8]}) by again (run {before.run_id[:8]}) on 2024-01-04 (it was"
    assert (newer_run_message(store, back) or "").startswith(f"{newer}: {replaced} steadier), which is not undone")
