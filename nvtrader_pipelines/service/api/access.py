"""Guard in front of the service: hosts, tokens, origins, sizes of bodies, and headers of safety.

Any page in a browser can send requests to this machine, so a write needs the token that the start prints.
"""

import hmac
import logging
import re
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nvtrader_pipelines.service.api.problems import problem_response

LOG = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
READS = {"GET", "HEAD"}
COSTLY = ("/report", "/api/continuous-rl/")  # reads that take seconds or stay open
FOREIGN = "the request must come from the page of this service, but another page sent it"
MAX_BODY = 1 << 20  # bytes
LARGER_BODIES = {"/api/continuous-rl/interpret-chart": 8 << 20}  # a chart of 4 MB in base 64, and its rows
PAGE_POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
SAFETY = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",  # the link of the start holds the token
    "cross-origin-resource-policy": "same-origin",
}
IS_LOCKED = ContextVar("IS_LOCKED", default=False)  # whether the browser of a request may only read


@dataclass(frozen=True)
class Access:
    """Who may use a service: the address it is bound to, and its token."""

    host: str
    port: int
    token: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def cookie(self) -> str:
        """Name of the cookie; cookies are shared by all ports of a host."""
        return f"nvtrader-{self.port}"

    @property
    def link(self) -> str:
        """Link that lets a browser in."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"

    def holds(self, token: str) -> bool:
        """Whether a token is the right one, in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())


class Guard:
    """Outermost ASGI application: what it refuses never reaches a route, and no error leaves it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await receive()  # the request to open one
            await problem_response(404, "the service has no WebSockets; open its page")(scope, receive, send)
            return
        sender = _Sender(send)
        try:
            status, reason = refusal(scope, self._access)
            if status:
                challenge = {"www-authenticate": "Bearer"} if status == 401 else None
                await problem_response(status, reason, challenge)(scope, receive, sender)
            else:
                IS_LOCKED.set(not _has_cookie(Headers(scope=scope), self._access))
                await self._app(scope, _Limited(receive, max_body(scope)), sender)
        except ClientDisconnect:
            return
        except _TooLarge:
            await problem_response(413, _too_large(scope))(scope, receive, sender)
        except Exception:  # the last resort: with the traceback in the log, and no reset connection
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if not sender.has_begun:
                sender.is_failing = True
                await problem_response(500, "the service failed; its log has the trace")(scope, receive, sender)


def refusal(scope: Scope, access: Access) -> tuple[int, str]:
    """Status and reason for which a request is refused; 0 if it is not."""
    headers, is_read = Headers(scope=scope), scope["method"] in READS
    hosts = headers.getlist("host")
    if len(hosts) != 1 or (access.is_loopback and not OWN_HOST.fullmatch(hosts[0])):
        return 421, "the host must be 127.0.0.1 or localhost; open the link that `nvtrader serve` prints"
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length) > max_body(scope):
        return 413, _too_large(scope)
    if scope["path"].startswith(COSTLY) and headers.get("sec-fetch-site") == "cross-site":
        return 403, FOREIGN
    if is_read and (access.is_loopback or scope["path"] == "/"):  # the page of the link checks its token itself
        return 0, ""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and access.holds(bearer.strip()):
        return 0, ""
    if not _has_cookie(headers, access):
        return 401, "the token is missing or wrong; send `Authorization: Bearer TOKEN`, or open the link of the start"
    is_own = all(origin == f"{scope['scheme']}://{hosts[0]}" for origin in headers.getlist("origin"))
    if not is_own or headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
        return 403, FOREIGN
    return 0, ""


def _has_cookie(headers: Headers, access: Access) -> bool:
    """Whether the browser opened the link of the start."""
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    return access.cookie in cookies and access.holds(cookies[access.cookie].value)


class _TooLarge(Exception):  # noqa: N818
    """Body above the limit."""


def max_body(scope: Scope) -> int:
    """Bytes that the body of a request may have."""
    return LARGER_BODIES.get(scope["path"], MAX_BODY)


def _too_large(scope: Scope) -> str:
    return f"a body may have {max_body(scope) >> 20} MB at most here, but is larger; send a smaller one"


class _Limited:
    """Reader of a body that ends at the limit, also where no length was stated."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._limit, self._n_bytes = receive, limit, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._n_bytes += len(message.get("body", b""))
        if self._n_bytes > self._limit:
            raise _TooLarge
        return message


class _Sender:
    """Sender that adds the headers of safety."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_begun, self.is_failing, self._is_held = send, False, False, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 500 and not self.is_failing:
            self._is_held = True  # Starlette's plain text, before it raises the error
        if self._is_held and not self.is_failing:
            return
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in SAFETY.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await self._send(message)
