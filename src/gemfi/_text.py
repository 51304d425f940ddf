"""Text that is safe to print, whoever wrote it.

Class names, column names and notes come from files. Control characters in them could steer a
terminal: clear it, rename its window, or hide what stands before them. So do the marks that turn
the direction of writing around.
"""

from __future__ import annotations

import unicodedata


def printable(text: str, keep: str = "") -> str:
    r"""A text whose control and format characters are shown as escapes, such as `\u001b`.

    The escapes are those of JSON, so that a line of JSON stays one.

    Args:
        text: from anywhere.
        keep: characters to leave as they are, such as a line break in a text of several lines.
    """
    if text.isprintable():
        return text
    return "".join(each if _is_safe(each) or each in keep else _escape(each) for each in text)


def _is_safe(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # spaces of any width


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
