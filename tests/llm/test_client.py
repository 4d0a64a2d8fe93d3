import asyncio
import json
import logging
import socket
import sys
import time

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from nvtrader_pipelines.llm import client as client_module
from nvtrader_pipelines.llm.calls import Request
from nvtrader_pipelines.llm.chat import MAX_BYTES
from nvtrader_pipelines.llm.client import MAX_PROBLEM_LENGTH, LlmClient
from nvtrader_pipelines.llm.endpoint import Endpoint
from tests.llm_server import (
    closed_connection,
    cut_off,
    document,
    dripping,
    endless,
    error,
    raw,
    redirect,
    refusal,
    serve,
    taking_only,
    text,
    too_many_requests,
    tool_call,
    unauthorized,
)

SECRET = 'sk-sword"fish'


class Paragraph(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str
    n_sentences: int


GOOD = {"text": "Fine.", "n_sentences": 1}
REQUEST = Request(
    purpose="report",
    prompt="report@1",
    model="m",
    system="Be brief.",
    user="Write.",
    schema_name="Paragraph",
    json_schema=Paragraph.model_json_schema(),
)


class Cache(dict):
    read = dict.get
    write = dict.__setitem__


def connect(base_url, *, key=SECRET, max_seconds=5.0):
    endpoint = Endpoint(base_url=base_url, max_seconds=max_seconds)
    return LlmClient(endpoint, SecretStr(key) if key else None, Cache())


def ask(*behaviors, **settings):
    """Ask a server that behaves so once; return what came back, the server and the client."""
    with serve(*behaviors) as server:
        client = connect(server.base_url, **settings)
        return client.ask(REQUEST, Paragraph), server, client


def test_valid_answer_is_a_document_with_its_call():
    asked, server, client = ask(document(GOOD))
    assert asked.document == Paragraph(**GOOD)
    call = asked.call
    assert (call.purpose, call.prompt, call.model, call.digest) == ("report", "report@1", "m", REQUEST.digest)
    assert (call.n_input_tokens, call.n_output_tokens, call.is_cached, call.problem) == (100, 20, False, "")
    assert 0 < call.seconds < 5
    assert list(client._cache) == [REQUEST.digest]
    (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    assert received.body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Write."},
    ]
    schema = {"name": "Paragraph", "schema": REQUEST.json_schema, "strict": True}
    assert received.body["response_format"] == {"type": "json_schema", "json_schema": schema}


def test_image_is_sent_beside_the_text():
    with serve(document(GOOD)) as server:
        connect(server.base_url).ask(REQUEST.model_copy(update={"image_png": "aGk="}), Paragraph)
    first, second = server.received[0].body["messages"][1]["content"]
    assert first == {"type": "text", "text": "Write."}
    assert second == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


@pytest.mark.parametrize("behavior", [document(GOOD), text("no JSON")], ids=["valid", "malformed"])
def test_answer_is_asked_for_once(behavior):
    with serve(behavior) as server:
        client = connect(server.base_url)
        first, second = (client.ask(REQUEST, Paragraph) for _ in range(2))
    assert len(server.received) == 1
    assert second.document == first.document
    assert second.call.problem == first.call.problem
    assert (second.call.is_cached, second.call.n_input_tokens) == (True, first.call.n_input_tokens)


@pytest.mark.parametrize(
    "content",
    [
        '<think>{"text": 1}</think>\n{"text": "Fine.", "n_sentences": 1}',
        '<reasoning>{"text": 1}</reasoning><answer>{"text": "Fine.", "n_sentences": 1}</answer>',
        'Here is the answer: {"text": "Fine.", "n_sentences": 1} I hope it helps.',
        'With {lr} I choose:\n```json\n{"text": "Fine.", "n_sentences": 1}\n```\nwhere {lr} is kept.',
        '```json\n{"text": "Fine.", "n_sentences": 1}\n```',
        'Here it is:\n```\n{"text": "Fine.", "n_sentences": 1}\n```\nDone.',
    ],
)
def test_document_is_found_after_reasoning_and_in_a_fence(content):
    assert ask(text(content))[0].document == Paragraph(**GOOD)


def test_fence_inside_a_text_is_left():
    fenced = {"text": "```\ncode\n```", "n_sentences": 1}
    assert ask(document(fenced))[0].document == Paragraph(**fenced)


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        (text("no JSON"), "not valid JSON"),
        (text('{"text": "Fi'), "not valid JSON"),
        (text("[" * 100_000), "not valid JSON"),
        (text('{"text": "\\ud800", "n_sentences": 1}'), "not valid JSON"),
        (document({"text": "Fine."}), "n_sentences: is missing"),
        (document({**GOOD, "advice": "buy"}), "there is no field 'advice'"),
    ],
)
def test_complete_answer_that_is_no_document_is_a_problem_and_cached(behavior, problem):
    asked, _, client = ask(behavior)
    assert asked.document is None
    assert problem in asked.call.problem
    assert asked.call.n_input_tokens == 100
    assert list(client._cache) == [REQUEST.digest]


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        (cut_off('{"text": "Fi'), "limit of tokens"),
        (refusal("I must not."), "I must not."),
        (text("", finish_reason="content_filter"), "content filter"),
        (text(""), "empty"),
        (text(None), "empty"),
        (raw(b"<html>"), "no chat completion"),
        (raw(b'{"choices": []}'), "no chat completion"),
        (raw(b'{"choices": [{"message": {"content": ["a"]}}]}'), "no chat completion"),
        (raw(b"\x1f\x8b", **{"Content-Encoding": "gzip"}), "no chat completion"),
        (error(404, "no model m"), "404 - no model m"),
        (error(403, "no"), "NVTRADER_LLM_API_KEY"),
        (redirect("http://127.0.0.1:9/v1"), "redirects are not followed"),
        (endless, f"{MAX_BYTES >> 20} MiB"),
        (error(404, "x" * 9000), "x" * 100),
    ],
)
def test_failure_is_a_problem_and_not_cached(behavior, problem):
    asked, server, client = ask(behavior)
    assert asked.document is None
    assert problem in asked.call.problem
    assert len(asked.call.problem) <= MAX_PROBLEM_LENGTH
    assert len(server.received) == 1
    assert not client._cache


