"""The Dagster UI as `nvtrader ui` serves it, asked by GraphQL."""

import datetime as dt
import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest
import yaml

from nvtrader_pipelines.notifications.home_states import home_states
from nvtrader_pipelines.orchestration.ui import LOCATION, server_commands
from nvtrader_pipelines.orchestration.ui_processes import (
    HOST,
    is_listening,
    only_server,
    require_free,
    terminate_session,
)
from nvtrader_pipelines.storage.code_server import unreachable_url
from nvtrader_pipelines.storage.home import Home
from nvtrader_pipelines.storage.store import Store
from tests.homes import KEY, NVTRADER, SPEC, environment, nvtrader, session_processes, small_home

PATIENCE = 300.0  # seconds
REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": LOCATION}
AUTOMATION = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError {
    ... on PythonError { message }
    ... on RepositoryLocation { repositories {
        schedules { name executionTimezone scheduleState { status } }
        sensors { name sensorState { status } } } } } } } } }"""
TICKS = """query ($selector: ScheduleSelector!, $cursor: Float!) { scheduleOrError(scheduleSelector: $selector) {
    ... on Schedule { futureTicks(cursor: $cursor, limit: 2) { results { timestamp } } } } }"""
ADD_PARTITION = """mutation ($selector: RepositorySelector!, $key: String!) {
    addDynamicPartition(repositorySelector: $selector, partitionsDefName: "experiment", partitionKey: $key) {
        __typename } }"""
BACKFILL = """mutation ($keys: [String!]!) { launchPartitionBackfill(backfillParams: {
    partitionNames: $keys,
    assetSelection: [{path: ["policies", "trained_policy"]}, {path: ["rl", "training_curves"]}]}) {
        __typename ... on PythonError { message } ... on LaunchBackfillSuccess { backfillId } } }"""
RUNS_OF_BACKFILL = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status runs(limit: 10) { tags { key value } } } } }"""


