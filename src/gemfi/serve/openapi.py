"""The OpenAPI description: every answer and error, and bodies as this very model takes them."""

from __future__ import annotations

import copy
import math
from typing import Any, Final

from gemfi.serve import schemas
from gemfi.serve.loaded import Loaded
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.service import Service
from gemfi.serve.tables import row_schema

_MOST_NUMBERS: Final = 64  # of an example
_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGM4AQAAygDJmcpdfgAAAABJRU5ErkJggg=="
)
SCHEME = "token"
Documents = dict[int | str, dict[str, Any]]

_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_ERRORS = {
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


def errors(service: Service, *codes: int) -> Documents:
    """What is said of some errors, of 401 where there is a token, and of those of every request."""
    shown = sorted({*codes, *_ALWAYS} | ({401} if service.settings.token is not None else set()))
    found: Documents = {
        code: {"model": schemas.Error, "description": _ERRORS[code]} for code in shown
    }
    for code in found.keys() & {429, 504}:
        found[code]["headers"] = _RETRY
    return found


def predict_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route POST /v1/predict."""
    answers = {200: {"model": schemas.Answer, "description": "The predictions."}}
    return {
        "summary": "Ask the model",
        "description": "Each input has its prediction, in order. Requests that come together share "
        "a pass of the model.",
        "responses": {
            **answers,
            **errors(service, 400, 408, 413, 415, 422, 429, 504),
        },
        "openapi_extra": _security(service),
    }


def model_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route GET /v1/model."""
    answers = {200: {"model": schemas.ModelAbout, "description": "What is served."}}
    return {
        "summary": "What is served",
        "description": "The classes, what an input is, how it decides, and the limits.",
        "responses": {**answers, **errors(service)},
        "openapi_extra": _security(service),
    }


def reload_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route POST /v1/reload."""
    answers = {200: {"model": schemas.Reloaded, "description": "What is served now."}}
    return {
        "summary": "Read the model's file anew",
        "description": "Requests that were begun keep the old model. Of several workers, the "
        "others follow.",
        "responses": {**answers, **errors(service, 409)},
        "openapi_extra": _security(service),
        "include_in_schema": service.settings.token is not None,
    }


def metrics_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route GET /metrics."""
    text = {CONTENT_TYPE: {"schema": {"type": "string"}}}
    return {
        "summary": "How it goes",
        "description": "In the text format of Prometheus.",
        "responses": {
            200: {"description": "Prometheus text.", "content": text},
            **errors(service),
        },
        "openapi_extra": _security(service),
    }


def health_documents() -> dict[str, Any]:
    """The arguments of the route GET /healthz."""
    return {
        "summary": "Whether the server answers",
        "description": "For load balancers and probes.",
        "responses": {
            200: {"model": schemas.Health, "description": "It does."},
            **{
                code: {"model": schemas.Error, "description": _ERRORS[code]}
                for code in _ALWAYS
                if code != 503
            },
            503: {
                "model": schemas.Stopping | schemas.Error,
                "description": "It is stopping, or too many connections are open.",
            },
        },
    }


def complete(document: dict[str, Any], service: Service) -> dict[str, Any]:
    """The description with what the model takes that is served now, and with the token."""
    document, loaded = copy.deepcopy(document), service.loaded
    name = loaded.bundle.name
    document["info"]["description"] = f"{name}: labels, decisions and uncertainty."
    document["paths"]["/v1/predict"]["post"] |= {
        "parameters": _parameters(loaded),
        "requestBody": {
            "required": True,
            "content": _contents(loaded, service.settings.max_inputs),
        },
    }
    if service.settings.token is not None:
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes[SCHEME] = {"type": "http", "scheme": "bearer"}
    return document


def _security(service: Service) -> dict[str, Any]:
    return {} if service.settings.token is None else {"security": [{SCHEME: []}]}


def _parameters(loaded: Loaded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": "detail",
            "in": "query",
            "description": "Also tell the heads, the gate and what the model saw.",
            "schema": {"type": "boolean", "default": False},
        }
    ]
    if loaded.policy is not None:
        schema = {
            "type": "number",
            "minimum": loaded.policy.reference.least_level,
            "exclusiveMaximum": 1,
        }
        found.append(
            {
                "name": "false_alarm",
                "in": "query",
                "description": "Decide at this false-alarm rate in place of the policy's own.",
                "schema": schema,
            }
        )
    return found


def _contents(loaded: Loaded, most: int) -> dict[str, Any]:
    sample = loaded.form.schema()
    choices = [
        _only("inputs", {"type": "array", "items": sample, "minItems": 1, "maxItems": most}),
        _only("input", sample),
    ]
    if loaded.form.columns is not None:
        row = row_schema(loaded.form.columns, loaded.form.bounds())
        choices += [
            _only("inputs", {"type": "array", "items": row, "minItems": 1, "maxItems": most}),
            _only("input", row),
        ]
    examples = _examples(loaded)
    if loaded.form.kind != "image":
        return {"application/json": {"schema": {"oneOf": choices}, **examples}}
    text = {
        "type": "string",
        "description": "Base64 of a PNG, JPEG, BMP or WEBP file, or a data: URL of it.",
    }
    choices += [
        _only("images", {"type": "array", "items": text, "minItems": 1, "maxItems": most}),
        _only("image", text),
    ]
    file = {"type": "string", "format": "binary"}
    form = _only("file", {"type": "array", "items": file, "minItems": 1, "maxItems": most})
    return {
        "application/json": {"schema": {"oneOf": choices}, **examples},
        "multipart/form-data": {"schema": form},
    }


def _examples(loaded: Loaded) -> dict[str, Any]:
    """Bodies to copy: an image, or numbers if they are few."""
    found: dict[str, Any] = {}
    form = loaded.form
    if form.kind == "image":
        found["image"] = {"summary": "A file (of one pixel)", "value": {"image": _PIXEL}}
    shape = form.shape if form.tokens is None else (3,)
    if math.prod(shape) <= _MOST_NUMBERS:
        one: Any = 1
        for length in reversed(shape):
            one = [one] * length
        found["one"] = {"summary": "One input", "value": {"input": one}}
        found["two"] = {"summary": "Two inputs", "value": {"inputs": [one, one]}}
    return {"examples": found} if found else {}


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }
