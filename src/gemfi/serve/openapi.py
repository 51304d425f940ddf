"""The OpenAPI description: every answer and error, and bodies as this very model takes them."""

from __future__ import annotations

from typing import Any

from gemfi.serve import schemas
from gemfi.serve.metrics import CONTENT_TYPE
from gemfi.serve.service import Service
from gemfi.serve.tables import row_schema

SCHEME = "token"
Documents = dict[int | str, dict[str, Any]]

_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_ERRORS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    408: "The body came too slowly.",
    413: "The body or an image is too large, or there are too many inputs.",
    415: "The body is of a kind that is not read.",
    422: "The body can be read, but the model cannot answer it.",
    429: "Too many inputs wait.",
    500: "The server failed.",
    503: "The server is stopping.",
    504: "There was no answer in time.",
}


def errors(service: Service, *codes: int) -> Documents:
    """What is said of some errors; 401 is added where there is a token, 500 everywhere."""
    shown = sorted({*codes, 500} | ({401} if service.settings.token is not None else set()))
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
        "responses": {
            **answers,
            **errors(service, 400, 408, 413, 415, 422, 429, 503, 504),
        },
        "openapi_extra": {
            "parameters": _parameters(service),
            "requestBody": {"required": True, "content": _contents(service)},
            **_security(service),
        },
    }


def model_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route GET /v1/model."""
    answers = {200: {"model": schemas.ModelAbout, "description": "What is served."}}
    return {
        "summary": "What is served",
        "responses": {**answers, **errors(service)},
        "openapi_extra": _security(service),
    }


def metrics_documents(service: Service) -> dict[str, Any]:
    """The arguments of the route GET /metrics."""
    text = {CONTENT_TYPE: {"schema": {"type": "string"}}}
    return {
        "summary": "How it goes, for Prometheus",
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
        "responses": {
            200: {"model": schemas.Health, "description": "It does."},
            500: {"model": schemas.Error, "description": _ERRORS[500]},
            503: {"model": schemas.Stopping, "description": "It is stopping."},
        },
    }


def add_scheme(document: dict[str, Any], service: Service) -> dict[str, Any]:
    """The description of a server with a token says how to give it."""
    if service.settings.token is not None:
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes[SCHEME] = {"type": "http", "scheme": "bearer"}
    return document


def _security(service: Service) -> dict[str, Any]:
    return {} if service.settings.token is None else {"security": [{SCHEME: []}]}


def _parameters(service: Service) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": "detail",
            "in": "query",
            "description": "Also tell the heads, the gate and what the model saw.",
            "schema": {"type": "boolean", "default": False},
        }
    ]
    if service.policy is not None:
        schema = {
            "type": "number",
            "minimum": service.policy.reference.least_level,
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


def _contents(service: Service) -> dict[str, Any]:
    sample, most = service.form.schema(), service.settings.max_inputs
    choices = [
        _only("inputs", {"type": "array", "items": sample, "minItems": 1, "maxItems": most}),
        _only("input", sample),
    ]
    if service.form.columns is not None:
        row = row_schema(service.form.columns, service.form.bounds())
        choices += [
            _only("inputs", {"type": "array", "items": row, "minItems": 1, "maxItems": most}),
            _only("input", row),
        ]
    if service.form.kind != "image":
        return {"application/json": {"schema": {"oneOf": choices}}}
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
        "application/json": {"schema": {"oneOf": choices}},
        "multipart/form-data": {"schema": form},
    }


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }
