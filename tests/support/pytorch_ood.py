"""Modules of pytorch-ood without what its packages import beside them, torchvision among it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def empty_parents(*packages: str) -> Iterator[None]:
    """Empty parents in place of `pytorch_ood` and some packages in it; all are gone afterwards.

    Args:
        packages: such as `detector`.
    """
    spec = importlib.util.find_spec("pytorch_ood")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (root,) = spec.submodule_search_locations
    before = set(sys.modules)
    for name in ("", *packages):
        parent = ModuleType(f"pytorch_ood.{name}".rstrip("."))
        parent.__path__ = [f"{root}/{name}".rstrip("/")]
        sys.modules[parent.__name__] = parent
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.startswith("pytorch_ood"):
                del sys.modules[name]
