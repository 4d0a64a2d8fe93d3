"""Policies, searches, the audit and decisions of two homes, each of its own machine, in one object store."""

import signal
import subprocess
import sys
import urllib.request
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest

from nvtrader_pipelines.experiments.plan import RunPlan
from nvtrader_pipelines.market.panel import panel_digest
from nvtrader_pipelines.storage.audit_log import JsonlAudit
from nvtrader_pipelines.storage.errors import ConflictError, StorageError, UnavailableError
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.object_store import client, list_objects, read_object, write_object
from nvtrader_pipelines.storage.pair_files import read_pairs, write_pairs
from nvtrader_pipelines.storage.policy_library import PolicyLibrary
from nvtrader_pipelines.storage.research_files import SearchSessions, SessionFolder
from nvtrader_pipelines.storage.shared_files import SharedFiles
from tests.markets import synthetic_panel
from tests.preferences.sample_decisions import a_decision
from tests.storage.test_audit_log import appender, halt_event
from tests.storage.test_decision_file import append, compare
from tests.storage.test_policy_library import SPEC, Fold, seal_run

pytestmark = pytest.mark.nightly
UPLOAD = """
import os, signal, sys
from nvtrader_pipelines.storage.object_store import create_object
file = create_object(sys.argv[1])
file.write(bytes(32 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def homes(tmp_path, bucket):
    return Home(tmp_path / "one"), Home(tmp_path / "two")


@pytest.fixture
def unreachable(monkeypatch):
    """Function that stops the store, for this test."""

    def stop():
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        client.cache_clear()

    return stop


@pytest.fixture(scope="module")
def plan():
    panel = synthetic_panel(400)
    return RunPlan(SPEC, panel, panel_digest(panel), (Fold(0, 0, 199, 206, 299), Fold(1, 0, 299, 306, 399)))


def test_policies_sealed_in_one_home_are_read_in_another(homes, plan, unreachable):
    one, two = map(PolicyLibrary, homes)
    run = seal_run(one, plan)
    assert two.trained_keys(SPEC.partition_key, plan.run_id) == set(plan.keys)  # nothing to train
    assert two.read_latest(SPEC.partition_key) == run
    assert two.read_run(run) == one.read_run(run)
    two.seal(plan)  # again: to the same bytes
    unreachable()
    assert two.read_run(two.read_latest(SPEC.partition_key)) == one.read_run(run)  # sealed here, so that none is needed
    with pytest.raises(UnavailableError):
        one.seal(plan)
    with pytest.raises(UnavailableError):
        two.read_latest("other@0")


def test_deleted_run_is_missing_in_the_store(homes, plan, bucket):
    library = PolicyLibrary(homes[0])
    seal_run(library, plan)
    library.delete(SPEC.partition_key, plan.run_id)
    assert list_objects(bucket) == {}
    assert not PolicyLibrary(homes[1]).is_sealed(SPEC.partition_key, plan.run_id)


def test_policy_changed_in_the_store_is_refused(homes, plan, bucket):
    run = seal_run(PolicyLibrary(homes[0]), plan)
    uri = next(uri for uri in list_objects(bucket) if uri.endswith(".zip"))
    write_object(uri, b"changed")
    assert PolicyLibrary(homes[1]).find_tampered_files(run)["file"].to_list() == sorted(run.policies)  # none pulled yet
    assert PolicyLibrary(homes[1]).is_sealed(SPEC.partition_key, plan.run_id)
    assert PolicyLibrary(homes[1]).find_tampered_files(run)["file"].to_list() == [uri.rsplit("/", 1)[1]]
    with pytest.raises(ConflictError):
        PolicyLibrary(homes[0]).seal(plan)
    assert read_object(uri) == b"changed"


def test_pairs_written_in_one_home_are_read_in_another(homes):
    pairs = pl.DataFrame({"pair_id": ["a", "b"], "fold": [0, 1]})
    digest = write_pairs(homes[0], pairs)
    assert read_pairs(homes[1], digest).equals(pairs)


def test_search_continues_in_another_home(homes):
    one, two = (SessionFolder.of(home, "20240102-000000-abcd") for home in homes)
    with one.lock():
        one.settings.write_text("{}")
        one.write_returns("base", np.ones((1, 3)))
        for n in range(3):
            one.append(f"line {n}")
    assert [folder.session_id for folder in SearchSessions(homes[1]).folders()] == [one.session_id]
    with two.lock():
        two.append("line 3")
    assert SearchSessions(homes[0]).find("20240102").read_lines() == [f"line {n}".encode() for n in range(4)]
    assert two.read_returns("base").tolist() == [[1.0, 1.0, 1.0]]


def test_journals_that_differ_are_refused_and_kept(homes, unreachable, monkeypatch, s3):
    one, two = (SessionFolder.of(home, "20240102-000000-abcd") for home in homes)
    with one.lock():
        one.append("both")
    with two.lock():
        two.append("of two")
        unreachable()
        two.append("more of two")  # a search needs no store for its lines
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.variables["AWS_ENDPOINT_URL"])
    client.cache_clear()
    one.append("of one")  # not pushed: the store has others
    with pytest.raises(ConflictError), one.lock():
        pass
    assert (one.read_lines(), two.read_lines()) == ([b"both", b"of one"], [b"both", b"of two", b"more of two"])


def test_audit_of_two_homes_is_one_chain(homes):
    logs = [JsonlAudit(home) for home in homes]
    for n in range(12):
        logs[n % 2].append([halt_event(n)])
        assert len(logs[1 - n % 2].rows()) == n + 1
    assert logs[0].verify() == logs[1].verify()
    assert logs[0].path.read_bytes() == logs[1].path.read_bytes()


def test_audit_killed_while_it_appends_stays_one_chain(homes):
    with appender(homes[0], "x", 1000) as process:
        while int(process.stdout.readline()) < 5:
            pass
        process.kill()
    logs = [JsonlAudit(home) for home in (*homes, homes[0])]
    for n, log in enumerate(logs):
        log.append([halt_event(n)])
    assert logs[1].verify().chain == logs[2].verify().chain
    assert len({row.event_id for row in logs[1].rows()}) == logs[1].verify().n_rows >= 10


def test_audit_appends_nothing_without_the_store(homes, unreachable):
    log = JsonlAudit(homes[0])
    log.append([halt_event(0)])
    unreachable()
    for use in (lambda: log.append([halt_event(1)]), log.rows, log.verify):
        with pytest.raises(UnavailableError):
            use()
    assert log.path.read_bytes().count(b"\n") == 1


def test_audits_that_differ_are_refused_and_kept(homes, bucket, monkeypatch):
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    logs = [JsonlAudit(home) for home in homes]
    for n, log in enumerate(logs):
        log.append([halt_event(n)])
    contents = [log.path.read_bytes() for log in logs]
    monkeypatch.setenv("NVTRADER_WAREHOUSE_URI", bucket)
    JsonlAudit(homes[0]).append([halt_event(2)])
    with pytest.raises(ConflictError):
        JsonlAudit(homes[1]).append([halt_event(2)])
    assert logs[1].path.read_bytes() == contents[1]
    assert read_object(f"{bucket}/data/audit/events.jsonl").startswith(contents[0])


def test_decisions_of_two_homes_are_in_both(homes):
    rows = [a_decision(n) for n in range(3)]
    assert [append(home, *rows[: n + 1]) for n, home in enumerate((*homes, homes[0]))] == [1, 1, 1]
    for home in homes:
        assert compare(home, *rows) == ({row.decision_id for row in rows}, [])


def test_upload_that_is_killed_leaves_the_object_before(homes, bucket):
    uri = f"{bucket}/data/rl/policies/a/latest.json"
    write_object(uri, b"before")
    assert subprocess.run([sys.executable, "-c", UPLOAD, uri], check=False).returncode == -signal.SIGKILL
    assert read_object(uri) == b"before"


@pytest.mark.parametrize("name", ["data/rl/policies/../../../../x.json", "data/rl/policies//x.json"])
def test_object_whose_name_leads_out_of_the_home_is_refused(homes, bucket, s3, name):
    folder = bucket.removeprefix("s3://")
    url = f"{s3.variables['AWS_ENDPOINT_URL']}/{quote(f'{folder}/{name}', safe='/')}"
    urllib.request.urlopen(urllib.request.Request(url, b"x", method="PUT"))
    with pytest.raises(StorageError, match="leads elsewhere"):
        SharedFiles(homes[0]).pull(homes[0].policies)
    assert not list(homes[0].root.parent.rglob("x.json"))


def test_home_without_the_setting_uses_no_store(homes, plan, monkeypatch, bucket):
    monkeypatch.delenv("NVTRADER_WAREHOUSE_URI")
    seal_run(PolicyLibrary(homes[0]), plan)
    JsonlAudit(homes[0]).append([halt_event(0)])
    assert list_objects(bucket) == {}
