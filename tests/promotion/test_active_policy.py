import dataclasses
import datetime as dt
import json
import os
import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa

from nvtrader_pipelines.evaluation.splits import PurgedKFold
from nvtrader_pipelines.experiments.sealed_run import PolicyRef
from nvtrader_pipelines.promotion.active_policy import (
    find_pointer_difference,
    last_activation,
    mirror_pointer,
    read_active,
    read_active_run,
    read_every_active,
    require_every_activation,
)
from nvtrader_pipelines.promotion.promote import activate, mirror_active
from nvtrader_pipelines.runs.run_tables import complete_run
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.policy_pointer import read_pointer
from nvtrader_pipelines.storage.store import Store
from nvtrader_pipelines.storage.tables import ACTIVE_POLICY, RUNS
from tests.promotion.activations import LATER, Killed, activations_of, dying_at, put, put_unreadable
from tests.runs.untrained import AT, EXPERIMENT, begun, planned, sealed

pytestmark = pytest.mark.usefixtures("no_active_policy")


@pytest.fixture
def folder(store, run):
    """Policy folder of the run, restored after the test."""
    place = store.policies.folder(run.partition_key, run.run_id)
    before = {path: path.read_bytes() for path in place.glob("*")}
    yield place
    for path, content in before.items():
        path.write_bytes(content)


def refused(store, ref, named) -> None:
    """Require that an activation is refused and changes no file."""
    folders = (store.home.runtime, store.home.audit)
    before = {path: path.read_bytes() for folder in folders for path in folder.glob("[!.]*")}
    with pytest.raises(StorageError, match=named):
        put(store, ref, LATER)
    assert {path: path.read_bytes() for folder in folders for path in folder.glob("[!.]*")} == before


def test_reading_without_activation_gives_none_and_writes_nothing(tmp_path):
    store = Store(Home(tmp_path))
    assert read_active(store) is None
    mirror_pointer(store)
    assert not list(tmp_path.iterdir())


def test_unreadable_activation_raises_and_is_replaced_by_the_next(store, run):
    put_unreadable(store)
    with pytest.raises(StorageError):
        read_active(store)
    assert put(store, (run.run_id, "small")) == read_active(store)


