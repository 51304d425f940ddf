"""The packages of other people that an export runs: whether they are there, and their chatter."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, Final

from gemfi._files import require_module

_LOGGERS: Final = ("", "torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def require(name: str) -> Any:
    """Import a package of the extra `onnx`, or say how to install it."""
    return require_module(name, "ONNX")


def require_all() -> None:
    """Say what is missing before the work, and not after it."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        require(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Without messages and advice; what matters is raised, and the result is checked."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [each.level for each in loggers]
    try:
        for each in loggers:
            each.setLevel(logging.ERROR)
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
