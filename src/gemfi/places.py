"""Where files live: data sets in a cache folder, runs in a data folder, both outside a checkout.

`GEMFI_DATA` and `GEMFI_RUNS` name them; otherwise they are where the platform wants them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gemfi.errors import InputError

DATA_VARIABLE = "GEMFI_DATA"
RUNS_VARIABLE = "GEMFI_RUNS"


def data_root() -> Path:
    """The folder of the data sets; it may not exist yet."""
    return _named(DATA_VARIABLE) or _platform("XDG_CACHE_HOME", ".cache", "Caches") / "data"


def runs_root() -> Path:
    """The folder of the runs; it may not exist yet."""
    named = _named(RUNS_VARIABLE)
    return named or _platform("XDG_DATA_HOME", ".local/share", "Application Support") / "runs"


def _named(variable: str) -> Path | None:
    value = os.environ.get(variable)
    if not value:
        return None
    path = Path(value).expanduser()
    found = next((each for each in (path, *path.parents) if os.path.exists(each)), None)  # noqa: PTH110
    if found is not None and not found.is_dir():
        what = "which is a file" if found == path else f"but {found} is a file"
        raise InputError(f"{variable} is {path}, {what}; name a folder")
    return path


def _platform(xdg: str, unix: str, library: str) -> Path:
    """The folder of gemfi by the customs of Linux (XDG), macOS (`~/Library`) and Windows."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "gemfi"
    if sys.platform == "darwin":
        return Path.home() / "Library" / library / "gemfi"
    value = os.environ.get(xdg, "")
    # the XDG specification: a relative path is to be ignored
    return (Path(value) if Path(value).is_absolute() else Path.home() / unix) / "gemfi"
