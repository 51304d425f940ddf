"""What every request passes: its id, hosts and sites, the token, its headers and its log.

A browser sends requests wherever a page tells it to, also to this machine. Two headers that pages
cannot forge give it away: `Host`, the name under which the server was reached, and `Origin` or
`Sec-Fetch-Site`, the page that asks. A name that is not ours is how DNS rebinding looks: the page's
own name, made to point here. Programs that are no browsers need not send the last two.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import secrets
import time
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gemfi.serve.logs import log
from gemfi.serve.schemas import ProblemError
from gemfi.serve.service import Service
from gemfi.serve.settings import Settings

LOGGED: Final = "gemfi"
"""Where in its scope a request keeps what the log tells of it: inputs, and those of its pass."""

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS: Final = _SAFE | {"POST", "PUT", "PATCH", "DELETE"}
_OTHER: Final = "other"  # stands for unknown paths and methods: labels must stay few
_GUARDED: Final = re.compile(r"/(v1|metrics)(/|$)")
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CLIENT_GONE: Final = 499

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened at
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII)
_OWN_SITES: Final = frozenset({"same-origin", "none"})  # the page, or the reader's own hand
_PORTS: Final = {"http": 80, "https": 443}


class RequestMiddleware:
    """The outermost layer of the app."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and see to its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)
        scope[LOGGED] = {"inputs": None, "batch": None}
        status, started = 500, False

        async def send_on(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                cache = "no-store" if _GUARDED.match(scope["path"]) else "no-cache"
                for name, value in {**_HEADERS, "Cache-Control": cache}.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_on)
        except ProblemError as problem:
            await problem.response()(scope, receive, send_on)
        except ClientDisconnect:
            status = _CLIENT_GONE
        except Exception:  # noqa: BLE001 - the one place where nothing may pass
            log("unexpected error", level=logging.ERROR, error=True, id=request_id)
            if not started:
                failed = ProblemError(500, "internal", "the server failed; its log knows why")
                await failed.response()(scope, receive, send_on)
            status = 500
        finally:
            self._finish(scope, request_id, status, time.perf_counter() - start)

    def _check(self, scope: Scope) -> None:
        """Refuse what is refused whatever it asks."""
        headers, settings = Headers(scope=scope), self._service.settings
        if "content-length" in headers and "transfer-encoding" in headers:
            # The body ends in two places: a proxy may have taken the other one.
            message = "give Content-Length or Transfer-Encoding, not both"
            raise ProblemError(400, "malformed", message, headers={"Connection": "close"})
        guarded = _GUARDED.match(scope["path"]) is not None
        check_origin(settings, headers, guarded=guarded or scope["method"] not in _SAFE)
        if self._service.connections.is_crowded:
            message = "too many connections are open; try again"
            later = {"Connection": "close", "Retry-After": "1"}
            raise ProblemError(503, "busy", message, headers=later)
        if guarded and settings.token is not None:
            _check_token(settings.token, headers)

    def _finish(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", _OTHER)
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        metrics = self._service.metrics
        metrics.requests.labels(route, method, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        log(
            "request",
            id=request_id,
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1000, 3),
            **scope[LOGGED],
        )


def _check_token(token: bytes, headers: Headers) -> None:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1"), token)
    if scheme.lower() != "bearer" or not same:
        message = "this needs a token: send the header Authorization: Bearer ..."
        how = {"WWW-Authenticate": "Bearer"}
        raise ProblemError(401, "unauthorised", message, headers=how)


def check_origin(settings: Settings, headers: Headers, *, guarded: bool) -> None:
    """Refuse a request that is for another host, or from another site.

    Where it is `guarded`, another site may not even ask without reading the answer.
    """
    named = {name.lower() for name in settings.allow_hosts}
    hosts = _LOCAL | named | {settings.host.lower()}
    host, port = _split_host(headers.get("host", ""))
    if host not in hosts and not (hosts & _EVERY and _is_address(host)):
        message = (
            f"this server is not called {host[:80]!r}; its owner can add the name with "
            "--allow-hosts"
        )
        raise ProblemError(421, "wrong_host", message)
    scheme, _, page = headers.get("origin", "").partition("://")
    page_host, page_port = _split_host(page)
    usual = _PORTS.get(scheme)  # None for what is no page
    same = (page_host, page_port or usual) == (host, port or usual)
    is_own = "origin" not in headers or (usual is not None and (same or page_host in named))
    if not is_own or (guarded and headers.get("sec-fetch-site", "none") not in _OWN_SITES):
        raise ProblemError(403, "cross_site", "requests of other sites are not answered")


def _split_host(text: str) -> tuple[str, int | None]:
    """Name and port; an empty name for what is none."""
    match = _HOST.fullmatch(text)
    if match is None:
        return "", None
    name, port = match.groups()
    return name.strip("[]").rstrip(".").lower(), None if port is None else int(port)


def _is_address(host: str) -> bool:
    """Whether a host is an address, which no name service can be made to point elsewhere."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
