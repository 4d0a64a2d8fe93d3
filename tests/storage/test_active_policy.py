import dataclasses
import datetime as dt
import json

import pytest
import sqlalchemy as sa

from nvtrader_pipelines.evaluation.splits import PurgedKFold
from nvtrader_pipelines.policies.baselines import EqualWeight
from nvtrader_pipelines.storage import active_policy
from nvtrader_pipelines.storage.active_policy import (
    ActivePolicy,
    PolicyRef,
    activate,
    read_active,
    sealed_of,
)
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import StorageError
from nvtrader_pipelines.storage.ledger import Ledger
from nvtrader_pipelines.storage.ledger.database import Database
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.runs import complete
from nvtrader_pipelines.storage.tables import RUNS
from tests.storage.untrained import AT, EXPERIMENT, begun, market_home, planned, sealed

OTHER = EXPERIMENT.model_copy(update={"name": "other", "agent": EqualWeight(), "seeds": (0,)})
LATER = AT + dt.timedelta(days=1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A home with a market and runs; nothing of it is changed for good."""
    return market_home(tmp_path_factory.mktemp("library") / "home")


@pytest.fixture(scope="module")
def run(lake):
    return sealed(lake, planned(lake))


@pytest.fixture(scope="module")
def other(lake):
    return sealed(lake, planned(lake, OTHER))


@pytest.fixture
def folder(lake, run):
    """The folder of the run's policies, which is put back as it was."""
    place = PolicyLibrary(lake.home).folder(run.partition_key, run.run_id)
    before = {path: path.read_bytes() for path in place.glob("*")}
    yield place
    for path, content in before.items():
        path.write_bytes(content)


@pytest.fixture(autouse=True)
def _nothing_trades(lake):
    """Before every test: no pointer and no audit."""
    for folder in (lake.home.runtime, lake.home.audit):
        for path in folder.glob("*"):
            path.unlink()


def put(lake, ref, at=AT, by="ann", reason="it is time") -> ActivePolicy:
    return activate(lake, Ledger.open(lake.home), PolicyRef(*ref), by, reason, lambda: at)


def promoted(lake) -> list[tuple]:
    events = JsonlAudit(lake.home).events()
    return [(event.run_id, event.policy, event.by, event.reason, event.at) for event in events]


def refused(lake, ref, sentence) -> None:
    """The activation is refused, and what was on disk stays byte for byte."""
    folders = (lake.home.runtime, lake.home.audit)
    before = {path: path.read_bytes() for folder in folders for path in folder.glob("[!.]*")}
    with pytest.raises(StorageError, match=sentence):
        put(lake, ref, LATER)
    assert {path: path.read_bytes() for folder in folders for path in folder.glob("[!.]*")} == before


def test_where_nothing_was_activated_nothing_trades(lake):
    assert read_active(lake.home) is None


def test_an_activated_policy_is_read_back_and_its_event_names_who_and_why(lake, run):
    active = put(lake, (run.run_id, "small"))
    assert read_active(lake.home) == active
    assert (active.partition_key, active.sha256, active.spec_hash) == (run.partition_key, run.sha256, run.spec_hash)
    assert active.symbols == ("AAA", "BBB", "CCC")
    assert (active.previous_run_id, active.previous_policy) == (None, None)
    assert promoted(lake) == [(run.run_id, "small", "ann", "it is time", AT)]
    assert sealed_of(lake.home, active) == run


def test_a_single_seed_may_trade_and_the_pointer_names_what_traded_before(lake, run, other):
    put(lake, (other.run_id, "other"))
    active = put(lake, (run.run_id, "small/seed-2"), LATER)
    assert (active.policy, active.previous_run_id, active.previous_policy) == ("small/seed-2", other.run_id, "other")
    assert [policy for _, policy, *_ in promoted(lake)] == ["other", "small/seed-2"]


def test_activated_again_a_policy_that_trades_stays_as_it_is(lake, run):
    first = put(lake, (run.run_id, "small"))
    before = lake.home.active_policy.read_bytes()
    assert put(lake, (run.run_id, "small"), LATER, by="bob") == first
    assert lake.home.active_policy.read_bytes() == before
    assert len(promoted(lake)) == 1


def test_back_and_forth_every_activation_is_an_event_of_its_own(lake, run, other):
    for day, ref in enumerate([(run.run_id, "small"), (other.run_id, "other"), (run.run_id, "small")]):
        put(lake, ref, AT + dt.timedelta(days=day))
    assert [policy for _, policy, *_ in promoted(lake)] == ["small", "other", "small"]


@pytest.fixture
def trading(lake, other):
    """Another policy trades."""
    return put(lake, (other.run_id, "other"))


@pytest.mark.usefixtures("trading")
@pytest.mark.parametrize(
    ("ref", "sentence"),
    [
        (("f" * 16, "small"), "no run's id begins with 'ffffffffffffffff'"),
        ((None, "big"), r"has no policy 'big'; it has small, small/seed-0, small/seed-1, small/seed-2$"),
        ((None, "small/seed-7"), "has no policy 'small/seed-7'"),
    ],
)
def test_what_is_not_in_the_library_is_refused(lake, run, ref, sentence):
    refused(lake, (ref[0] or run.run_id, ref[1]), sentence)


@pytest.mark.usefixtures("trading")
def test_a_file_that_is_changed_or_missing_is_refused(lake, run, folder):
    path = folder / "fold-0-seed-1.zip"
    content = path.read_bytes()
    for tampered in (content[:-1] + bytes([content[-1] ^ 1]), content[:100], None):
        path.unlink() if tampered is None else path.write_bytes(tampered)
        refused(
            lake, (run.run_id, "small"), r"1 policy files of small@.* are not those that were sealed \(fold-0-seed-1"
        )
        path.write_bytes(content)
    assert put(lake, (run.run_id, "small"), LATER).policy == "small"


@pytest.mark.usefixtures("trading")
def test_a_manifest_made_to_fit_other_files_is_refused_by_the_ledger(lake, run, folder):
    path, manifest = folder / "fold-0-seed-1.zip", folder / "manifest.json"
    sealed_as = manifest.read_text()
    path.write_bytes((folder / "fold-0-seed-2.zip").read_bytes() + b"x")
    digest = PolicyLibrary(lake.home).tampered(run)["found"][0]
    manifest.write_text(sealed_as.replace(run.policies["fold-0-seed-1.zip"], digest))
    refused(
        lake,
        (run.run_id, "small"),
        r"the manifest of run \w+ is not what was recorded of it: it has other policies; restore",
    )


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
def test_whatever_decides_is_changed_in_the_manifest_the_active_policy_does_not_trade(lake, run, folder, field, value):
    active = put(lake, (run.run_id, "small"))
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    later = [{**manifest["folds"][0], "test_first": str(run.folds[0].test_last)}, *manifest["folds"][1:]]
    path.write_text(json.dumps({**manifest, field: later if value is None else value}))
    with pytest.raises(StorageError, match="was activated with a manifest of digest"):
        sealed_of(lake.home, active)


@pytest.mark.usefixtures("trading")
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("code_version", "0.0.0+00000000", "code version"),
        ("seeds", [2], "seeds"),
        ("folds", 1, "test windows"),
        ("spec_hash", "0" * 64, "spec hash"),
        ("source", "sample", "source"),
        ("panel_digest", "0" * 64, "panel digest"),
        ("parent_run_id", "0" * 16, "parent run id"),
    ],
)
def test_a_manifest_that_says_what_the_ledger_does_not_is_refused(lake, run, folder, field, value, said):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    path.write_text(json.dumps({**manifest, field: manifest[field][value:] if field == "folds" else value}))
    refused(lake, (run.run_id, "small"), f"is not what was recorded of it: it has other {said};")


