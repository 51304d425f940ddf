"""What the tests of downloads share."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemfi.data.registry.entries import RemoteFile
from gemfi_bench.data_sets.fetch import fetch_file

BODY = random.Random(0).randbytes(200_000)  # noqa: S311
OTHER = random.Random(1).randbytes(200_000)  # noqa: S311
HALF = 100_000
SHA = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
PATH = "set/images.gz"
DEADLINE = 60.0  # seconds after which a test that waits has failed


def remote_at(server: Any, **options: Any) -> RemoteFile:
    given = {"checksum": SHA, "size": len(BODY)} | options
    return RemoteFile(PATH, f"{server.url}/images.gz", **given)


fetch = fetch_file


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_only(folder: Path, *names: str) -> None:
    """There is nothing else in the folder, but the empty file that locks."""
    assert names_in(folder) == sorted([".images.gz.lock", *names])


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def interrupted(server: Any, root: Path, remote: RemoteFile, **options: Any) -> Any:
    """Half of BODY is here; the next attempt would get the rest."""
    served = server.offer("/images.gz", BODY, **options)
    part = root / f"{PATH}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[:HALF])
    return served
