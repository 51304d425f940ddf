"""What every request passes: its id, where it comes from, the token, its headers and its log."""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gemfi._files import to_json
from gemfi.serve.bodies import DisconnectedError
from gemfi.serve.connections import Gate
from gemfi.serve.gauges import METHODS, OTHER, Gauges
from gemfi.serve.logs import log
from gemfi.serve.origins import Origins
from gemfi.serve.problems import ProblemError
from gemfi.serve.settings import Settings

RECORD: Final = "gemfi"
"""Where a request's record is in its scope."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_GUARDED: Final = re.compile(r"/(v1|metrics)(/|$)")
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_CLIENT_GONE: Final = 499


@dataclass
class Record:
    """What the log tells of a request besides its status.

    Attributes:
        id: that its answer has, too.
        inputs: how many the model answered.
        batch: inputs of the pass that it was part of.
        status: of the answer.
    """

    id: str
    inputs: int | None = None
    batch: int | None = None
    status: int = 500


def json_response(status: int, body: Any, headers: dict[str, str] | None = None) -> Response:
    """An answer of JSON."""
    return Response(to_json(body), status, headers, media_type="application/json")


def problem_response(problem: ProblemError) -> Response:
    """The answer of a request that is not answered."""
    return json_response(problem.status, problem.plain(), problem.headers)


class Edge:
    """The outermost layer of the app.

    Args:
        app: what is inside.
        gauges: that count the requests.
        gate: that counts the connections.
        settings: the token that /v1 and /metrics ask for, and the hosts that are answered.
    """

    def __init__(self, app: ASGIApp, gauges: Gauges, gate: Gate, settings: Settings) -> None:
        self.app, self.gauges, self.gate = app, gauges, gate
        self.token, self.origins = settings.token, Origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and see to its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = time.perf_counter()
        headers = Headers(scope=scope)
        record = scope[RECORD] = Record(_request_id(headers))
        started = False

        async def send_on(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                record.status = message["status"]
                _add_headers(MutableHeaders(scope=message), scope["path"], record.id)
            await send(message)

        try:
            self._check(scope, headers)
            await self.app(scope, receive, send_on)
        except ProblemError as problem:
            await problem_response(problem)(scope, receive, send_on)
        except DisconnectedError:
            record.status = _CLIENT_GONE
        except Exception:  # noqa: BLE001 - the one place where nothing may pass
            log("unexpected error", level=logging.ERROR, error=True, id=record.id)
            record.status = 500
            if not started:
                failed = ProblemError(500, "internal", "the server failed; its log knows why")
                await problem_response(failed)(scope, receive, send_on)
        finally:
            self._finish(scope, record, time.perf_counter() - start)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what is refused whatever it asks."""
        _check_framing(headers)
        path = scope["path"]
        guarded = scope["method"] not in _SAFE or _GUARDED.match(path) is not None
        self.origins.check(headers, guarded=guarded)
        if self.gate.is_crowded:
            raise ProblemError(
                503,
                "busy",
                "too many connections are open; try again",
                headers={"Connection": "close", "Retry-After": "1"},
            )
        self._check_token(path, headers)

    def _check_token(self, path: str, headers: Headers) -> None:
        if self.token is None or not _GUARDED.match(path):
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("latin-1"), self.token)
        if scheme.lower() != "bearer" or not same:
            raise ProblemError(
                401,
                "unauthorised",
                "this needs a token: send the header Authorization: Bearer ...",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _finish(self, scope: Scope, record: Record, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self.gauges.requests.add(route, method, str(record.status))
        self.gauges.seconds.observe(seconds, route)
        log(
            "request",
            id=record.id,
            method=method,
            route=route,
            status=record.status,
            ms=round(seconds * 1000, 3),
            inputs=record.inputs,
            batch=record.batch,
        )


def _check_framing(headers: Headers) -> None:
    """Refuse a body that ends in two places: a proxy may have taken the other one."""
    if "content-length" in headers and "transfer-encoding" in headers:
        message = "give Content-Length or Transfer-Encoding, not both"
        raise ProblemError(400, "malformed", message, headers={"Connection": "close"})


def _request_id(headers: Headers) -> str:
    """The client's own id if it is a sane one, or a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(8)


def _add_headers(headers: MutableHeaders, path: str, request_id: str) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers.setdefault(name, value)
    headers["X-Request-ID"] = request_id
    headers.setdefault("Cache-Control", "no-store" if _GUARDED.match(path) else "no-cache")
