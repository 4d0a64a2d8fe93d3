import json

import pytest

from nvtrader_pipelines.promotion import active_policy
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.promotion.activations import LATER, Killed, dying_at, promoted, put
from tests.runs.untrained import AT

pytestmark = pytest.mark.usefixtures("no_active_policy")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Invalid JSON"),
        (b"{", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b"\xff\xfe\x00", "Invalid JSON"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"sha256": "abc"}, "sha256: String should match pattern"),
        ({"activated_at": "2024-01-03T00:00:00"}, "activated_at: Input should have timezone info"),
    ],
)
def test_a_damaged_pointer_is_said_in_one_sentence_and_replaced_by_the_next_activation(store, run, content, said):
    known = json.loads(put(store, (run.run_id, "small")).model_dump_json())
    damaged = content if isinstance(content, bytes) else json.dumps({**known, **content}).encode()
    store.home.active_policy.write_bytes(damaged)
    with pytest.raises(StorageError, match=r"active_policy\.json cannot be read as the active policy") as caught:
        read_active(store)
    assert said in str(caught.value)
    assert "nothing trades until a policy is activated again" in str(caught.value)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)
    assert len(promoted(store)) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"policy": "small/seed-1"}, "the audit has no such activation"),
        ({"activated_at": "2024-01-03T00:00:01Z"}, "the audit has no such activation"),
        ({"symbols": ["AAA"]}, "the audit has another symbols;"),
        ({"snapshot_ids": {}, "by": "eve"}, "the audit has another by, snapshot_ids;"),
    ],
)
def test_a_pointer_that_no_activation_wrote_does_not_trade(store, run, changed, said):
    known = json.loads(put(store, (run.run_id, "small")).model_dump_json())
    store.home.active_policy.write_text(json.dumps({**known, **changed}))
    with pytest.raises(StorageError, match="is not what an activation wrote: ") as caught:
        read_active(store)
    assert said in str(caught.value)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)


def test_an_older_pointer_that_was_put_back_does_not_trade(store, run, other):
    put(store, (run.run_id, "small"))
    older = store.home.active_policy.read_bytes()
    put(store, (other.run_id, "other"), LATER)
    store.home.active_policy.write_bytes(older)
    with pytest.raises(StorageError, match=r"the audit has a later one, of other of run \w+ on 2024-01-04; nothing"):
        read_active(store)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)


@pytest.mark.parametrize("leads_to", [None, "a file on a disk that is not mounted"])
def test_a_pointer_that_is_gone_does_not_trade_while_the_audit_has_an_activation(store, run, leads_to):
    put(store, (run.run_id, "small"))
    store.home.active_policy.unlink()
    said = r"is not what an activation wrote: it is gone, and the audit has one, of small of run \w+ on 2024-01-03;"
    if leads_to:
        store.home.active_policy.symlink_to(leads_to)
    with pytest.raises(StorageError, match=said):
        read_active(store)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)
    assert not store.home.active_policy.is_symlink()
    assert len(promoted(store)) == 2


def test_where_nothing_was_ever_activated_no_policy_trades_and_nothing_is_written(tmp_path):
    assert read_active(Store(Home(tmp_path))) is None
    assert not list(tmp_path.iterdir())


def test_one_who_reads_while_another_activates_sees_one_of_the_two(store, run, trading, monkeypatch):
    read, once = active_policy._read, iter([True])

    def meanwhile(path):
        found = read(path)
        if next(once, False):  # between the pointer and the audit
            put(store, (run.run_id, "small"), LATER)
        return found

    monkeypatch.setattr(active_policy, "_read", meanwhile)
    active = read_active(store)
    assert active is not None
    assert active.policy == "small"


def test_a_pointer_changed_by_hand_is_audited_by_no_activation_that_was_killed(store, run, other, monkeypatch):
    written = json.loads(put(store, (run.run_id, "small")).model_dump_json())
    store.home.active_policy.write_text(json.dumps({**written, "policy": "small/seed-1"}))

    def dies_before_the_pointer(path, content):
        if path == store.home.active_policy:
            raise Killed
        write(path, content)

    write = active_policy.write_atomically
    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", dies_before_the_pointer)
        with pytest.raises(Killed):
            put(store, (other.run_id, "other"), LATER)
    for _ in range(2):
        with pytest.raises(StorageError, match="is not what an activation wrote"):
            read_active(store)
    assert promoted(store) == [(run.run_id, "small", "ann", "it is time", AT)]


@pytest.mark.parametrize("left", [b"", None])
def test_a_mark_that_names_another_pointer_audits_none(store, run, other, left):
    put(store, (run.run_id, "small"))
    older = store.home.active_policy.read_bytes()
    put(store, (other.run_id, "other"), LATER)
    forged = json.loads(older) | {"activated_at": "2024-01-09T00:00:00Z"}
    store.home.active_policy.write_text(json.dumps(forged))
    (store.home.runtime / ".active_policy.pending").write_bytes(older if left is None else left)
    with pytest.raises(StorageError, match="the audit has no such activation"):
        read_active(store)
    assert [policy for _, policy, *_ in promoted(store)] == ["small", "other"]


@pytest.mark.parametrize("step", range(4))
def test_killed_between_any_two_writes_an_activation_is_whole_or_has_not_been(store, run, trading, step, monkeypatch):
    dies = dying_at(step)
    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", dies(active_policy.write_atomically))
        patch.setattr(JsonlAudit, "append", dies(JsonlAudit.append))
        patch.setattr(active_policy, "_settled", dies(active_policy._settled))
        with pytest.raises(Killed):
            put(store, (run.run_id, "small"), LATER)
    active = read_active(store)
    assert active is not None
    assert active.policy == ("other" if step < 2 else "small")
    assert [policy for _, policy, *_ in promoted(store)] == ["other", "small"][: 1 if step < 2 else 2]
    assert not list(store.home.runtime.glob("*.pending"))
    assert put(store, (run.run_id, "small"), LATER).policy == "small"
    assert [policy for _, policy, *_ in promoted(store)] == ["other", "small"]
