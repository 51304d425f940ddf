"""The document that every page is: its policy, its pieces, what it refuses."""

from __future__ import annotations

import pytest

from gemfi.errors import InputError
from gemfi_bench import page
from gemfi_bench.style import METHOD_COLORS
from support.html import read
from support.reports import png


def test_a_page_without_a_script_allows_none() -> None:
    tree = read(page.document("a & b", "<main></main>"))
    assert tree.one("title").text == "a & b"
    policy = tree.one("meta", http_equiv="Content-Security-Policy")["content"]
    assert "script-src" not in policy
    assert "default-src 'none'" in policy


def test_a_style_that_would_end_its_element_is_refused() -> None:
    for given in ({"style": "</style>"}, {"script": "'</script>'"}, {"script": "a\r\nb"}):
        with pytest.raises(InputError, match="must hold no '</' and no carriage return"):
            page.document("t", "", **given)


def test_every_method_has_its_colour() -> None:
    style = read(page.document("t", "")).one("style").text
    for name, color in METHOD_COLORS.items():
        assert f'[data-method="{name}"] {{ --method: {color}; }}' in style


def test_the_size_of_a_picture() -> None:
    assert page.size_of(png(7, 3)) == (7, 3)
    for broken in (b"", png(7, 3)[:20], b"GIF89a" + b"\0" * 30):
        with pytest.raises(InputError, match="expected the bytes of a PNG file"):
            page.size_of(broken)


def test_texts_of_the_pieces_are_escaped() -> None:
    macros = page._environment().get_template("pieces.html").module
    pieces = [
        macros.facts({"<b>": "<b>"}),  # type: ignore[attr-defined]
        macros.scrolling('"<b>', ""),  # type: ignore[attr-defined]
        macros.dot('"<b>'),  # type: ignore[attr-defined]
        macros.picture('"<b>', png(2, 2), '"<b>', ""),  # type: ignore[attr-defined]
    ]
    for piece in pieces:
        assert read(str(piece)).all("b") == []
