"""Access to the page: anyone on this machine, else clients with the token or a client certificate.

A program sends `Authorization: Bearer TOKEN`. A browser sends the token once, at `/login`, and gets a cookie derived
from it: no script can read the cookie, no other site can send it, and a new token invalidates it. On loopback without
a token the request must name a loopback host: a site whose name resolves to this address (DNS rebinding) is refused.
Client certificates are checked before a request is read (`application.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drkit.model.errors import ConfigError, error_body

COOKIE = "drkit_session"
_COOKIE_SECONDS = 30 * 24 * 3600
_MAX_FORM = 4096
_WRONG_TOKEN_SECONDS = 0.5
SHORTEST_TOKEN = 16
AUTHORISED = "drkit.authorised"
"""Key in a request's scope: whether it may see more than that the server runs."""
_OPEN = ("/login", "/healthz", "/readyz", "/livez")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of the page.

    Args:
        token: the token that a reader must send; None: none.
        encrypted: the page is served over TLS, so that its cookie is sent over TLS only.
        only_loopback: neither token nor client certificate is required, so requests must name a loopback host.
    """

    token: str | None = None
    encrypted: bool = False
    only_loopback: bool = True

    def session(self, at: float) -> str:
        """The cookie of a session that begins at `at` (seconds since the epoch)."""
        ends = int(at) + _COOKIE_SECONDS
        return f"{ends}.{self._mark(ends)}"

    def knows(self, given: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def admits(self, headers: Headers, at: float) -> bool:
        """Whether a request with these headers may read the page."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.knows(given.strip())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        ends, _, mark = ("" if cookie is None else cookie.value).partition(".")
        if not (ends.isascii() and ends.isdecimal()) or len(ends) > len(str(_COOKIE_SECONDS)) + 8 or int(ends) < at:
            return False
        return hmac.compare_digest(mark.encode(), self._mark(int(ends)).encode())

    def _mark(self, ends: int) -> str:
        key = hashlib.sha256(f"drkit page {self.token}".encode()).digest()
        return hmac.new(key, f"session {ends}".encode(), hashlib.sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to this host; a name if all its addresses are loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)


def checked(host: str, token: str | None, *, encrypted: bool, certificates: bool) -> Access:
    """The access to a server that is bound to `host`. `certificates`: clients must present one.

    Raises:
        ConfigError: other machines can reach it without authentication, or the token is too short.
    """
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"serve.token: it has {len(token)} characters, fewer than {SHORTEST_TOKEN}",
            meaning="It could be guessed",
            remedy="Take a random one, for example from `openssl rand -hex 24`",
        )
    if token is None and not certificates and not is_loopback(host):
        raise ConfigError(
            f"--listen: other machines can reach {host}, and the page has no authentication",
            meaning="The page shows names of topics and groups, and the state of failovers",
            remedy="Set serve.token, or serve.certificate, serve.key and serve.client_ca; or listen on 127.0.0.1",
        )
    return Access(token, encrypted, only_loopback=token is None and not certificates)


class Guard:
    """ASGI middleware: admits requests by `access`, and adds headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        scope[AUTHORISED] = self.access.admits(headers, time.time())
        answer = self._refusal(scope, headers)
        await (self.app if answer is None else answer)(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if self.access.only_loopback and not _names_loopback(headers.get("host", "")):
            return PlainTextResponse("this server answers requests to a loopback host only\n", 421)
        path: str = scope["path"]
        if scope[AUTHORISED] or path in _OPEN or path.startswith("/static/"):
            return None
        if path == "/" and "text/html" in headers.get("accept", ""):
            return RedirectResponse("login", 303)
        error = ConfigError("no token, or a wrong one", remedy="Send Authorization: Bearer TOKEN, or open /login")
        return JSONResponse({"error": error_body(error)}, 401, {"WWW-Authenticate": 'Bearer realm="drkit"'})


async def log_in(request: Request, access: Access) -> Response:
    """The response to the form of `/login`: the session's cookie, or the form again."""
    length = 0
    parts: list[bytes] = []
    try:
        async for part in request.stream():
            parts.append(part)
            length += len(part)
            if length > _MAX_FORM:
                return PlainTextResponse("the form is too long\n", 413)
    except ClientDisconnect:
        return PlainTextResponse("", 400)
    try:
        fields = parse_qs(b"".join(parts).decode("utf-8", "replace"), max_num_fields=5)
    except ValueError:
        fields = {}
    given = fields.get("token", [""])[0]
    if not access.knows(given.strip()):
        await asyncio.sleep(_WRONG_TOKEN_SECONDS)
        return RedirectResponse("login?wrong=1", 303)
    answer = RedirectResponse("./", 303)
    answer.set_cookie(
        COOKIE,
        access.session(time.time()),
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
        secure=access.encrypted,
        path="/",
    )
    return answer


def _names_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
