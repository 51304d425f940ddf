"""Optional packages: imported when they are needed, with the extra that brings them."""

from __future__ import annotations

import importlib
from typing import Any, Final

from gemfi.errors import InputError

_PLACES: Final = {  # module -> its package, and the extra of gemfi that it is part of
    "PIL": ("pillow", "data"),
    "matplotlib": ("matplotlib", "plot"),
    "onnx": ("onnx", "onnx"),
    "onnxscript": ("onnxscript", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "fastapi": ("fastapi", "serve"),
    "uvicorn": ("uvicorn", "serve"),
    "python_multipart": ("python-multipart", "serve"),
}


def require_module(name: str, purpose: str) -> Any:
    """Import an optional dependency, or say how to install it.

    Args:
        name: of the module.
        purpose: what needs it, such as "reading images".
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        package, extra = _PLACES.get(root, (root, None))
        advice = package if extra is None else f"'.[{extra}]' in the clone of gemfi"
        raise InputError(f"{purpose} needs {package}: pip install {advice} ({error})") from error
