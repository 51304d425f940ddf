"""The routes: what is asked and what is answered."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Final

import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response

from gemfi.errors import InputError
from gemfi.serve import arrays, images, tables
from gemfi.serve.bodies import files_of_form, read_body
from gemfi.serve.edge import RECORD, json_response
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.predictor import Question
from gemfi.serve.problems import ProblemError, malformed, unusable
from gemfi.serve.service import Service

FIELDS: Final = ("inputs", "input", "images", "image")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

Decoded = tuple[npt.NDArray[Any], str]


class Routes:
    """The handlers of the API.

    Args:
        service: what they share.
        about: what GET /v1/model answers.
    """

    def __init__(self, service: Service, about: dict[str, Any]) -> None:
        self.service, self._about = service, about

    async def predict(self, request: Request) -> Response:
        """Answer POST /v1/predict."""
        service = self.service
        service.check_open()
        detail, level = self._query(request)
        service.open += 1
        try:
            inputs, field = await self._inputs(request)
            served = await service.ask(Question(inputs, level, detail), request.receive, field)
        finally:
            service.open -= 1
        service.tell(served)
        record = request.scope[RECORD]
        record.inputs, record.batch = len(inputs), served.batch
        answer = {
            "model": service.bundle.name,
            "method": service.bundle.info.method,
            "predictions": served.result.predictions,
        }
        return Response(_dumps(answer), media_type="application/json")

    async def model(self) -> Response:
        """Answer GET /v1/model."""
        return json_response(200, self._about)

    async def health(self) -> Response:
        """Answer GET /healthz."""
        if self.service.is_stopping:
            return json_response(503, {"status": "stopping"}, {"Connection": "close"})
        return json_response(200, {"status": "ok"})

    async def metrics(self) -> Response:
        """Answer GET /metrics."""
        return Response(self.service.metrics(), media_type=CONTENT_TYPE)

    # -- reading a request -------------------------------------------------------------------------

    def _query(self, request: Request) -> tuple[bool, float | None]:
        """Whether details are asked for, and the false-alarm rate that is."""
        given = dict(request.query_params)
        if len(given) < len(request.query_params.multi_items()):
            raise unusable("bad_parameter", "each parameter may be given once")
        detail = given.pop("detail", "false")
        if detail not in {"true", "false"}:
            raise unusable("bad_parameter", "detail must be true or false", "detail")
        text = given.pop("false_alarm", None)
        if given:
            name = re.sub(r"[^\w-]", "?", min(given), flags=re.ASCII)[:40]
            raise unusable("bad_parameter", f"there is no parameter {name!r}")
        return detail == "true", None if text is None else self._level(text)

    def _level(self, text: str) -> float:
        policy, where = self.service.policy, "false_alarm"
        if policy is None:
            raise unusable("bad_parameter", "this model has no policy to choose a rate for", where)
        level = float(text) if _NUMBER.fullmatch(text) else 0.0
        if not 0 < level < 1:
            raise unusable("bad_parameter", "false_alarm must be a number above 0, below 1", where)
        try:
            policy.reference.require_level(level, policy.class_names)
        except InputError as error:
            raise unusable("bad_parameter", str(error), where) from None
        return level

    async def _inputs(self, request: Request) -> Decoded:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").lower()
        if kind not in {"application/json", "multipart/form-data"} or encoding != "identity":
            raise ProblemError(
                415,
                "unsupported_kind",
                "send application/json or multipart/form-data, not compressed",
            )
        settings = self.service.settings
        body = await read_body(request.receive, settings.max_bytes, settings.body_timeout)
        if kind == "application/json":
            read = partial(self._from_json, body)
            heavy = b"image" in body or b"\\" in body  # a key may be written with escapes
            return await self.service.decode(len(body), heavy, read)
        read = partial(self._from_form, body, request.headers["content-type"])
        return await self.service.decode(len(body), True, read)

    def _from_json(self, body: bytes) -> Decoded:
        service, most = self.service, self.service.settings.max_inputs
        given, text = arrays.parse_object(body)
        if len(given) != 1 or not given.keys() <= set(FIELDS):
            raise malformed(f"the body must have exactly one of {', '.join(FIELDS)}")
        ((field, value),) = given.items()
        values = [value] if field in {"input", "image"} else value
        if field in {"inputs", "input"} and tables.are_objects(values):
            return tables.from_objects(values, field, service.form, most), field
        if field in {"inputs", "input"}:
            return arrays.to_inputs(values, field, text, service.form, most), field
        files = images.from_base64(values, field, most)
        return images.decode(files, field, service.form, service.settings), field

    def _from_form(self, body: bytes, content_type: str) -> Decoded:
        service = self.service
        files = files_of_form(body, content_type, service.settings.max_inputs)
        return images.decode(files, "file", service.form, service.settings), "file"


def _dumps(answer: dict[str, Any]) -> bytes:
    """JSON of an answer; `answers` has made every number finite."""
    return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