@pytest.mark.usefixtures("trading")
def test_a_judged_run_whose_manifest_chooses_another_seed_is_refused(lake, run, folder):
    complete(lake, run, AT)
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "chosen": {"0": 2}}))
    refused(lake, (run.run_id, "small"), "it has other digest than the run that was sealed and judged")
    forget_digest(lake, run)
    refused(lake, (run.run_id, "small"), "it has other digest than the run that was judged")
    Ledger.open(lake.home).keep_policies(run.run_id, run.policies, run.sha256)
    lake.replace(RUNS, lake.read(RUNS).clear(), {})


def forget_digest(lake, run) -> None:
    """The ledger as it is of runs of before it kept digests."""
    with Database.open(lake.home).writing() as connection:
        connection.execute(sa.text("UPDATE runs SET policies_sha256 = NULL WHERE run_id = :run_id"), vars(run))


@pytest.mark.usefixtures("trading")
@pytest.mark.parametrize(
    ("field", "value"), [("chosen", {"0": 2}), ("thresholds", {"0": {"drawdown": 0.1}}), ("warnings", ["nothing"])]
)
def test_a_run_that_was_never_judged_is_held_against_what_the_ledger_has_of_its_seal(lake, run, folder, field, value):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), field: value}))
    refused(lake, (run.run_id, "small"), "it has other digest than the run that was sealed; restore the folder")


