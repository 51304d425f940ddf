"""A cache of decoded pictures: what is slow to read is read once.

There is one safetensors file a form, below `.gemfi/decoded` in the data folder. Its name holds a
digest of what was decoded (paths, sizes, times of change) and how, so that a replaced file is read
anew. Its header holds a digest of the pixels, so that a damaged file is found. Several processes
may decode the same file at once: each writes a file of its own, and moves it to its place when it
is whole.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gemfi._files import write_atomically
from gemfi.data.readers import Pictures
from gemfi.data.registry.entries import Form
from gemfi.errors import InputError

_VERSION: Final = 2
"""Raise it when a reader gives other pixels for the same file, or the cache file has other keys."""

# The last three where a damaged header names a type that numpy lacks.
_UNREADABLE: Final = (SafetensorError, OSError, ValueError, TypeError, AttributeError)

FOLDER: Final = Path(".gemfi") / "decoded"


def read_cached(form: Form, name: str, root: Path) -> Pictures:
    """The pictures of a form that is here: from the cache, or decoded and put there.

    A data folder that may not be written to is read without a cache. The cache file is called
    `name` and its key.
    """
    file = root / FOLDER / f"{name}-{_key(form, root)}.safetensors"
    stored = _load(file)
    if stored is not None:
        return stored
    pictures = form.read(*form.paths(root))
    folder = next(parent for parent in file.parents if parent.exists())
    if os.access(folder, os.W_OK):
        _store(file, pictures)
        for old in file.parent.glob(f"{name}-{'[0-9a-f]' * 16}.*"):
            if old != file:  # of an older state of the same files, or left half written
                old.unlink(missing_ok=True)
    return pictures


def _key(form: Form, root: Path) -> str:
    how = f"{_VERSION}:{form.label}"
    digest = hashlib.blake2b(how.encode(), digest_size=8)
    for path in form.paths(root):
        for file in (path, *sorted(path.rglob("*"))):  # of a folder, everything below it
            state = file.stat()
            size = 0 if file.is_dir() else state.st_size
            digest.update(f"{file.relative_to(root)}:{size}:{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _store(file: Path, pictures: Pictures) -> None:
    given = {"images": pictures.images, "labels": pictures.labels}
    arrays = {key: np.ascontiguousarray(a) for key, a in given.items() if a is not None}
    header = {}
    if pictures.class_names is not None:
        header["class_names"] = "\n".join(pictures.class_names)
    header["digest"] = _digest(arrays, header.get("class_names"))
    mine = file.with_name(f"{file.stem}.{os.getpid()}-{threading.get_ident()}")
    with suppress(FileNotFoundError):  # another process has stored the same, and then tidied up
        write_atomically(mine, save(arrays, metadata=header))
        mine.replace(file)


def _digest(arrays: Mapping[str, npt.NDArray[Any]], names: str | None) -> str:
    digest = hashlib.blake2b(repr(names).encode(), digest_size=16)
    for key, array in sorted(arrays.items()):
        digest.update(f"\n{key}:{array.dtype.str}:{array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _load(file: Path) -> Pictures | None:
    """What is in a cache file; None where there is none."""
    try:
        with safe_open(file, framework="np") as stored:
            header = stored.metadata() or {}
            arrays = {key: np.array(stored.get_tensor(key)) for key in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        raise InputError(f"cannot read the cache {file}: {error}; delete it") from error
    names = header.get("class_names")
    if "images" not in arrays or header.get("digest") != _digest(arrays, names):
        raise InputError(f"the cache {file} is damaged: it is not what was stored; delete it")
    class_names = None if names is None else tuple(names.split("\n"))
    return Pictures(arrays["images"], arrays.get("labels"), class_names)