@pytest.mark.slow
def test_activation_killed_at_its_event_leaves_the_previous_policy(store, run, trading, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(JsonlAudit, "append", dying_at(0)(JsonlAudit.append))
        with pytest.raises(Killed):
            put(store, (run.run_id, "small"), LATER)
    assert read_active(store) == trading


def test_activation_round_trips_and_its_event_has_author_and_reason(store, run):
    active = put(store, (run.run_id, "small"))
    assert read_active(store) == active
    assert (active.partition_key, active.sha256, active.spec_hash) == (run.partition_key, run.sha256, run.spec_hash)
    assert active.symbols == ("AAA", "BBB", "CCC")
    assert (active.previous_run_id, active.previous_policy) == (None, None)
    assert activations_of(store) == [(run.run_id, "small", "ann", "it is time", AT)]
    assert read_active_run(store, active) == run


@pytest.mark.slow
def test_audit_without_a_mirrored_activation_is_refused(store, run, other):
    put(store, (other.run_id, "other"))
    put(store, (run.run_id, "small"), LATER)
    mirror_active(store)
    require_every_activation(store)
    whole = store.audit.path.read_bytes()
    store.audit.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    vars(store).pop("audit")
    try:
        with pytest.raises(StorageError):
            require_every_activation(store)
    finally:
        store.tables.replace(ACTIVE_POLICY, store.tables.read(ACTIVE_POLICY).clear(), {})


@pytest.mark.slow
def test_activation_of_a_seed_names_the_previous_policy(store, run, other):
    put(store, (other.run_id, "other"))
    active = put(store, (run.run_id, "small/seed-2"), LATER)
    assert (active.policy, active.previous_run_id, active.previous_policy) == ("small/seed-2", other.run_id, "other")
    assert [policy for _, policy, *_ in activations_of(store)] == ["other", "small/seed-2"]


def test_activation_writes_the_pointer_file(store, run):
    active = put(store, (run.run_id, "small/seed-2"))
    assert json.loads(store.home.active_policy_file.read_bytes()) == {
        "policy": "small/seed-2",
        "experiment": run.partition_key,
        "run_id": run.run_id,
        "sha256": run.sha256,
        "activated_at": "2024-01-03T00:00:00Z",
        "by": "ann",
    }
    assert read_pointer(store.home) == active.pointer


KILLED = """
import os, signal, sys
from pathlib import Path
from nvtrader_pipelines.promotion import active_policy
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.promotion.activations import LATER, put
active_policy.write_pointer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
put(Store(Home(Path(sys.argv[1]))), (sys.argv[2], "small"), LATER)
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_pointer_file_is_written_after_a_kill_by_the_next_command(store, run, command):
    killed = subprocess.run([sys.executable, "-c", KILLED, store.home.root, run.run_id], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (read_pointer(store.home).policy, last_activation(store).policy) == ("other", "small")
    found = command(store.home)("status")
    assert (found.exit_code, found.stderr) == (0, "")
    assert read_pointer(store.home) == last_activation(store).pointer


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (lambda _: b"", "missing"),
        (lambda written: written[:40], "missing"),
        (lambda written: bytes(len(written)), "missing"),
        (lambda written: written.replace(b"ann", b"eve"), "edited"),
        (lambda written: written.replace(b'"by"', b'"author"'), "edited"),
        (lambda _: b"[]", "edited"),
    ],
)
def test_pointer_file_that_differs_is_written_again(store, trading, content, kind, caplog):
    path = store.home.active_policy_file
    written = path.read_bytes()
    path.write_bytes(content(written))
    assert find_pointer_difference(store, trading).kind == kind
    assert read_active(store) == trading
    assert path.read_bytes() == written
    assert len(caplog.records) == (kind == "edited")


def test_pointer_file_that_is_a_named_pipe_or_dangling_is_replaced(store, trading):
    path = store.home.active_policy_file
    for create in (os.mkfifo, lambda place: place.symlink_to("nowhere")):
        path.unlink()
        create(path)
        assert read_active(store) == trading
        assert read_pointer(store.home) == trading.pointer


def test_unwritable_pointer_file_is_logged_once_and_stops_nothing(store, trading, caplog):
    path = store.home.active_policy_file
    path.unlink()
    path.mkdir()
    assert (read_active(store), read_active(store)) == (trading, trading)
    assert len(caplog.records) == 1
    path.rmdir()
    mirror_pointer(store)
    assert read_pointer(store.home) == trading.pointer


def test_pointer_file_without_active_policy_is_removed(store, trading):
    store.audit.path.unlink()
    fresh = Store(store.home)
    assert find_pointer_difference(fresh, None).kind == "edited"
    assert read_active(fresh) is None
    assert not store.home.active_policy_file.exists()


def test_unreadable_audit_leaves_the_pointer_file(store, trading):
    put_unreadable(store)
    mirror_pointer(store)
    assert read_pointer(store.home) == trading.pointer


@pytest.mark.slow
def test_repeated_activation_is_idempotent(store, run):
    first = put(store, (run.run_id, "small"))
    assert put(store, (run.run_id, "small"), LATER, by="bob") == first
    assert len(activations_of(store)) == 1


@pytest.mark.slow
def test_every_change_of_the_active_policy_is_an_event(store, run, other):
    for day, ref in enumerate([(run.run_id, "small"), (other.run_id, "other"), (run.run_id, "small")]):
        put(store, ref, AT + dt.timedelta(days=day))
    assert [policy for _, policy, *_ in activations_of(store)] == ["small", "other", "small"]


@pytest.mark.usefixtures("trading")
@pytest.mark.parametrize("ref", [("f" * 16, "small"), (None, "big"), (None, "small/seed-7")])
def test_unknown_policy_is_refused(store, run, ref):
    refused(store, (ref[0] or run.run_id, ref[1]), ref[1] if ref[0] is None else ref[0])


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_changed_or_missing_policy_file_is_refused(store, run, folder):
    path = folder / "fold-0-seed-1.zip"
    content = path.read_bytes()
    for tampered in (content[:-1] + bytes([content[-1] ^ 1]), content[:100], None):
        path.unlink() if tampered is None else path.write_bytes(tampered)
        refused(store, (run.run_id, "small"), "fold-0-seed-1")
        path.write_bytes(content)
    assert put(store, (run.run_id, "small"), LATER).policy == "small"


@pytest.mark.usefixtures("trading")
def test_manifest_of_other_files_is_refused(store, run, folder):
    path, manifest = folder / "fold-0-seed-1.zip", folder / "manifest.json"
    sealed_as = manifest.read_text()
    path.write_bytes((folder / "fold-0-seed-2.zip").read_bytes() + b"x")
    digest = store.policies.find_tampered_files(run)["found"][0]
    manifest.write_text(sealed_as.replace(run.policies["fold-0-seed-1.zip"], digest))
    refused(store, (run.run_id, "small"), "another digest")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chosen", {"0": 2}),
        ("thresholds", {"0": {"drawdown": 0.1}}),
        ("code_version", "0.0.0+00000000"),
        ("seeds", [2]),
        ("folds", None),
    ],
)
def test_active_run_with_changed_manifest_raises(store, run, folder, field, value):
    active = put(store, (run.run_id, "small"))
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    later = [{**manifest["folds"][0], "test_first": str(run.folds[0].test_last)}, *manifest["folds"][1:]]
    path.write_text(json.dumps({**manifest, field: later if value is None else value}))
    with pytest.raises(StorageError):
        read_active_run(store, active)


def test_active_run_with_other_digest_raises(store, run):
    active = put(store, (run.run_id, "small")).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(StorageError):
        read_active_run(store, active)


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_evaluated_run_with_other_chosen_seed_is_refused(store, run, folder):
    complete_run(store, run, AT)
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "chosen": {"0": 2}}))
    refused(store, (run.run_id, "small"), "another digest")
    forget_digest(store, run)
    refused(store, (run.run_id, "small"), "another digest")
    store.ledger.record_policies(run.run_id, run.policies, run.sha256)
    store.tables.replace(RUNS, store.tables.read(RUNS).clear(), {})


def forget_digest(store, run) -> None:
    """Remove the digest of the manifest from the ledger."""
    with Database.open(store.home).transaction() as connection:
        connection.execute(sa.text("UPDATE runs SET policies_sha256 = NULL WHERE run_id = :run_id"), vars(run))


@pytest.mark.usefixtures("trading")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("chosen", {"0": 2}),
        ("thresholds", {"0": {"drawdown": 0.1}}),
        ("warnings", ["nothing"]),
        ("code_version", "0.0.0+00000000"),
        ("seeds", [2]),
        ("source", "sample"),
        ("panel_digest", "0" * 64),
        ("parent_run_id", "0" * 16),
    ],
)
def test_unevaluated_run_is_checked_against_its_sealed_digest(store, run, folder, field, value):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), field: value}))
    refused(store, (run.run_id, "small"), "another digest")


@pytest.mark.usefixtures("trading")
def test_run_without_recorded_digest_is_refused(store, run):
    forget_digest(store, run)
    refused(store, (run.run_id, "small"), "no digest")
    store.ledger.record_policies(run.run_id, run.policies, run.sha256)


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_policies_of_other_symbols_are_refused(store):
    run = sealed(store, planned(store, symbols=("AAA", "BBB", "ZZZ")))
    refused(store, (run.run_id, "small"), "AAA, BBB, ZZZ")


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_policies_of_other_features_are_refused(store):
    plan = planned(store)
    names = ("smile", *plan.panel.feature_names[1:])
    run = sealed(store, planned(store, feature_names=names, close_returns=plan.panel.close_returns + 1e-9))
    refused(store, (run.run_id, "small"), "smile")


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_networks_of_other_observation_size_are_refused(store):
    plan = planned(store)
    changed = dataclasses.replace(plan.panel, close_returns=plan.panel.close_returns + 1e-8)
    run = sealed(store, dataclasses.replace(plan, panel=changed, panel_digest="e" * 64), lookback=9)
    sizes = [plan.spec.environment.observation.start(plan.panel, plan_scaler(plan), n).length for n in (9, 5)]
    ours, theirs = (rf"torch\.Size\(\[8, {size}\]\)" for size in sizes)
    refused(store, (run.run_id, "small"), f"{ours} .*{theirs}")


def plan_scaler(plan):
    return plan.spec.environment.observation.fit(plan.panel, 0, 99)


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_unsealed_run_is_refused(store):
    plan = planned(store, EXPERIMENT.model_copy(update={"name": "half"}))
    begun(store, plan).finish(plan.run_id, "interrupted")
    refused(store, (plan.run_id, "half"), "interrupted")


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_validation_only_run_is_refused(store):
    spec = EXPERIMENT.model_copy(update={"name": "blocks", "splitter": PurgedKFold(n_folds=3)})
    run = sealed(store, planned(store, spec))
    refused(store, (run.run_id, "blocks"), "validation only")


@pytest.mark.usefixtures("trading")
def test_limits_looser_than_those_of_the_desk_are_refused(store, run):
    path = store.home.compliance / "limits.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("max_position: 0.1\n")
    refused(store, (run.run_id, "small"), "max_position")
    path.unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("trading")
def test_unreadable_audit_blocks_activation(store, run):
    path = store.audit.path
    path.write_bytes(path.read_bytes().replace(b"ann", b"eve"))
    refused(Store(store.home), (run.run_id, "small"), "by hand")


@pytest.mark.slow
def test_newest_activation_that_fits_an_account_is_its_policy(store, run, other):
    put(store, (run.run_id, "small"))
    own = activate(store, PolicyRef(other.run_id, "other"), "ann", "", LATER, "coins")
    assert (read_active(store).run_id, read_active(store, "paper").run_id) == (run.run_id, run.run_id)
    assert read_active(store, "coins") == own
    assert (own.account, own.previous_run_id, read_pointer(store.home).run_id) == ("coins", run.run_id, run.run_id)
    assert {policy.run_id for policy in read_every_active(store)} == {run.run_id, other.run_id}
    put(store, (run.run_id, "small/seed-2"), LATER + dt.timedelta(days=1))
    assert read_active(store, "coins").policy == "small/seed-2"
    mirror_active(store)
    rows = store.tables.read(ACTIVE_POLICY).select("account", "policy", "active").rows()
    assert rows == [(None, "small", False), ("coins", "other", True), (None, "small/seed-2", True)]