@pytest.mark.usefixtures("trading")
def test_a_run_of_which_nobody_knows_how_it_was_sealed_is_refused(lake, run):
    forget_digest(lake, run)
    refused(lake, (run.run_id, "small"), r"has no digest of the manifest of run \w+.*`nvtrader experiments run small`")
    Ledger.open(lake.home).keep_policies(run.run_id, run.policies, run.sha256)


@pytest.mark.usefixtures("trading")
def test_a_run_whose_policies_the_ledger_does_not_have_is_refused(lake, run):
    ledger = Ledger.open(lake.home)
    ledger.keep_policies(run.run_id, {}, run.sha256)
    refused(
        lake, (run.run_id, "small"), r"the ledger has no policies of run \w+.*`nvtrader experiments run small` goes"
    )
    ledger.keep_policies(run.run_id, run.policies, run.sha256)


@pytest.mark.usefixtures("trading")
def test_policies_trained_on_other_names_are_refused_and_both_sides_named(lake):
    run = sealed(lake, planned(lake, symbols=("AAA", "BBB", "ZZZ")))
    refused(
        lake,
        (run.run_id, "small"),
        r"small of run \w+ cannot trade on the market as it is now: the policy was trained on 3 symbols \(AAA, BBB, "
        r"ZZZ\), but the panel has 3 symbols \(AAA, BBB, CCC\)",
    )


@pytest.mark.usefixtures("trading")
def test_policies_trained_on_other_features_are_refused(lake):
    plan = planned(lake)
    names = ("smile", *plan.panel.feature_names[1:])
    run = sealed(lake, planned(lake, feature_names=names, close_returns=plan.panel.close_returns + 1e-9))
    refused(lake, (run.run_id, "small"), r"trained on \d+ features \(smile, .*but the panel has \d+ features")


@pytest.mark.usefixtures("trading")
def test_networks_for_observations_of_another_size_are_refused_and_both_sizes_named(lake):
    plan = planned(lake)
    changed = dataclasses.replace(plan.panel, close_returns=plan.panel.close_returns + 1e-8)
    run = sealed(lake, dataclasses.replace(plan, panel=changed, panel_digest="e" * 64), lookback=9)
    sizes = [plan.spec.environment.observation.start(plan.panel, plan_scaler(plan), n).length for n in (9, 5)]
    ours, theirs = (rf"torch\.Size\(\[8, {size}\]\)" for size in sizes)
    refused(lake, (run.run_id, "small"), f"tensors do not fit the network.* {ours} .*{theirs}")


