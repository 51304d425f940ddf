"""A page that is one file: the document, its look, and the pieces of HTML that pages share.

Nothing is fetched: the policy in the head forbids the browser all but the pictures, the style and
the script that are inside the page.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping
from html import escape
from importlib import resources

from gemfi.errors import InputError
from gemfi_bench.style import METHOD_COLORS

_PNG = b"\x89PNG\r\n\x1a\n"


def document(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A whole document around `body`.

    Args:
        title: of the window, as text.
        body: as HTML.
        style: CSS after that of every page.
        script: JavaScript; it runs before the body is read, so that it can set the theme.
    """
    shared = resources.files("gemfi_bench").joinpath("page.css").read_text("utf-8")
    look = f"{shared}{_methods()}{style}"
    runs = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(look, script)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{look}</style>\n{runs}</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _policy(style: str, script: str) -> str:
    """Only these very texts may style and run, whatever else may have come into the page."""
    rules = ["default-src 'none'", "img-src data:", f"style-src {_hash(style)}"]
    rules += [f"script-src {_hash(script)}"] if script else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    if "</" in text or "\r" in text:  # it would end its element, or be read as another text
        raise InputError("a style or script inside a page must hold no '</' and no carriage return")
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _methods() -> str:
    """The colour of each method, for what carries its name in `data-method`."""
    rules = (
        f'[data-method="{name}"] {{ --method: {color}; }}' for name, color in METHOD_COLORS.items()
    )
    return "\n".join([*rules, ""])


def facts(values: Mapping[str, object]) -> str:
    """A list of names and values."""
    pairs = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="facts">{"".join(pairs)}</dl>'


def scrolling(label: str, content: str) -> str:
    """What may be wider than the page, in a box of its own that a keyboard can scroll too."""
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">\n'
        f"{content}\n</div>"
    )


def dot(method: str) -> str:
    """The colour of a method, before its name."""
    return f'<span class="dot" data-method="{escape(method)}"></span>'


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG file, in pixels."""
    if not png.startswith(_PNG) or len(png) < 24:
        raise InputError(f"expected the bytes of a PNG file, got {png[:8]!r}")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def image(png: bytes, *, alt: str) -> str:
    """A picture inside the page; `alt` is text."""
    width, height = size_of(png)
    return (
        f'<img src="{data_url("image/png", png)}" width="{width}" height="{height}" '
        f'alt="{escape(alt)}">'
    )


def data_url(media_type: str, data: bytes) -> str:
    """A file as an address that holds it."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def picture(name: str, png: bytes, *, alt: str, caption: str) -> str:
    """A figure with the picture inside the page; `caption` is HTML, `alt` is text."""
    return (
        f'<figure id="{escape(name)}">\n{scrolling(f"Figure: {name}", image(png, alt=alt))}\n'
        f"<figcaption>{caption}</figcaption>\n</figure>"
    )
