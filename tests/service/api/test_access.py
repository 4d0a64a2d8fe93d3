"""Guard: hosts, tokens, origins, sizes and headers."""

import json

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient, WebSocketDenialResponse

from nvtrader_pipelines.service.api.access import LARGER_BODIES, MAX_BODY, Access, Guard
from tests.service.api.conftest import AUTHORIZED, TOKEN

COOKIE = {"cookie": f"nvtrader-8000={TOKEN}"}
OWN = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}


async def echo(scope, receive, send):
    """Application that reads its body and answers with its length."""
    n_bytes, more = 0, True
    while more:
        message = await receive()
        n_bytes += len(message.get("body", b""))
        more = message.get("more_body", False)
    await PlainTextResponse(str(n_bytes))(scope, receive, send)


async def failing(scope, receive, send):
    """Application with a defect."""
    raise ZeroDivisionError


def guarded(app=echo, host="127.0.0.1"):
    return TestClient(Guard(app, Access(host, 8000, TOKEN)), f"http://{host}:8000")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": b"Bearer t\xf6ken"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"cookie": f"nvtrader-8001={TOKEN}"}, 401),
        ({"cookie": "nvtrader-8000=wrong; \x7f"}, 401),
        (AUTHORIZED, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        (COOKIE, 200),
        ({**COOKIE, **OWN}, 200),
        ({**COOKIE, "origin": "http://evil.test"}, 403),
        ({**COOKIE, "origin": "http://127.0.0.1:3000"}, 403),
        ({**COOKIE, "origin": "null"}, 403),
        ({**COOKIE, "sec-fetch-site": "cross-site"}, 403),
        ({**AUTHORIZED, "origin": "http://evil.test"}, 200),
    ],
)
def test_write_with_headers_answers_status(headers, status):
    answer = guarded().post("/", headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_any_method_but_a_read_without_token_is_401(method):
    assert guarded().request(method, "/").status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("[::1]:8000", 200),
        ("127.0.0.1:22", 200),
        ("evil.test", 421),
        ("127.0.0.1.evil.test", 421),
        ("127.0.0.1@evil.test", 421),
        ("", 421),
        ("[::1", 421),
        ("[::1]evil", 421),
        ("[::1]:80evil", 421),
        ("127.0.0.1evil", 421),
        ("localhost:", 421),
        ("evil@localhost", 421),
        ("127.0.0.1:٨٠", 421),
    ],
)
def test_read_of_another_host_is_421(host, status):
    assert guarded().get("/", headers={"host": host.encode()}).status_code == status


def test_websocket_upgrade_is_answered_404():
    with pytest.raises(WebSocketDenialResponse) as denial, guarded().websocket_connect("/"):
        pass
    assert denial.value.status_code == 404


def test_read_bound_elsewhere_needs_the_token():
    client = guarded(host="10.0.0.5")
    assert client.get("/api/plans").status_code == 401
    assert client.get("/api/plans", headers=AUTHORIZED).status_code == 200


def test_large_body_is_413_with_or_without_a_stated_length():
    parts = (b"x" * (1 << 16) for _ in range(MAX_BODY // (1 << 16) + 1))
    assert guarded().post("/", headers=AUTHORIZED, content=parts).status_code == 413
    stated = guarded().post("/", headers={**AUTHORIZED, "content-length": str(MAX_BODY + 1)}, content=b"")
    assert stated.status_code == 413
    assert guarded().post("/", headers={**AUTHORIZED, "content-length": "-1"}, content=b"").status_code == 413
    assert guarded().post("/", headers=AUTHORIZED, content=b"x" * 1000).text == "1000"


@pytest.mark.parametrize(("path", "limit"), LARGER_BODIES.items())
def test_route_with_a_larger_body_takes_it_up_to_its_own_limit(path, limit):
    assert guarded().post(path, headers=AUTHORIZED, content=b"x" * limit).text == str(limit)
    parts = (b"x" * (1 << 20) for _ in range(limit // (1 << 20) + 1))
    for content in (b"x" * (limit + 1), parts):
        answer = guarded().post(path, headers=AUTHORIZED, content=content)
        assert (answer.status_code, answer.json()["status"]) == (413, 413)


def test_defect_of_a_route_is_a_problem_and_its_trace_is_logged(caplog):
    answer = guarded(failing).get("/x")
    assert (answer.status_code, json.loads(answer.content)["status"]) == (500, 500)
    assert caplog.records[0].exc_info[0] is ZeroDivisionError


def test_defect_of_a_fastapi_route_is_a_problem():
    app = FastAPI()

    @app.get("/x")
    def fail():
        raise ZeroDivisionError

    answer = guarded(app).get("/x")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")


def test_every_answer_has_headers_of_safety():
    for answer in (guarded().get("/"), guarded().post("/"), guarded(failing).get("/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe-eval" not in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
