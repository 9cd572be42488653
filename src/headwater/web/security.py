"""What stands between the network and the routes: headers, hosts, origins, a token, and the size of a request."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .bodies import Bodies, Gone, Refusal, replay_body
from .limits import Limits

COOKIE = "headwater-token"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
# A page that was saved by us or by somebody else: it may be looked at, inside the app, and do nothing.
FRAMED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; sandbox"
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


def hosts_for(bound: str) -> tuple[str, ...] | None:
    """The names that a request may address the server by; None for any, where a token guards it.

    A page elsewhere can have its own name point to 127.0.0.1 and then talk to us as its own server: the name in the
    request gives it away.
    """
    return LOOPBACK if is_loopback(bound) else None


def is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")


class Guard:
    """Refuses what is not for us, and gives every answer the headers that forbid foreign scripts."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] | None, token: str | None, limits: Limits) -> None:
        self.app = app
        self.token = token
        self.limits = limits
        self.bodies: Bodies = Bodies(limits.arriving, limits.bodies)
        self.hosts: frozenset[str] | None = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, add_headers(send))
            return
        try:
            body = await self.bodies.read(receive, self.limits.body_of(scope["path"]))
        except Gone:
            return
        except Refusal as error:
            await refuse(error.status, error.message)(scope, receive, add_headers(send))
            return
        size, replay = len(body), replay_body(body, receive)
        del body  # the application alone decides how long it is needed
        try:
            await self.app(scope, replay, add_headers(send))
        finally:
            self.bodies.let_go(size)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and name_of(host) not in self.hosts:
            return refuse(403, "this server answers on this machine alone: open it by 127.0.0.1 or localhost.")
        origin = headers.get("origin")
        if origin is not None and server_of(origin) != host:
            return refuse(403, "requests from pages of other servers are refused.")
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/api/"):
            return refuse(403, "requests from pages of other servers are refused.")
        most = self.limits.body_of(scope["path"])
        length = headers.get("content-length", "").lstrip("0")
        if length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > most):
            return refuse(413, f"a request to this address may have {most:,} bytes, this one has {length}.")
        return None if self.token is None else self._without_token(scope, headers, self.token)

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and same_token(asked, token):
            found = RedirectResponse("/", status_code=303)  # the browser keeps the fragment, and forgets the token
            found.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return found
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if same_token(bearer, token) or same_token(cookie_of(headers), token):
            return None
        return refuse(401, "this server needs its token: open the address that it printed when it started.")


def name_of(host: str) -> str:
    """A host without its port."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def server_of(origin: str) -> str | None:
    """The host and port of an origin; None where it names none, as `null` and what is broken do."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def same_token(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def cookie_of(headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def refuse(status: int, message: str) -> JSONResponse:
    """An answer before the body was read: the connection is closed, or the server would go on to take it in."""
    return JSONResponse(
        {"error": "busy" if status == 429 else "refused", "message": message},
        status_code=status,
        headers={"connection": "close", **({"retry-after": "1"} if status == 429 else {})},
    )


def add_headers(send: Send) -> Send:
    """Every answer with the headers, unless a route has set its own."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return with_headers
