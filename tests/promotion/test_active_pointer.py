import json

import pytest

from nvtrader_pipelines.promotion import active_policy
from nvtrader_pipelines.promotion.active_policy import read_active
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.promotion.activations import LATER, Killed, activations_of, dying_at, put
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
def test_damaged_pointer_raises_and_is_replaced_by_next_activation(store, run, content, said):
    known = json.loads(put(store, (run.run_id, "small")).model_dump_json())
    damaged = content if isinstance(content, bytes) else json.dumps({**known, **content}).encode()
    store.home.active_policy.write_bytes(damaged)
    with pytest.raises(StorageError, match=r"active_policy\.json cannot be read as the active policy") as caught:
        read_active(store)
    assert said in str(caught.value)
    assert "nothing trades until a policy is activated again" in str(caught.value)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)
    assert len(activations_of(store)) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"policy": "small/seed-1"}, "the audit has no such activation"),
        ({"activated_at": "2024-01-03T00:00:01Z"}, "the audit has no such activation"),
        ({"symbols": ["AAA"]}, "the audit differs in symbols;"),
        ({"snapshot_ids": {}, "by": "eve"}, "the audit differs in by, snapshot_ids;"),
    ],
)
def test_edited_pointer_raises(store, run, changed, said):
    known = json.loads(put(store, (run.run_id, "small")).model_dump_json())
    store.home.active_policy.write_text(json.dumps({**known, **changed}))
    with pytest.raises(StorageError, match="as the last activation wrote it") as caught:
        read_active(store)
    assert said in str(caught.value)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)


def test_restored_older_pointer_raises(store, run, other):
    put(store, (run.run_id, "small"))
    older = store.home.active_policy.read_bytes()
    put(store, (other.run_id, "other"), LATER)
    store.home.active_policy.write_bytes(older)
    with pytest.raises(StorageError, match=r"later activation of other of run \w+ on 2024-01-04"):
        read_active(store)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)


@pytest.mark.parametrize("leads_to", [None, "a file on a disk that is not mounted"])
def test_missing_pointer_of_an_audited_activation_raises(store, run, leads_to):
    put(store, (run.run_id, "small"))
    store.home.active_policy.unlink()
    said = r"it is missing, and the audit has an activation of small of run \w+ on 2024-01-03;"
    if leads_to:
        store.home.active_policy.symlink_to(leads_to)
    with pytest.raises(StorageError, match=said):
        read_active(store)
    assert put(store, (run.run_id, "small"), LATER) == read_active(store)
    assert not store.home.active_policy.is_symlink()
    assert len(activations_of(store)) == 2


def test_reading_without_activation_gives_none_and_writes_nothing(tmp_path):
    assert read_active(Store(Home(tmp_path))) is None
    assert not list(tmp_path.iterdir())


def test_read_during_an_activation_returns_one_of_both_policies(store, run, trading, monkeypatch):
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


def test_killed_activation_never_audits_an_edited_pointer(store, run, other, monkeypatch):
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
        with pytest.raises(StorageError, match="as the last activation wrote it"):
            read_active(store)
    assert activations_of(store) == [(run.run_id, "small", "ann", "it is time", AT)]


@pytest.mark.parametrize("left", [b"", None])
def test_pending_file_of_another_pointer_audits_none(store, run, other, left):
    put(store, (run.run_id, "small"))
    older = store.home.active_policy.read_bytes()
    put(store, (other.run_id, "other"), LATER)
    forged = json.loads(older) | {"activated_at": "2024-01-09T00:00:00Z"}
    store.home.active_policy.write_text(json.dumps(forged))
    (store.home.runtime / ".active_policy.pending").write_bytes(older if left is None else left)
    with pytest.raises(StorageError, match="the audit has no such activation"):
        read_active(store)
    assert [policy for _, policy, *_ in activations_of(store)] == ["small", "other"]


@pytest.mark.parametrize("step", range(4))
def test_activation_killed_between_writes_is_all_or_nothing(store, run, trading, step, monkeypatch):
    dies = dying_at(step)
    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", dies(active_policy.write_atomically))
        patch.setattr(JsonlAudit, "append", dies(JsonlAudit.append))
        patch.setattr(active_policy, "_clear_pending", dies(active_policy._clear_pending))
        with pytest.raises(Killed):
            put(store, (run.run_id, "small"), LATER)
    active = read_active(store)
    assert active is not None
    assert active.policy == ("other" if step < 2 else "small")
    assert [policy for _, policy, *_ in activations_of(store)] == ["other", "small"][: 1 if step < 2 else 2]
    assert not list(store.home.runtime.glob("*.pending"))
    assert put(store, (run.run_id, "small"), LATER).policy == "small"
    assert [policy for _, policy, *_ in activations_of(store)] == ["other", "small"]
