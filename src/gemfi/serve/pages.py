"""The page: files of the package, served as they are."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from starlette.responses import Response

from gemfi.serve.problems import ProblemError

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


def page_file(name: str) -> Response:
    """A file of the page by its name; 404 for any other."""
    folder = resources.files("gemfi.serve") / "page"
    found = _files(folder).get(name)
    if found is None:
        raise ProblemError(404, "not_found", "there is nothing here")
    return Response(found.read_bytes(), media_type=KINDS[_ending(name)])


def _files(folder: Traversable) -> dict[str, Traversable]:
    """The files that may be served; what a request says never becomes a path."""
    if not folder.is_dir():
        return {}
    return {each.name: each for each in folder.iterdir() if _ending(each.name) in KINDS}


def _ending(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""
