"""The app: its routes, their description in OpenAPI, and the page."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from typing import Any, Final

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gemfi._version import __version__
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.errors import InputError
from gemfi.serve import bodies, schemas
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.middleware import RECORD, RequestMiddleware
from gemfi.serve.predictor import Predictor, Question
from gemfi.serve.problems import ProblemError, too_large, unusable
from gemfi.serve.service import ModelSource, Service
from gemfi.serve.settings import Settings

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
"""Ending of a file of the page -> its media type; nothing else is served."""

_MOST_AT_ONCE: Final = 16  # predictions that are written down in no time
_MOST_SHOWN: Final = 1 << 20  # numbers of the inputs that an answer in detail repeats
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_JSON: Final = "application/json"
_FORM: Final = "multipart/form-data"


def create_app(
    bundle: Bundle,
    settings: Settings | None = None,
    policy: Policy | None = None,
    source: ModelSource | None = None,
) -> FastAPI:
    """The app that serves a bundle; `app.state.service` is what its routes share.

    Args:
        bundle: the model.
        settings: limits, times and names of the server; None for the defaults.
        policy: makes the decisions; None for the bundle's own.
        source: where to read both anew when the server is told to reload; None if it cannot be.
    """
    service = Service(bundle, settings or Settings(), policy or bundle.policy, source)
    app = _App(service)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_middleware(RequestMiddleware, service=service)
    return app


class _App(FastAPI):
    """FastAPI with our page of the API: its own would need the network."""

    def __init__(self, service: Service) -> None:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield
            await service.stop()

        super().__init__(
            title="gemfi",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            lifespan=lifespan,
        )
        self.state.service = service
        self._service = service
        for route in _routes(service):
            self.add_api_route(response_class=Response, **route)
        for path, file in (("/", "index.html"), ("/docs", "docs.html"), ("/static/{name}", None)):
            page = partial(_page_file, file) if file else _page_file
            self.add_api_route(path, page, methods=["GET"], include_in_schema=False)

    def openapi(self) -> dict[str, Any]:
        """The description of the API, with what the model takes that is served now."""
        document = copy.deepcopy(super().openapi())
        service, predictor = self._service, self._service.predictor
        name = predictor.bundle.name
        document["info"]["description"] = f"{name}: labels, decisions and uncertainty."
        contents = predictor.form.contents(service.settings.max_inputs)
        document["paths"]["/v1/predict"]["post"] |= {
            "parameters": _parameters(predictor.policy),
            "requestBody": {"required": True, "content": contents},
        }
        if service.settings.token is not None:
            bearer = {"token": {"type": "http", "scheme": "bearer"}}
            document.setdefault("components", {})["securitySchemes"] = bearer
        return document


class _Handlers:
    """The handlers of the API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def predict(self, request: Request) -> Response:
        """Answer POST /v1/predict."""
        service = self._service
        service.check_open()
        predictor = service.predictor  # the same to the end, whatever is loaded meanwhile
        detail, level = _query(request, predictor.policy)
        service.open += 1
        try:
            inputs, field = await self._inputs(request, predictor)
            if detail and predictor.form.kind == "image" and inputs.size > _MOST_SHOWN:
                raise too_large("these are too many images to tell in detail", field)
            question = Question(inputs, level, detail)
            served = await service.ask(predictor, question, request.receive, field)
        finally:
            service.open -= 1
        record = request.scope[RECORD]
        record.inputs, record.batch = len(inputs), served.batch
        bundle = predictor.bundle
        answer = schemas.Answer(bundle.name, bundle.info.method, served.result)
        write = partial(schemas.ANSWER.dump_json, answer)
        is_long = detail or len(served.result) > _MOST_AT_ONCE
        return Response(await asyncio.to_thread(write) if is_long else write(), media_type=_JSON)

    async def _inputs(self, request: Request, predictor: Predictor) -> tuple[bodies.Inputs, str]:
        """The inputs of a request as the model takes them, and what it calls them."""
        content_type = request.headers.get("content-type", "")
        kind = content_type.partition(";")[0].strip().lower()
        encoding = request.headers.get("content-encoding", "identity").lower()
        if kind not in {_JSON, _FORM} or encoding != "identity":
            message = f"send {_JSON} or {_FORM}, not compressed"
            raise ProblemError(415, "unsupported_kind", message)
        service, form = self._service, predictor.form
        settings = service.settings
        body = await bodies.read_body(request.receive, predictor.max_bytes, settings.body_timeout)
        if kind == _JSON:
            bodies.check_size(body, form, settings.max_inputs)
            read = partial(bodies.inputs_of_json, body, form, settings)
            heavy = b"image" in body or b"\\" in body  # a key may be written with escapes
            return await service.decode(len(body), read, heavy=heavy)

        def read_form() -> tuple[bodies.Inputs, str]:
            files = bodies.files_of_form(body, content_type, settings.max_inputs)
            return bodies.decode_images(files, "file", form, settings), "file"

        return await service.decode(len(body), read_form, heavy=True)

    async def model(self) -> Response:
        """Answer GET /v1/model."""
        return Response(self._service.predictor.about, media_type=_JSON)

    async def reload(self) -> Response:
        """Answer POST /v1/reload."""
        if self._service.settings.token is None:
            message = "a server without a token is not told what to serve; send it SIGHUP"
            raise ProblemError(403, "forbidden", message)
        bundle = await self._service.reload()
        self._service.tell_workers()
        return _json(schemas.Reloaded(model=bundle.name, method=bundle.info.method))

    async def health(self) -> Response:
        """Answer GET /healthz."""
        if self._service.is_stopping:
            return _json(schemas.Stopping(status="stopping"), 503, {"Connection": "close"})
        return _json(schemas.Health(status="ok"))

    async def metrics(self) -> Response:
        """Answer GET /metrics."""
        return Response(self._service.metrics_text(), media_type=CONTENT_TYPE)


