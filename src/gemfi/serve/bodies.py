"""Bodies of requests: read within a limit and in time, and cut into the files of a form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gemfi.serve.problems import ProblemError, malformed, too_large

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_DRAINED: Final = 8  # times the limit that is read and dropped, so that the sender hears of it


class DisconnectedError(Exception):
    """The client has gone; there is nobody to answer."""


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, or 413 as soon as it passes the limit, or 408 if it comes too slowly.

    Args:
        receive: of the request.
        limit: of its bytes, whatever its headers say.
        seconds: in which it must have come.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, limit)
    except TimeoutError:
        raise ProblemError(
            408,
            "slow_body",
            f"the body did not come within {seconds:g} s",
            headers={"Connection": "close"},
        ) from None


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in _parts(receive):
        size += len(part)
        if size > _DRAINED * limit:
            raise _over(limit, closing=True)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
    if size > limit:
        raise _over(limit)
    return b"".join(parts)


async def _parts(receive: Receive) -> Any:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        yield message.get("body", b"")
        more = message.get("more_body", False)


def _over(limit: int, *, closing: bool = False) -> ProblemError:
    problem = too_large(f"the body has more than the {limit:,} bytes allowed")
    if closing:
        problem.headers["Connection"] = "close"
    return problem


def files_of_form(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The parts named `file` of a multipart form, in order.

    Args:
        body: of the request.
        content_type: its header, which has the boundary.
        most: parts that there may be; nothing is read beyond, since each takes its time.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise malformed("the form has no boundary in its Content-Type")
    form = _Form(most)
    try:
        parser = MultipartParser(boundary, form.callbacks())
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError):
        raise malformed("the form cannot be read as multipart/form-data") from None
    if not form.is_whole:
        raise malformed("the form ends before its last boundary")
    if not form.files:
        raise malformed("the form has no part", "file")
    return form.files


class _Form:
    """Collects the parts as the parser finds them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.files: list[bytes] = []
        self.is_whole = False
        self._field, self._value, self._data = b"", b"", bytearray()
        self._name: bytes | None = None

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._add,
            "on_part_end": self._end,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._name, self._data = None, bytearray()

    def _add(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _end(self) -> None:
        if self._name != b"file":
            shown = repr((self._name or b"").decode("utf-8", "replace")[:40])
            raise malformed(f"the form has a part {shown}, but images are parts named 'file'")
        if len(self.files) == self.most:
            raise too_large(f"more than the {self.most} images allowed", "file")
        self.files.append(bytes(self._data))

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._name = parse_options_header(self._value)[1].get(b"name")
        self._field = self._value = b""

    def _finish(self) -> None:
        self.is_whole = True
