"""The environment of a run: enough to repeat it, nothing that names a machine or a person."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import torch

import gemfi
from gemfi._config import to_plain
from gemfi._environment import checkout, environment


def git(folder: Path, *arguments: str) -> None:
    program = shutil.which("git")
    assert program
    quiet = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    names = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run([program, *names, *arguments], cwd=folder, env=quiet, check=True)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A checkout with a committed package."""
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("one = 1\n")
    (tmp_path / "notes.txt").write_text("mine\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "-qm", "first")
    return folder


def test_it_says_what_ran() -> None:
    found = environment()
    assert found.gemfi == gemfi.__version__
    assert found.torch == torch.__version__
    assert found.threads == torch.get_num_threads()
    assert found.date.endswith("+00:00")


def test_it_names_no_machine_user_or_folder() -> None:
    text = json.dumps(to_plain(environment()))
    # a short name such as "vm" or "root" may be part of a word
    for name in (socket.gethostname(), getpass.getuser()):
        assert f'"{name}"' not in text
    assert "/" not in text
    assert str(Path.home()) not in text


def test_a_clean_checkout_has_its_commit(package: Path) -> None:
    commit, changed = checkout(package)
    assert commit is not None
    assert len(commit) == 40
    assert changed is False


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_changed_or_new_file_shows(package: Path, name: str) -> None:
    (package / name).write_text("two = 2\n")
    assert checkout(package)[1] is True


def test_a_package_below_somebody_elses_checkout_has_no_commit(package: Path) -> None:
    installed = package.parent.parent / "venv" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert checkout(installed) == (None, None)


def test_outside_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkout(tmp_path) == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checkout(Path(gemfi.__file__).parent) == (None, None)


def test_the_variables_of_a_hook_do_not_mislead(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("elsewhere")))
    assert checkout(package)[1] is False