def _json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(model.model_dump_json(), status, headers, media_type=_JSON)


def _query(request: Request, policy: Policy | None) -> tuple[bool, float | None]:
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
    return detail == "true", None if text is None else _level(text, policy)


def _level(text: str, policy: Policy | None) -> float:
    where = "false_alarm"
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


async def _http_problem(_: Request, error: Exception) -> Response:
    """What the router raises, in the shape of every other error."""
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    code, message = {
        404: ("not_found", "there is nothing here"),
        405: ("wrong_method", "not by this method"),
    }.get(status, ("refused", "this cannot be answered"))
    return ProblemError(status, code, message, headers=headers).response()


async def _page_file(name: str) -> Response:
    """A file of the page by its name; 404 for any other. What is asked never becomes a path."""
    folder = resources.files("gemfi.serve") / "page"
    for file in folder.iterdir() if folder.is_dir() else ():
        kind = KINDS.get("." + file.name.rpartition(".")[2])
        if file.name == name and kind is not None:
            return Response(file.read_bytes(), media_type=kind)
    raise ProblemError(404, "not_found", "there is nothing here")


# -- OpenAPI ---------------------------------------------------------------------------------------

_ERRORS: Final = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "Another site asks, or this may not be asked here.",
    408: "The body came too slowly.",
    409: "The new model cannot be served; the old one is.",
    413: "The body or an image is too large, or there are too many inputs.",
    415: "The body is of a kind that is not read.",
    421: "The server is not called so.",
    422: "The body can be read, but the model cannot answer it.",
    429: "Too many inputs wait.",
    500: "The server failed.",
    503: "The server is stopping, or too many connections are open.",
    504: "There was no answer in time.",
}
_ALWAYS: Final = (403, 421, 500, 503)


def _routes(service: Service) -> Iterator[dict[str, Any]]:
    """The arguments of every route of the API, which describe it."""
    handlers = _Handlers(service)
    has_token = service.settings.token is not None
    text = {"schema": {"type": "string"}}
    stopping = "It is stopping, or too many connections are open."
    for path, method, handler, summary, description, good, errors in (
        ("/v1/predict", "POST", handlers.predict, "Ask the model",
         "Each input has its prediction, in order; requests that come together share a pass.",
         {"model": schemas.Answer, "description": "The predictions."},
         (400, 408, 413, 415, 422, 429, 504)),
        ("/v1/model", "GET", handlers.model, "What is served",
         "The classes, what an input is, how it decides, and the limits.",
         {"model": schemas.ModelAbout, "description": "What is served."}, ()),
        ("/v1/reload", "POST", handlers.reload, "Read the model's file anew",
         "Requests that were begun keep the old model. Of several workers, the others follow.",
         {"model": schemas.Reloaded, "description": "What is served now."}, (409,)),
        ("/healthz", "GET", handlers.health, "Whether the server answers",
         "For load balancers and probes.",
         {"model": schemas.Health, "description": "It does."}, ()),
        ("/metrics", "GET", handlers.metrics, "How it goes",
         "In the text format of Prometheus.",
         {"content": {CONTENT_TYPE: text}, "description": "Prometheus text."}, ()),
    ):  # fmt: skip
        guarded = has_token and path != "/healthz"
        codes = sorted((*errors, *_ALWAYS, *([401] if guarded else [])))
        responses: dict[int | str, Any] = {200: good, **{code: _error(code) for code in codes}}
        if path == "/healthz":
            either = schemas.Stopping | schemas.Error
            responses[503] = {"model": either, "description": stopping}
        yield {
            "path": path,
            "endpoint": handler,
            "methods": [method],
            "operation_id": path.rpartition("/")[2],
            "summary": summary,
            "description": description,
            "responses": responses,
            "openapi_extra": {"security": [{"token": []}]} if guarded else {},
            "include_in_schema": has_token or path != "/v1/reload",
        }


def _error(code: int) -> dict[str, Any]:
    described: dict[str, Any] = {"model": schemas.Error, "description": _ERRORS[code]}
    if code in {429, 504}:
        retry = {"description": "Seconds.", "schema": {"type": "integer"}}
        described["headers"] = {"Retry-After": retry}
    return described


def _parameters(policy: Policy | None) -> list[dict[str, Any]]:
    described = "Also tell the heads, the gate and what the model saw."
    schema: dict[str, Any] = {"type": "boolean", "default": False}
    parameters = [{"name": "detail", "in": "query", "description": described, "schema": schema}]
    if policy is not None:
        described = "Decide at this false-alarm rate in place of the policy's own."
        least = policy.reference.least_level
        schema = {"type": "number", "minimum": least, "exclusiveMaximum": 1}
        parameters.append(
            {"name": "false_alarm", "in": "query", "description": described, "schema": schema}
        )
    return parameters
