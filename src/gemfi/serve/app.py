"""The app: its routes, their description in OpenAPI, and the page."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from gemfi._version import __version__
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.errors import InputError
from gemfi.serve import bodies, schemas
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.middleware import LOGGED, RequestMiddleware
from gemfi.serve.schemas import ProblemError
from gemfi.serve.service import ModelSource, Predictor, Question, Service
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
_RETRY: Final = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}


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

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.stop()

    app = FastAPI(
        title="gemfi",
        version=__version__,
        docs_url=None,  # FastAPI's own page needs the network
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    always = _errors(403, 421, 500, 503)
    guarded: dict[str, Any] = {"responses": always}
    if service.settings.token is not None:  # which the middleware checks
        bearer = Depends(HTTPBearer(scheme_name="token", auto_error=False))
        guarded = {"responses": always | _errors(401), "dependencies": [bearer]}
    app.include_router(_GUARDED, **guarded)
    app.include_router(_OPEN, responses=always)
    for path, file in {"/": "index.html", "/docs": "docs.html", "/static/{name}": None}.items():
        page = partial(_page_file, file) if file else _page_file
        app.add_api_route(path, page, include_in_schema=False)
    app.openapi = partial(_openapi, service, app.openapi)  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_middleware(RequestMiddleware, service=service)
    return app


def _errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, as FastAPI describes them."""
    return {
        code: {"model": schemas.Error, "description": _ERRORS[code]}
        | ({"headers": _RETRY} if code in {429, 504} else {})
        for code in codes
    }


