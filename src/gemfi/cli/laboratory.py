"""The laboratory, `gemfi_bench`, which is loaded when a command asks for it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def laboratory(module: str) -> Any:
    """A module of `gemfi_bench` by its name.

    Args:
        module: such as `recipes`.
    """
    return import_module(f"gemfi_bench.{module}")
