"""The app: routes, errors and layers put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gemfi._version import __version__
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.serve import openapi
from gemfi.serve.edge import Edge, problem_response
from gemfi.serve.pages import page_file
from gemfi.serve.problems import ProblemError
from gemfi.serve.routes import Routes
from gemfi.serve.service import ModelSource, Service
from gemfi.serve.settings import Settings

_CODES = {404: ("not_found", "there is nothing here"), 405: ("wrong_method", "not by this method")}


def create_app(
    bundle: Bundle,
    settings: Settings | None = None,
    policy: Policy | None = None,
    source: ModelSource | None = None,
) -> FastAPI:
    """The app that serves a bundle; `app.state.service` is what its routes share.

    Args:
        bundle: the model.
        settings: of the server; None for the defaults.
        policy: that decides; None for the bundle's own.
        source: where to read both anew when the server is told to reload; None if it cannot be.
    """
    service = Service(bundle, settings or Settings(), policy or bundle.policy, source)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.stop()

    app = _App(service, lifespan)
    add_routes(app, service)
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_middleware(Edge, gauges=service.gauges, gate=service.gate, settings=service.settings)
    return app


class _App(FastAPI):
    """FastAPI with our description and page of it: its own would need the network."""

    def __init__(self, service: Service, lifespan: Any) -> None:
        super().__init__(
            title="gemfi",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            lifespan=lifespan,
        )
        self.state.service = service

    def openapi(self) -> dict[str, Any]:
        """The description of the API."""
        return openapi.complete(super().openapi(), self.state.service)


def add_routes(app: FastAPI, service: Service) -> None:
    """Enter every route."""
    routes = Routes(service)
    for path, handler, method, documents in (
        ("/v1/predict", routes.predict, "POST", openapi.predict_documents(service)),
        ("/v1/model", routes.model, "GET", openapi.model_documents(service)),
        ("/v1/reload", routes.reload, "POST", openapi.reload_documents(service)),
        ("/healthz", routes.health, "GET", openapi.health_documents()),
        ("/metrics", routes.metrics, "GET", openapi.metrics_documents(service)),
    ):
        name = path.rpartition("/")[2]
        app.add_api_route(
            path,
            handler,
            methods=[method],
            operation_id=name,
            response_class=Response,
            **documents,
        )

    async def page() -> Response:
        return page_file("index.html")

    async def docs() -> Response:
        return page_file("docs.html")

    async def static(name: str) -> Response:
        return page_file(name)

    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.add_api_route("/docs", docs, methods=["GET"], include_in_schema=False)
    app.add_api_route("/static/{name}", static, methods=["GET"], include_in_schema=False)


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router raises, in the shape of every other error."""
    del request
    status, headers = getattr(error, "status_code", 500), getattr(error, "headers", None)
    code, message = _CODES.get(status, ("refused", "this cannot be answered"))
    return problem_response(ProblemError(status, code, message, headers=headers))