def plan_scaler(plan):
    return plan.spec.environment.observation.fit(plan.panel, 0, 99)


@pytest.mark.usefixtures("trading")
def test_a_run_that_is_not_sealed_is_refused(lake):
    plan = planned(lake, EXPERIMENT.model_copy(update={"name": "half"}))
    begun(lake, plan).finish(plan.run_id, "interrupted")
    refused(
        lake, (plan.run_id, "half"), r"is interrupted and its policies are not all trained; `nvtrader experiments run"
    )


@pytest.mark.usefixtures("trading")
def test_a_run_for_validation_only_is_refused(lake):
    spec = EXPERIMENT.model_copy(update={"name": "blocks", "splitter": PurgedKFold(n_folds=3)})
    run = sealed(lake, planned(lake, spec))
    refused(lake, (run.run_id, "blocks"), "is for validation only")


@pytest.mark.usefixtures("trading")
def test_limits_looser_than_the_desks_are_refused_and_both_numbers_named(lake, run):
    path = lake.home.compliance / "limits.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("max_position: 0.1\n")
    refused(lake, (run.run_id, "small"), r"risk_limits\.max_position is 0\.25, looser than the 0\.1 of the desk")
    path.unlink()


@pytest.mark.usefixtures("trading")
def test_where_the_audit_cannot_be_read_nothing_is_activated(lake, run):
    path = JsonlAudit(lake.home).path
    path.write_bytes(path.read_bytes().replace(b"ann", b"eve"))
    refused(lake, (run.run_id, "small"), "a row was changed, removed or added by hand")


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
def test_a_damaged_pointer_is_said_in_one_sentence_and_replaced_by_the_next_activation(lake, run, content, said):
    known = json.loads(put(lake, (run.run_id, "small")).model_dump_json())
    damaged = content if isinstance(content, bytes) else json.dumps({**known, **content}).encode()
    lake.home.active_policy.write_bytes(damaged)
    with pytest.raises(StorageError, match=r"active_policy\.json cannot be read as the active policy") as caught:
        read_active(lake.home)
    assert said in str(caught.value)
    assert "nothing trades until a policy is activated again" in str(caught.value)
    assert put(lake, (run.run_id, "small"), LATER) == read_active(lake.home)
    assert len(promoted(lake)) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"policy": "small/seed-1"}, "the audit has no such activation"),
        ({"activated_at": "2024-01-03T00:00:01Z"}, "the audit has no such activation"),
        ({"symbols": ["AAA"]}, "the audit has another symbols;"),
        ({"snapshot_ids": {}, "by": "eve"}, "the audit has another by, snapshot_ids;"),
    ],
)
def test_a_pointer_that_no_activation_wrote_does_not_trade(lake, run, changed, said):
    known = json.loads(put(lake, (run.run_id, "small")).model_dump_json())
    lake.home.active_policy.write_text(json.dumps({**known, **changed}))
    with pytest.raises(StorageError, match="is not what an activation wrote: ") as caught:
        read_active(lake.home)
    assert said in str(caught.value)
    assert put(lake, (run.run_id, "small"), LATER) == read_active(lake.home)


def test_an_older_pointer_that_was_put_back_does_not_trade(lake, run, other):
    put(lake, (run.run_id, "small"))
    older = lake.home.active_policy.read_bytes()
    put(lake, (other.run_id, "other"), LATER)
    lake.home.active_policy.write_bytes(older)
    with pytest.raises(StorageError, match=r"the audit has a later one, of other of run \w+ on 2024-01-04; nothing"):
        read_active(lake.home)
    assert put(lake, (run.run_id, "small"), LATER) == read_active(lake.home)


def test_one_who_reads_while_another_activates_sees_one_of_the_two(lake, run, trading, monkeypatch):
    read, once = active_policy._read, iter([True])

    def meanwhile(path):
        found = read(path)
        if next(once, False):  # between the pointer and the audit
            put(lake, (run.run_id, "small"), LATER)
        return found

    monkeypatch.setattr(active_policy, "_read", meanwhile)
    active = read_active(lake.home)
    assert active is not None
    assert active.policy == "small"


def test_a_clock_that_was_set_back_makes_no_two_activations_one(lake, run, other):
    for ref in ((run.run_id, "small"), (other.run_id, "other"), (run.run_id, "small"), (other.run_id, "other")):
        assert put(lake, ref) == read_active(lake.home)
    assert [policy for _, policy, *_ in promoted(lake)] == ["small", "other", "small", "other"]


def test_a_pointer_that_is_a_folder_is_said_in_one_sentence(lake):
    lake.home.active_policy.mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot be read as the active policy"):
        read_active(lake.home)
    lake.home.active_policy.rmdir()


def test_the_active_run_is_the_one_that_was_activated(lake, run):
    active = put(lake, (run.run_id, "small")).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(StorageError, match="was activated with a manifest of digest 0000000000000000, but that is"):
        sealed_of(lake.home, active)


class Killed(BaseException):
    """What ends a process in the middle."""


def test_a_pointer_changed_by_hand_is_audited_by_no_activation_that_was_killed(lake, run, other, monkeypatch):
    written = json.loads(put(lake, (run.run_id, "small")).model_dump_json())
    lake.home.active_policy.write_text(json.dumps({**written, "policy": "small/seed-1"}))

    def dies_before_the_pointer(path, content):
        if path == lake.home.active_policy:
            raise Killed
        write(path, content)

    write = active_policy.write_atomically
    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", dies_before_the_pointer)
        with pytest.raises(Killed):
            put(lake, (other.run_id, "other"), LATER)
    for _ in range(2):
        with pytest.raises(StorageError, match="is not what an activation wrote"):
            read_active(lake.home)
    assert promoted(lake) == [(run.run_id, "small", "ann", "it is time", AT)]


@pytest.mark.parametrize("left", [b"", None])
def test_a_mark_that_names_another_pointer_audits_none(lake, run, other, left):
    put(lake, (run.run_id, "small"))
    older = lake.home.active_policy.read_bytes()
    put(lake, (other.run_id, "other"), LATER)
    forged = json.loads(older) | {"activated_at": "2024-01-09T00:00:00Z"}
    lake.home.active_policy.write_text(json.dumps(forged))
    (lake.home.runtime / ".active_policy.pending").write_bytes(older if left is None else left)
    with pytest.raises(StorageError, match="the audit has no such activation"):
        read_active(lake.home)
    assert [policy for _, policy, *_ in promoted(lake)] == ["small", "other"]


@pytest.mark.parametrize("step", range(4))
def test_killed_between_any_two_writes_an_activation_is_whole_or_has_not_been(lake, run, trading, step, monkeypatch):
    steps = iter(range(10))

    def dies(function):
        def maybe(*arguments, **options):
            if next(steps) == step:
                raise Killed
            return function(*arguments, **options)

        return maybe

    with monkeypatch.context() as patch:
        patch.setattr(active_policy, "write_atomically", dies(active_policy.write_atomically))
        patch.setattr(JsonlAudit, "append", dies(JsonlAudit.append))
        patch.setattr(active_policy, "_settled", dies(active_policy._settled))
        with pytest.raises(Killed):
            put(lake, (run.run_id, "small"), LATER)
    active = read_active(lake.home)
    assert active is not None
    assert active.policy == ("other" if step < 2 else "small")
    assert [policy for _, policy, *_ in promoted(lake)] == ["other", "small"][: 1 if step < 2 else 2]
    assert not list(lake.home.runtime.glob("*.pending"))
    assert put(lake, (run.run_id, "small"), LATER).policy == "small"
    assert [policy for _, policy, *_ in promoted(lake)] == ["other", "small"]
