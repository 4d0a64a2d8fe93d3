"""Local servers that record messages: a webhook and a mail server with a password."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

USER, PASSWORD = "desk", "pass-phrase-of-mail"
TOKEN = "T0KEN-of-the-webhook"


@dataclass
class Webhook:
    """Received requests, and the status with which the server answers."""

    url: str = ""
    status: int = 200
    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def titles(self) -> list[str]:
        """Subjects of the received messages."""
        return [each["title"] for each in self.messages]


@contextmanager
def serve_webhook() -> Iterator[Webhook]:
    """Serve a webhook on a free port; its URL is one for Apprise, with a token."""
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook.paths.append(self.path)
            webhook.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(webhook.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        webhook.url = f"json://127.0.0.1:{server.server_port}/hooks/{TOKEN}"
        yield webhook
        server.shutdown()
        thread.join()


@dataclass
class MailServer:
    """Received e-mails."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - the name in aiosmtpd
        """Store a message."""
        found = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(found, EmailMessage)
        self.messages.append(found)
        return "250 OK"

    def url(self, password: str = PASSWORD) -> str:
        """Apprise URL of a mailbox on this server."""
        return f"mailto://{USER}:{password}@127.0.0.1:{self.port}?from=nvtrader@example.com&to=ann@example.com"


@contextmanager
def serve_mail() -> Iterator[MailServer]:
    """Serve a mail server on a free port that accepts one user and password."""

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        known = isinstance(data, LoginPassword) and (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=known, handled=False)

    with socket.create_server(("127.0.0.1", 0)) as free:
        mail = MailServer(free.getsockname()[1])
    controller = Controller(
        mail,
        hostname="127.0.0.1",
        port=mail.port,
        ready_timeout=60.0,
        authenticator=authenticate,
        auth_require_tls=False,
    )
    controller.start()
    yield mail
    controller.stop()
