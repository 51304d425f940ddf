"""What ran a run: versions, code and machine, without a name of the machine or of its user."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from gemfi._version import __version__


@dataclass(frozen=True)
class Environment:
    """The conditions of a session."""

    gemfi: str
    commit: str | None  # of the checkout that the package runs from; None for an installed one
    changed: bool | None  # whether the package's files differ from that commit
    python: str
    torch: str
    numpy: str
    platform: str  # such as `Linux x86_64`
    cpus: int
    threads: int  # that torch uses; sums depend on it
    date: str  # UTC, to the second


def environment() -> Environment:
    """The conditions of this process."""
    commit, changed = checkout(Path(__file__).resolve().parent)
    return Environment(
        gemfi=__version__,
        commit=commit,
        changed=changed,
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        platform=f"{platform.system()} {platform.machine()}",
        cpus=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def checkout(package: Path) -> tuple[str | None, bool | None]:
    """The commit of a package that is under git, and whether its files differ from it.

    (None, None) where git does not know the package: one that is installed below somebody's
    project must not be given the commit of the project.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    commit = _git(package, "rev-parse", "HEAD")
    if commit is None:
        return None, None  # nothing was committed yet
    return commit, _git(package, "status", "--porcelain", "--", ".") != ""


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails or is absent. Variables of a hook would mislead it."""
    git = shutil.which("git")
    if git is None:
        return None
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [git, *arguments], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