MUTATION = "/graphql?" + urllib.parse.urlencode({"query": "mutation { setNuxSeen }"})
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "graphql-ws",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def ask(port: int, query: str, **variables):
    content = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(
        f"http://{HOST}:{port}/graphql", content, {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def until(found, process):
    """The first answer that is not empty."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, "it ended before its time"
        try:
            answer = found()
        except (urllib.error.URLError, ConnectionError):
            answer = None
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError("it took too long")


def answers_only_its_own_page(port) -> None:
    own, evil = {"Origin": f"http://{HOST}:{port}", "Sec-Fetch-Site": "same-origin"}, {"Origin": "http://evil.test"}

    def status(method="GET", path="/", **headers):
        with closing(http.client.HTTPConnection(HOST, port, timeout=30)) as connection:
            connection.request(method, path, headers={name.replace("_", "-"): headers[name] for name in headers})
            return connection.getresponse().status

    assert (status(Accept="text/html"), status(Host="evil.test")) == (200, 421)
    assert [status(method, MUTATION, **own) for method in ("GET", "POST")] == [405, 200]
    assert [status(method, MUTATION, **evil) for method in ("GET", "POST")] == [403, 403]
    assert status(path=MUTATION.replace("?", "%0A?"), **evil) == 403  # a path that routes match, too
    assert (status(path="/graphql", **UPGRADE, **own), status(path="/graphql", **UPGRADE, **evil)) == (101, 403)


def automation(port):
    """Schedules and sensors by name, once the location is loaded."""
    (entry,) = ask(port, AUTOMATION)["workspaceOrError"]["locationEntries"] or [{"loadStatus": "LOADING"}]
    if entry["loadStatus"] != "LOADED":
        return None
    (repository,) = entry["locationOrLoadError"]["repositories"]
    return repository


def fires_at_half_past_five_in_new_york_across_summer_time(port) -> None:
    before = dt.datetime(2027, 3, 12, tzinfo=dt.UTC).timestamp()  # a Friday; the clocks change on Sunday
    selector = {**REPOSITORY, "scheduleName": "eod_ingest"}
    ticks = ask(port, TICKS, selector=selector, cursor=before)["scheduleOrError"]["futureTicks"]["results"]
    times = [dt.datetime.fromtimestamp(tick["timestamp"], ZoneInfo("America/New_York")) for tick in ticks]
    assert [f"{time:%a %H:%M}" for time in times] == ["Fri 17:30", "Mon 17:30"]
    assert [time.utcoffset() for time in times] == [dt.timedelta(hours=-5), dt.timedelta(hours=-4)]


def backfills_every_experiment(port, process) -> None:
    keys = [KEY, f"other@{SPEC.spec_hash[:8]}"]
    for key in keys:
        answer = ask(port, ADD_PARTITION, selector=REPOSITORY, key=key)["addDynamicPartition"]
        assert answer["__typename"] == "AddDynamicPartitionSuccess"
    launched = ask(port, BACKFILL, keys=keys)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def partitions():
        backfill = ask(port, RUNS_OF_BACKFILL, id=launched["backfillId"])["partitionBackfillOrError"]
        assert backfill["status"] in {"REQUESTED", "COMPLETED_FAILED", "FAILING"}, backfill  # they are not registered
        tags = [{tag["key"]: tag["value"] for tag in run["tags"]} for run in backfill["runs"]]
        return sorted(each["dagster/partition"] for each in tags) if len(tags) == len(keys) else None

    assert until(partitions, process) == sorted(keys)


@pytest.mark.nightly
@pytest.mark.slow
def test_ui_listens_locally_and_leaves_no_process_behind(tmp_path):
    home, port = small_home(tmp_path / "home"), free_port()
    (home.landing / "prices.csv").unlink()  # nothing for a sensor to run
    with subprocess.Popen(
        [NVTRADER, "ui", "--port", str(port)],
        env=environment(home),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        servers = []
        try:
            repository = until(lambda: automation(port), process)
            assert {each["executionTimezone"] for each in repository["schedules"]} == {"America/New_York"}
            assert {each["scheduleState"]["status"] for each in repository["schedules"]} == {"RUNNING"}
            assert {each["sensorState"]["status"] for each in repository["sensors"]} == {"RUNNING"}
            assert {each["name"] for each in repository["sensors"]} >= {"landed_file", "experiment_file"}
            answers_only_its_own_page(port)
            fires_at_half_past_five_in_new_york_across_summer_time(port)
            backfills_every_experiment(port, process)
            servers = psutil.Process(process.pid).children(recursive=True)
            listening = {each.laddr for server in servers for each in server.net_connections("tcp") if not each.raddr}
            assert {address.ip for address in listening if address.port == port} == {HOST}
            assert (home.dagster / "dagster.yaml").exists()
        finally:
            sessions = {os.getsid(server.pid) for server in servers if server.is_running()}
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
    assert len(servers) > 2
    left = [each for leader in sessions for each in session_processes(leader)]  # killed ones end with a delay
    _, alive = psutil.wait_procs([*servers, *left], timeout=PATIENCE)
    assert alive == []
    require_free(port)


def test_require_free_taken_port_raises():
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError):
            require_free(port)


@pytest.mark.nightly
@pytest.mark.slow
def test_terminate_session_ends_processes_started_meanwhile():
    script = "trap 'sleep 600 & exit' TERM; echo ready; sleep 600 & wait"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout.readline() == b"ready\n"
        terminate_session(leader.pid)
        assert [each for each in session_processes(leader.pid) if each.status() != psutil.STATUS_ZOMBIE] == []


def test_second_ui_of_a_home_is_refused_with_the_url_of_the_first(tmp_path):
    lock = tmp_path / "ui.lock"
    with only_server(lock, "http://127.0.0.1:3000"), pytest.raises(ValueError, match=r"127\.0\.0\.1:3000"):
        only_server(lock, "http://127.0.0.1:3001").__enter__()
    with only_server(lock, "http://127.0.0.1:3001"):
        assert lock.read_text().splitlines() == ["http://127.0.0.1:3001", str(os.getpid())]


def test_is_listening_after_listen():
    with socket.socket() as server:
        server.bind((HOST, 0))
        port = server.getsockname()[1]
        assert not is_listening(port)
        server.listen()
        assert is_listening(port)


def test_server_commands_share_the_code_server_of_the_package(tmp_path):
    home = Home(tmp_path)
    home.dagster.mkdir(parents=True)
    code, web, daemon = server_commands(home, 3000)
    assert code[-2:] == ["-m", LOCATION]
    assert web[-1] == daemon[-1] == str(home.dagster / "ui-workspace.yaml")
    assert web[web.index("--host") + 1] == HOST


def test_server_commands_of_a_checkout_serve_its_definitions_by_their_name(tmp_path):
    home = Home(tmp_path)
    home.dagster.mkdir(parents=True)
    entry = {"relative_path": "definitions.py", "attribute": "defs", "location_name": "mine"}
    (tmp_path / "workspace.yaml").write_text(json.dumps({"load_from": [{"python_file": entry}]}))
    code = server_commands(home, 3000)[0]
    assert code[-4:] == ["-f", str(tmp_path / "definitions.py"), "-a", "defs"]
    assert code[code.index("--location-name") + 1] == "mine"


def test_server_commands_of_several_locations_name_the_homes_workspace(tmp_path):
    (tmp_path / "workspace.yaml").write_text("load_from: [{python_module: a}, {python_module: b}]")
    commands = server_commands(Home(tmp_path), 3000)
    assert [command[-2:] for command in commands] == [["-w", str(tmp_path / "workspace.yaml")]] * 2


@contextmanager
def serving(home, port):
    """A running `nvtrader ui` whose code location is loaded."""
    with subprocess.Popen(
        [NVTRADER, "ui", "--port", str(port)],
        env=environment(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            until(lambda: automation(port), process)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


@pytest.mark.nightly
def test_second_ui_leaves_automation_of_the_first_until_its_socket_is_gone(tmp_path):
    home, port = small_home(tmp_path / "home"), free_port()
    (home.landing / "prices.csv").unlink()  # nothing for a sensor to run
    workspace = home.dagster / "ui-workspace.yaml"
    with serving(home, port) as process:
        before = workspace.read_text()
        second = nvtrader(home, "ui", "--port", str(free_port()))
        assert (second.returncode, f"http://{HOST}:{port};" in second.stderr) == (3, True)
        assert workspace.read_text() == before
        assert unreachable_url(home.dagster) == ""
        (entry,) = yaml.safe_load(before)["load_from"]
        Path(entry["grpc_server"]["socket"]).unlink()
        assert unreachable_url(home.dagster) == f"http://{HOST}:{port}"
        checks = {each["check"]: each for each in json.loads(nvtrader(home, "doctor", "--json").stdout)}
        assert checks["ui"]["problem"]
        (state,) = home_states(Store(home), dt.datetime.now(dt.UTC))["unreachable_ui"]
        assert f"http://{HOST}:{port}" in state.body
        assert (process.wait(PATIENCE), "cannot be reached" in process.stderr.read()) == (1, True)
    assert unreachable_url(home.dagster) == ""
    require_free(port)
