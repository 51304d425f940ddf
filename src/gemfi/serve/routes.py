"""The routes: what is asked and what is answered."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import Any, Final

import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import Response

from gemfi.errors import InputError
from gemfi.serve import arrays, images, tables
from gemfi.serve.answers import Plain
from gemfi.serve.bodies import files_of_form, read_body
from gemfi.serve.edge import RECORD, json_response
from gemfi.serve.loaded import Loaded
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.predictor import Question
from gemfi.serve.problems import ProblemError, malformed, too_large, unusable
from gemfi.serve.service import Service

FIELDS: Final = ("inputs", "input", "images", "image")
_MOST_AT_ONCE: Final = 16  # predictions that are written down in no time
_MOST_SHOWN: Final = 1 << 20  # numbers of the inputs that an answer in detail repeats
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)

Decoded = tuple[npt.NDArray[Any], str]


class Routes:
    """The handlers of the API.

    Args:
        service: what they share.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def predict(self, request: Request) -> Response:
        """Answer POST /v1/predict."""
        service = self.service
        service.check_open()
        loaded = service.loaded  # the same to the end, whatever is loaded meanwhile
        detail, level = _query(request, loaded)
        service.open += 1
        try:
            inputs, field = await self._inputs(request, loaded)
            if detail and loaded.form.kind == "image" and inputs.size > _MOST_SHOWN:
                raise too_large("these are too many images to tell in detail", field)
            question = Question(inputs, level, detail)
            served = await service.ask(loaded, question, request.receive, field)
        finally:
            service.open -= 1
        service.tell(served)
        record = request.scope[RECORD]
        record.inputs, record.batch = len(inputs), served.batch
        told = served.result.predictions
        write = partial(_dumps, loaded, told)
        is_long = detail or len(told) > _MOST_AT_ONCE
        text = await asyncio.to_thread(write) if is_long else write()
        return Response(text, media_type="application/json")

    async def model(self) -> Response:
        """Answer GET /v1/model."""
        return json_response(200, self.service.loaded.about)

    async def reload(self) -> Response:
        """Answer POST /v1/reload."""
        if self.service.settings.token is None:
            message = "a server without a token is not told what to serve; send it SIGHUP"
            raise ProblemError(403, "forbidden", message)
        loaded = await self.service.reload()
        self.service.tell_workers()
        told = {"model": loaded.bundle.name, "method": loaded.bundle.info.method}
        return json_response(200, told)

    async def health(self) -> Response:
        """Answer GET /healthz."""
        if self.service.is_stopping:
            return json_response(503, {"status": "stopping"}, {"Connection": "close"})
        return json_response(200, {"status": "ok"})

    async def metrics(self) -> Response:
        """Answer GET /metrics."""
        return Response(self.service.metrics(), media_type=CONTENT_TYPE)

    # -- reading a request -------------------------------------------------------------------------

    async def _inputs(self, request: Request, loaded: Loaded) -> Decoded:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").lower()
        if kind not in {"application/json", "multipart/form-data"} or encoding != "identity":
            raise ProblemError(
                415,
                "unsupported_kind",
                "send application/json or multipart/form-data, not compressed",
            )
        settings = self.service.settings
        body = await read_body(request.receive, loaded.max_bytes, settings.body_timeout)
        if kind == "application/json":
            arrays.check_size(body, loaded.form, settings.max_inputs)
            read = partial(self._from_json, body, loaded)
            heavy = b"image" in body or b"\\" in body  # a key may be written with escapes
            return await self.service.decode(len(body), heavy, read)
        read = partial(self._from_form, body, request.headers["content-type"], loaded)
        return await self.service.decode(len(body), True, read)

    def _from_json(self, body: bytes, loaded: Loaded) -> Decoded:
        settings, form = self.service.settings, loaded.form
        given, text = arrays.parse_object(body)
        if len(given) != 1 or not given.keys() <= set(FIELDS):
            raise malformed(f"the body must have exactly one of {', '.join(FIELDS)}")
        ((field, value),) = given.items()
        values = [value] if field in {"input", "image"} else value
        if field in {"inputs", "input"} and tables.are_objects(values):
            return tables.from_objects(values, field, form, settings.max_inputs), field
        if field in {"inputs", "input"}:
            return arrays.to_inputs(values, field, text, form, settings.max_inputs), field
        files = images.from_base64(values, field, settings.max_inputs)
        return images.decode(files, field, form, settings), field

    def _from_form(self, body: bytes, content_type: str, loaded: Loaded) -> Decoded:
        settings = self.service.settings
        files = files_of_form(body, content_type, settings.max_inputs)
        return images.decode(files, "file", loaded.form, settings), "file"


def _query(request: Request, loaded: Loaded) -> tuple[bool, float | None]:
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
    return detail == "true", None if text is None else _level(text, loaded)


def _level(text: str, loaded: Loaded) -> float:
    policy, where = loaded.policy, "false_alarm"
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


def _dumps(loaded: Loaded, predictions: list[Plain]) -> bytes:
    """JSON of an answer; `answers` has made every number finite.

    Each prediction is written alone, since nothing else runs while JSON is written.
    """
    write = partial(json.dumps, allow_nan=False, separators=(",", ":"))
    model, method = write(loaded.bundle.name), write(loaded.bundle.info.method)
    inner = ",".join(write(each) for each in predictions)
    return f'{{"model":{model},"method":{method},"predictions":[{inner}]}}'.encode()