def test_redirect_does_not_carry_the_key_elsewhere():
    with serve(document(GOOD)) as other:
        ask(redirect(f"{other.base_url}/chat/completions"))
    assert not other.received


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        (dripping, "0.3 seconds"),
        (error(503, "busy"), "0.3 seconds (the endpoint answered 503)"),
        (too_many_requests(retry_after=9.0), "0.3 seconds (the endpoint answered 429)"),
        (closed_connection, "0.3 seconds (the connection failed: "),
    ],
)
def test_call_ends_at_its_deadline_with_the_last_failure(behavior, problem):
    asked, _, client = ask(behavior, max_seconds=0.3)
    assert problem in asked.call.problem
    assert 0.25 < asked.call.seconds < 2.0
    assert not client._cache


def test_refused_connection_is_a_problem():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    asked = connect(f"http://127.0.0.1:{port}/v1").ask(REQUEST, Paragraph, max_seconds=0.2)
    assert "the connection failed" in asked.call.problem


def test_slow_look_up_of_the_host_does_not_pass_the_deadline(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1.5))
    asked = connect("http://example.invalid/v1").ask(REQUEST, Paragraph, max_seconds=0.2)
    assert asked.call.problem == "no complete answer came within 0.2 seconds"
    assert asked.call.seconds < 1.2


def test_busy_endpoint_is_asked_again_as_it_says():
    asked, server, _ = ask(too_many_requests(), error(500, "oops", Retry_After="0.01"), document(GOOD))
    assert asked.document == Paragraph(**GOOD)
    assert len(server.received) == 3


def test_busy_endpoint_is_asked_three_times_at_most():
    asked, server, _ = ask(too_many_requests())
    assert "429" in asked.call.problem
    assert len(server.received) == 3


@pytest.mark.parametrize(
    ("behavior", "formats"),
    [
        (taking_only("json_object", behavior=document(GOOD)), ["json_schema", "json_object"]),
        (taking_only("tools", behavior=tool_call(GOOD), status=422), ["json_schema", "json_object", "tools"]),
        (taking_only("text", behavior=document(GOOD)), ["json_schema", "json_object", "tools", "text"]),
    ],
)
def test_endpoint_is_asked_in_the_way_that_it_takes_and_then_only_so(behavior, formats):
    with serve(behavior) as server:
        client = connect(server.base_url, key="")
        asked, again = client.ask(REQUEST, Paragraph), client.ask(REQUEST.model_copy(update={"user": "2"}), Paragraph)
    assert (asked.document, again.document) == (Paragraph(**GOOD), Paragraph(**GOOD))
    assert [received.format for received in server.received] == [*formats, formats[-1]]
    assert all("n_sentences" in json.dumps(received.body) for received in server.received)


@pytest.mark.slow
def test_key_that_an_endpoint_repeats_is_hidden(caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2"):
        caplog.set_level(logging.DEBUG, logger=name)
    refused, _, _ = ask(unauthorized)
    assert "401" in refused.call.problem
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in SECRET)
    for content in (SECRET, f"<think>{SECRET}</think>{SECRET}", f'{{"text": "{escaped}", "n_sentences": 1}}'):
        asked, _, client = ask(text(content, refusal=None))
        shown = f"{asked} {client._cache} {asked.document and asked.document.text}"
        assert "***" in shown
        assert "fish" not in shown
    assert "fish" not in f"{refused} {caplog.text}"


def test_short_key_of_a_local_server_leaves_answers_alone():
    assert ask(document(GOOD), key="1")[0].document == Paragraph(**GOOD)


def test_client_takes_nothing_from_variables_of_the_package(monkeypatch):
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "BASE_URL"):
        monkeypatch.setenv(f"OPENAI_{name}", "http://127.0.0.1:9/stray")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer stray\nX-Team: stray")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://stray:stray@127.0.0.1:9")
    asked, server, _ = ask(document(GOOD), key="")
    assert asked.document == Paragraph(**GOOD)
    headers = server.received[0].headers
    assert "stray" not in str(headers)
    assert headers["authorization"] == f"Bearer {client_module.NO_KEY}"
    assert not [name for name in headers if name.startswith("x-")]


def test_client_asks_inside_a_running_loop():
    async def in_notebook():
        return ask(document(GOOD))[0]

    assert asyncio.run(in_notebook()).document == Paragraph(**GOOD)


def test_missing_package_is_a_problem_but_cached_answers_are_read(monkeypatch):
    with serve(document(GOOD)) as server:
        client = connect(server.base_url)
        client.ask(REQUEST, Paragraph)
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "nvtrader_pipelines.llm.chat")
    assert client.ask(REQUEST, Paragraph).document == Paragraph(**GOOD)
    other = client.ask(REQUEST.model_copy(update={"user": "Again."}), Paragraph)
    assert "pip install 'nvtrader-pipelines[llm]'" in other.call.problem
