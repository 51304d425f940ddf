"""What the tests of `gemfi data` share."""

from __future__ import annotations

import gzip
import importlib
import struct
from pathlib import Path

import numpy as np
import pytest

from gemfi.cli import main

COMMANDS = importlib.import_module("gemfi_bench.data_sets.command")
LOAD = importlib.import_module("gemfi.data.registry.load")
NAMES = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

Capture = pytest.CaptureFixture[str]


def idx(folder: Path, count: int = 6) -> None:
    """The test images of MNIST or a relative, few."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
    for name, array in zip(NAMES, (images, np.arange(count, dtype=np.uint8) % 10), strict=True):
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes(), mtime=0))


def ran(capsys: Capture, *arguments: str) -> str:
    assert main(["data", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: Capture, *arguments: str, code: int = 2) -> str:
    """The one line on standard error."""
    assert main(["data", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gemfi: error: ")
    return line


def left(folder: Path) -> list[str]:
    """The files in a folder; the empty lock files, which stay by design, are not counted."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(f.relative_to(folder).as_posix() for f in files if f.suffix != ".lock")
