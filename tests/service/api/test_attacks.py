"""Requests of somebody who means harm: refused with a problem, and nothing is changed."""

import hashlib
import json
import socket
import time

import pytest

from nvtrader_pipelines.storage.store import Store
from tests.homes import copy_home
from tests.service.api.conftest import AUTHORIZED, TOKEN, client_of
from tests.service.api.test_server import served

NAMES = (
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/data",
    "/etc/passwd",
    "a\x00b",
    "x' OR '1'='1",
    "x; DROP TABLE runs",
    "x" * 5000,
    "\U0001f600",
    "CON",
    "-rf",
    "*",
)
READ_PATHS = (
    "/rl/runs/{}",
    "/rl/runs/{}/equity",
    "/rl/components/{}",
    "/api/nemorl-autoresearch/journal/{}",
    "/chat/stream/{}",
    "/api/portfolio?account={}",
    "/api/plans?account={}",
)
WRITES = {
    "/api/plans/{}/approve": {},
    "/api/plans/{}/reject": {"reason": "x"},
    "/api/scheduler/{}/run": {},
}
BODIES = {  # path to the field that names a thing
    "/api/nemorl/policies/activate": "policy",
    "/api/nemorl-autoresearch/stop": "session_id",
    "/rl/runs": "experiment",
    "/api/nemorl/train": "source",
}
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)
)


MERGES = b"a0: &a0 {a: 1, b: 2}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 12)
)


@pytest.fixture(scope="module")
def home(built_home, tmp_path_factory):
    return copy_home(built_home, tmp_path_factory.mktemp("attacks") / "home")


@pytest.fixture(scope="module")
def client(home):
    return client_of(home)


@pytest.fixture(autouse=True)
def unchanged(home):
    """Require that a test changes no file of data/."""
    before = digest(home)
    yield
    assert digest(home) == before


def digest(home):
    files = sorted(path for path in (home.root / "data").rglob("*") if path.is_file() and path.suffix != ".lock")
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def refuses(answer):
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
    assert TOKEN not in answer.text


def quoted(name):
    return name.replace("%", "%25").replace("\x00", "%00").replace(";", "%3B").replace("#", "%23")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", READ_PATHS)
def test_name_in_a_read_that_is_none_is_refused(client, path, name):
    refuses(client.get(path.format(quoted(name))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", WRITES)
def test_name_in_a_write_that_is_none_is_refused(client, path, name):
    refuses(client.post(path.format(quoted(name)), json=WRITES[path], headers=AUTHORIZED))


@pytest.mark.parametrize("name", [*NAMES, "", "\ud800"])
@pytest.mark.parametrize("path", BODIES)
def test_name_in_a_body_that_is_none_is_refused(client, path, name):
    text = json.dumps({BODIES[path]: name} | ({"kind": "train"} if path == "/rl/runs" else {}))
    refuses(client.post(path, content=text, headers={**AUTHORIZED, "content-type": "application/json"}))


@pytest.mark.parametrize("event_id", ["-1", "9" * 40, "x", ""])
def test_last_event_id_that_is_none_is_refused(client, home, event_id):
    task = Store(home).ledger.runs()["dagster_run_id"][0]
    refuses(client.get(f"/chat/stream/{task}", headers={"last-event-id": event_id}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"budget": NaN}',
        b'{"budget": 1e999}',
        b'{"budget": 1' + b"0" * 5000 + b"}",
        b'{"budget": true}',
        b'{"budget": "20"}',
        b'{"goal": "' + b"x" * 5000 + b'"}',
        b'{"symbols": ["' + b"x" * 100 + b'"]}',
        b'{"unknown": 1}',
        b'{"goal": "a\\u0000b"}',
        b"\xff\xfe",
        b"[" * 30_000,
        b'{"a":' * 30_000,
    ],
)
def test_body_that_is_not_valid_is_refused(client, content):
    answer = client.post(
        "/api/nemorl-autoresearch/start", content=content, headers={**AUTHORIZED, "content-type": "application/json"}
    )
    refuses(answer)


@pytest.mark.parametrize(
    "spec",
    [
        BOMB,
        MERGES,
        b"extends: ../../../etc/passwd\nname: x\n",
        b"name: ../x\n",
        b"name: x\nagent: {kind: !!python/name:os.system }\n",
        b"name: x\nmarket: {source: ../landing}\n",
        b"name: x\nseeds: [1, 2, 18446744073709551616]\n",
        b'name: x\ndescription: "\\ud800"\n',
        b'name: "x\\0"\n',
    ],
)
def test_experiment_that_attacks_is_refused_quickly(client, spec):
    began = time.process_time()
    refuses(client.post("/rl/experiments", content=spec, headers={**AUTHORIZED, "content-type": "application/yaml"}))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/api/nemorl/status", AUTHORIZED, 405),
        ("GET", "/api/nemorl/train", {}, 405),
        ("HEAD", "/rl/halt-all", {}, 405),
        ("GET", "/rl/halt-all", {"x-http-method-override": "POST"}, 405),
        ("GET", "/nothing", {}, 404),
        ("GET", "/static-offline-docs/..%2f..%2fcore.py", {}, 404),
        ("GET", "/rl/runs?everything=maybe", {}, 422),
    ],
)
def test_request_that_fits_no_route_is_refused(client, method, path, headers, status):
    answer = client.request(method, path, headers=headers)
    assert answer.status_code == status
    if method != "HEAD":
        refuses(answer)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.test\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\n\r\n", 421),
        ("POST /rl/halt-all HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}", 401),
        (
            "POST /rl/halt-all HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST /rl/halt-all HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n{}", 413),
        ("GET http://evil.test/rl/runs HTTP/1.1\r\nHost: evil.test\r\n\r\n", 421),
        ("nonsense\r\n\r\n", 400),
    ],
)
def test_raw_request_is_refused(port, request_text, status):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request_text.encode())
        line = connection.makefile("rb").readline().decode()
    assert line.split()[1] in {str(status), "400"}


