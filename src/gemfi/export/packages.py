"""The optional packages of an export, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from gemfi.errors import InputError


def require(name: str) -> Any:
    """Import a package of the extra `onnx`, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InputError(f"ONNX needs {package}: pip install 'gemfi[onnx]' ({error})") from error


def require_onnx() -> Any:
    """The package `onnx`, with onnxscript, which writes the graph."""
    require("onnxscript")
    return require("onnx")


def require_all() -> None:
    """Say what is missing before the work, and not after it."""
    require_onnx()
    require("onnxruntime")
