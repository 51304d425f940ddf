"""What the tests of the server share: models, and clients of apps that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from starlette.testclient import TestClient

from gemfi.bundle import Bundle, make_bundle
from gemfi.serve.app import create_app
from gemfi.serve.settings import Settings
from support.served import Open, make_images, make_people, make_rows


@pytest.fixture(scope="session")
def rows() -> Bundle:
    return make_rows()


@pytest.fixture(scope="session")
def people() -> Bundle:
    return make_people()


@pytest.fixture(scope="session")
def images() -> Bundle:
    return make_images()


@pytest.fixture(scope="session")
def undecided(rows: Bundle) -> Bundle:
    """A bundle without policy and calibration data."""
    return make_bundle("undecided", rows.model)


@pytest.fixture
def open_client() -> Iterator[Open]:
    """Makes a client of an app of its own; `settings` are those of the server."""
    with ExitStack() as stack:

        def opened(bundle: Bundle, **settings: object) -> TestClient:
            app = create_app(bundle, Settings(**settings))  # type: ignore[arg-type]
            client = TestClient(app, "http://localhost", raise_server_exceptions=False)
            return stack.enter_context(client)

        yield opened


@pytest.fixture
def row_client(rows: Bundle, open_client: Open) -> TestClient:
    return open_client(rows)


@pytest.fixture
def image_client(images: Bundle, open_client: Open) -> TestClient:
    return open_client(images)
