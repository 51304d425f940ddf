"""A page that is one file: the document, its look, and the pieces of HTML that pages share.

Nothing is fetched: the policy in the head forbids the browser all but the pictures, the style and
the script that are inside the page. Templates escape every text that is put into them.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from gemfi._files import require_module
from gemfi.errors import InputError
from gemfi_bench.style import METHOD_COLORS

if TYPE_CHECKING:
    from jinja2 import Environment

_PNG = b"\x89PNG\r\n\x1a\n"


@cache
def _environment() -> Environment:
    jinja = require_module("jinja2", "writing a report")
    environment: Environment = jinja.Environment(
        loader=jinja.PackageLoader("gemfi_bench"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja.StrictUndefined,
    )
    environment.globals |= {"size_of": size_of, "data_url": data_url}
    return environment


def fill(template: str, **values: object) -> str:
    """A file of `templates` with these values."""
    return _environment().get_template(template).render(values)


def asset(name: str) -> str:
    """A file of `templates` as it is."""
    return resources.files("gemfi_bench").joinpath("templates", name).read_text("utf-8")


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole document.

    Args:
        title: of the window, as text.
        body: as HTML.
        style: CSS after that of every page.
        script: JavaScript; it runs before the body is read, so that it can set the theme.
    """
    colors = "".join(
        f'[data-method="{name}"] {{ --method: {color}; }}\n'
        for name, color in METHOD_COLORS.items()
    )
    look = f"{asset('page.css')}{colors}{style}"
    return fill("document.html", title=title, body=body, style=look, script=script, hash_of=_hash)


def _hash(text: str) -> str:
    """The source that a content-security policy allows: this very text."""
    if "</" in text or "\r" in text:  # it would end its element, or be read as another text
        raise InputError("a style or script inside a page must hold no '</' and no carriage return")
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG file, in pixels."""
    if not png.startswith(_PNG) or len(png) < 24:
        raise InputError(f"expected the bytes of a PNG file, got {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def data_url(media_type: str, data: bytes) -> str:
    """A file as an address that holds it."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