def _openapi(service: Service, describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The description of the API, with what the model takes that is served now."""
    document = copy.deepcopy(describe())
    predictor, policy = service.predictor, service.predictor.policy
    name = predictor.bundle.name
    document["info"]["description"] = f"{name}: labels, decisions and uncertainty."
    parameters: dict[str, tuple[dict[str, Any], str]] = {
        "detail": (
            {"type": "boolean", "default": False},
            "Also tell the heads, the gate and what the model saw.",
        )
    }
    if policy is not None:
        least = policy.reference.least_level
        parameters["false_alarm"] = (
            {"type": "number", "minimum": least, "exclusiveMaximum": 1},
            "Decide at this false-alarm rate in place of the policy's own.",
        )
    contents = predictor.form.contents(service.settings.max_inputs)
    document["paths"]["/v1/predict"]["post"] |= {
        "parameters": [
            {"name": name, "in": "query", "description": text, "schema": schema}
            for name, (schema, text) in parameters.items()
        ],
        "requestBody": {"required": True, "content": contents},
    }
    if service.settings.token is None:
        del document["paths"]["/v1/reload"]
    return document


# -- routes ----------------------------------------------------------------------------------------

_GUARDED: Final = APIRouter()
_OPEN: Final = APIRouter()


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]


@_GUARDED.post(
    "/v1/predict",
    summary="Ask the model",
    response_model=schemas.Answer,
    response_description="The predictions.",
    responses=_errors(400, 408, 413, 415, 422, 429, 504),
)
async def predict(request: Request, service: Shared) -> Response:
    """Each input has its prediction, in order; requests that come together share a pass."""
    predictor = service.predictor  # the same to the end, whatever is loaded meanwhile
    with service.opened():
        detail, level = _query(request, predictor.policy)
        inputs, field = await _inputs(request, service, predictor)
        if detail and predictor.form.kind == "image" and inputs.size > _MOST_SHOWN:
            message = "these are too many images to tell in detail"
            raise ProblemError(413, "too_large", message, field)
        question = Question(predictor, inputs, level, detail)
        served = await service.ask(question, request.receive, field)
    request.scope[LOGGED] = {"inputs": len(inputs), "batch": served.batch}
    bundle = predictor.bundle
    answer = schemas.Answer(bundle.name, bundle.info.method, served.result)
    write = partial(schemas.ANSWER.dump_json, answer)
    is_long = detail or len(served.result) > _MOST_AT_ONCE
    return Response(await asyncio.to_thread(write) if is_long else write(), media_type=_JSON)


@_GUARDED.get(
    "/v1/model",
    summary="What is served",
    response_model=schemas.ModelAbout,
    response_description="What is served.",
)
async def model(service: Shared) -> Response:
    """The classes, what an input is, how it decides, and the limits."""
    return Response(service.predictor.about, media_type=_JSON)


@_GUARDED.post(
    "/v1/reload",
    summary="Read the model's file anew",
    response_description="What is served now.",
    responses=_errors(409),
)
async def reload(service: Shared) -> schemas.Reloaded:
    """Requests that were begun keep the old model. Of several workers, the others follow."""
    if service.settings.token is None:
        message = "a server without a token is not told what to serve; send it SIGHUP"
        raise ProblemError(403, "forbidden", message)
    bundle = await service.reload()
    service.tell_workers()
    return schemas.Reloaded(model=bundle.name, method=bundle.info.method)


@_OPEN.get(
    "/healthz",
    summary="Whether the server answers",
    response_description="It does.",
    responses={503: {"model": schemas.Health | schemas.Error, "description": _ERRORS[503]}},
)
async def healthz(service: Shared, response: Response) -> schemas.Health:
    """For load balancers and probes."""
    if not service.is_stopping:
        return schemas.Health(status="ok")
    response.status_code, response.headers["Connection"] = 503, "close"
    return schemas.Health(status="stopping")


@_GUARDED.get(
    "/metrics",
    summary="How it goes",
    response_class=Response,
    response_description="Prometheus text.",
    responses={200: {"content": {CONTENT_TYPE: {"schema": {"type": "string"}}}}},
)
async def metrics(service: Shared) -> Response:
    """In the text format of Prometheus."""
    return Response(service.metrics_text(), media_type=CONTENT_TYPE)


async def _inputs(
    request: Request, service: Service, predictor: Predictor
) -> tuple[bodies.Inputs, str]:
    """The inputs of a request as the model takes them, and what it calls them."""
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    encoding = request.headers.get("content-encoding", "identity").lower()
    if kind not in {_JSON, bodies.FORM} or encoding != "identity":
        message = f"send {_JSON} or {bodies.FORM}, not compressed"
        raise ProblemError(415, "unsupported_kind", message)
    form, settings = predictor.form, service.settings
    body = await bodies.read_body(request.stream(), predictor.max_bytes, settings.body_timeout)
    if kind == _JSON:
        bodies.check_size(body, form, settings.max_inputs)
        read = partial(bodies.inputs_of_json, body, form, settings)
        heavy = b"image" in body or b"\\" in body  # a key may be written with escapes
        return await service.decode(len(body), read, heavy=heavy)
    read = partial(bodies.inputs_of_form, body, content_type, form, settings)
    return await service.decode(len(body), read, heavy=True)


def _query(request: Request, policy: Policy | None) -> tuple[bool, float | None]:
    """Whether details are asked for, and the false-alarm rate that is."""
    refused = partial(ProblemError, 422, "bad_parameter")
    given = dict(request.query_params)
    is_repeated = len(given) < len(request.query_params.multi_items())
    detail, rate = given.pop("detail", "false"), given.pop("false_alarm", None)
    if given or is_repeated:
        raise refused("the parameters are detail and false_alarm, each once")
    if detail not in {"true", "false"}:
        raise refused("detail must be true or false", "detail")
    if rate is None:
        return detail == "true", None
    if policy is None:
        raise refused("this model has no policy to choose a rate for", "false_alarm")
    level = float(rate) if _NUMBER.fullmatch(rate) else 0.0
    if not 0 < level < 1:
        raise refused("false_alarm must be a number above 0, below 1", "false_alarm")
    try:
        policy.reference.require_level(level, policy.class_names)
    except InputError as error:
        raise refused(str(error), "false_alarm") from None
    return detail == "true", level


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
    raise HTTPException(404)
