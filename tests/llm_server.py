"""Local server of chat completions: it records requests and answers each by a script."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from threading import Event, Thread
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass(frozen=True)
class Received:
    """Request that the server received."""

    path: str
    headers: dict[str, str]  # by name in lower case
    body: dict[str, Any]

    @property
    def format(self) -> str:
        """Way in which the document is asked for: kind of the response format, tools or text."""
        return self.body.get("response_format", {"type": "tools" if "tools" in self.body else "text"})["type"]


@dataclass(frozen=True)
class Reply:
    """HTTP response; a body in parts has no length and ends with the connection."""

    body: bytes | Iterable[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # before each part


Behavior = Callable[[Received], Reply]


def text(content: str | None, finish_reason: str = "stop", **message: Any) -> Behavior:
    """Answer with a text."""

    def reply(received: Received) -> Reply:
        message_ = {"role": "assistant", "content": content, "refusal": None, **message}
        choice = {"index": 0, "message": message_, "logprobs": None, "finish_reason": finish_reason}
        return Reply(
            json.dumps(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 1_700_000_000,
                    "model": received.body["model"],
                    "choices": [choice],
                    "usage": USAGE,
                }
            ).encode()
        )

    return reply


def document(content: Any) -> Behavior:
    """Answer with a document."""
    return text(json.dumps(content))


def refusal(reason: str) -> Behavior:
    """Refuse as a model does."""
    return text(None, refusal=reason)


def cut_off(content: str) -> Behavior:
    """Answer with the beginning of a document, as at the limit of tokens."""
    return text(content, finish_reason="length")


def raw(body: bytes | Iterable[bytes], seconds: float = 0.0, **headers: str) -> Behavior:
    """Send a body as it is, such as parts that drip."""
    return lambda _: Reply(body, headers=headers, seconds=seconds)


def closed_connection(_: Received) -> Reply:
    """Close the connection in the middle of the body."""
    return Reply(b'{"id": "chat', headers={"Content-Length": "1000"})


def dripping(_: Received) -> Reply:
    """Send a byte now and then, without end."""
    return Reply(repeat(b" "), seconds=0.02)


def endless(_: Received) -> Reply:
    """Send a body without end."""
    return Reply(repeat(b" " * (1 << 16)))


def error(status: int, message: str, **headers: str) -> Behavior:
    """Answer with an error."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode()
    return lambda _: Reply(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def too_many_requests(retry_after: float = 0.01) -> Behavior:
    """Ask to wait."""
    return error(429, "Rate limit reached", Retry_After=str(retry_after))


def unauthorized(received: Received) -> Reply:
    """Refuse the key and repeat it."""
    return error(401, f"Incorrect API key: {received.headers['authorization']}")(received)


def redirect(url: str) -> Behavior:
    """Redirect to another address."""
    return lambda _: Reply(b"", 307, {"Location": url})


def taking_only(*formats: str, behavior: Behavior, status: int = 400) -> Behavior:
    """Refuse other formats as servers of local models do; else behave as given."""
    refuse = error(status, "response_format and tools are not supported")
    return lambda received: (behavior if received.format in formats else refuse)(received)


def tool_call(content: Any) -> Behavior:
    """Answer with a document as the arguments of a tool."""
    function = {"name": "answer", "arguments": json.dumps(content)}
    return text(None, "tool_calls", tool_calls=[{"id": "call-1", "type": "function", "function": function}])


@dataclass
class LlmServer:
    """Running server: its address, what it does next, and what it received."""

    base_url: str
    behaviors: list[Behavior]  # one a request; the last stays
    received: list[Received] = field(default_factory=list)

    def reply(self, received: Received) -> Reply:
        """Record a request and reply by the next behavior."""
        self.received.append(received)
        behavior = self.behaviors.pop(0) if len(self.behaviors) > 1 else self.behaviors[0]
        return behavior(received)


@contextmanager
def serve(*behaviors: Behavior) -> Iterator[LlmServer]:
    """Serve on a free port."""
    closing = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = llm.reply(Received(self.path, headers, json.loads(body)))
            length = {"Content-Length": str(len(reply.body))} if isinstance(reply.body, bytes) else {}
            self.send_response(reply.status)
            for header in {"Content-Type": "application/json", **length, **reply.headers}.items():
                self.send_header(*header)
            self.end_headers()
            with suppress(OSError):  # of a client that has left
                for part in [reply.body] if isinstance(reply.body, bytes) else reply.body:
                    if closing.wait(reply.seconds):
                        break
                    self.wfile.write(part)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name there
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        llm = LlmServer(f"http://127.0.0.1:{server.server_port}/v1", list(behaviors))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield llm
        closing.set()
        server.shutdown()
        thread.join()