@pytest.fixture(scope="module")
def port(home, fast_nvtrader):
    with served(home, command=fast_nvtrader) as (_, url, _):
        yield int(url.rpartition(":")[2])


def test_training_on_a_market_that_is_not_built_leaves_no_file(client):
    refuses(client.post("/api/nemorl/train", json={"source": "sample"}, headers=AUTHORIZED))


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "train", "experiment": "/etc/passwd.yaml"},
        {"kind": "train", "experiment": "data/experiments/tiny.yaml"},
        {"kind": "replay", "run_id": "tiny", "first": "2018-01-02", "last": "2017-01-02"},
    ],
)
def test_run_of_a_file_or_of_days_in_reverse_is_refused(client, body):
    refuses(client.post("/rl/runs", json=body, headers=AUTHORIZED))


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[2J", "\x9b2J"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rl/halt-all", {}),
        ("/api/kill-switch", {"engaged": True}),
        ("/api/nemorl/policies/activate", {"policy": "tiny"}),
    ],
)
def test_reason_with_control_characters_is_refused(client, path, body, text):
    refuses(client.post(path, json={**body, "reason": text}, headers=AUTHORIZED))


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_write_that_a_form_could_send_is_refused(client, kind):
    headers = {**AUTHORIZED, "content-type": kind}
    refuses(client.post("/rl/halt-all", content=b'{"reason": "x"}', headers=headers))
    refuses(client.post("/rl/experiments", content=b"name: x", headers=headers))


@pytest.mark.parametrize("origin", ["http://evil.test", "http://127.0.0.1:3000", "null"])
def test_write_with_the_cookie_from_another_page_is_refused(client, origin):
    headers = {"cookie": f"nvtrader-8000={TOKEN}", "origin": origin}
    refuses(client.post("/rl/halt-all", json={"reason": "x"}, headers=headers))


def test_body_of_a_read_is_ignored(client):
    body = {"engaged": True, "reason": "x"}
    assert client.request("GET", "/api/kill-switch", json=body, headers=AUTHORIZED).json()["kill_switch"] is None


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0"])
def test_refusal_is_a_problem_for_any_accept(client, accept):
    refuses(client.get("/rl/runs/none", headers={"accept": accept}))
