"""The project's own promises: set-up, CI, pins, versions, sizes, and no trace of any machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import gemfi

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SKIPS_ALLOWED = "skips-allowed.txt"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def run(
    *command: str | Path, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command as if from a plain shell: not inside this make, this pytest or this CI."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"CI", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "PYTHON", "ARGS"}
        and not name.startswith(("PYTEST_", "GIT_"))
    }
    program = shutil.which(command[0])
    assert program, f"{command[0]} is not installed"
    return subprocess.run(
        [program, *command[1:]],
        cwd=cwd,
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# --- no trace of any machine -----------------------------------------------------------------

FOLDERS = ("work", "root", "farm", "home", "opt", "mnt", "Users")
MACHINE_PATH = re.compile(rf"(?<![\w.~$}}*-])/(?:{'|'.join(FOLDERS)})/")
REGISTRIES = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("npmjs", "org"),
    ("npmjs", "com"),
    ("debian", "org"),
    ("download", "pytorch", "org"),
    ("anaconda", "org"),
)
REGISTRY_HOST = re.compile(
    r"\b(?:" + "|".join(re.escape(".".join(parts)) for parts in REGISTRIES) + r")\b"
)


def traces(text: str) -> list[str]:
    """The lines of a text that name a folder of some machine, or a package registry's host."""
    return [
        f"line {number}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), start=1)
        if MACHINE_PATH.search(line) or REGISTRY_HOST.search(line)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_machine_path_is_seen(folder: str) -> None:
    path = "/".join(("", folder, "someone", "data"))
    assert traces(path)
    assert traces(f'open("{path}")')
    assert traces(f"file://{path}")
    assert not traces(f"docs{path} .{path} ~{path} https://example.com{path} ${{HOME}}{path}")


@pytest.mark.parametrize("parts", REGISTRIES)
def test_a_registry_host_is_seen(parts: tuple[str, ...]) -> None:
    host = ".".join(parts)
    assert traces(f"see https://{host}/x")
    assert traces(f"mirror.{host}")
    assert not traces("-".join(parts))


def test_no_file_names_a_machine_or_a_registry() -> None:
    """Tracked files, and those that the next commit would add."""
    listing = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listing.returncode:
        pytest.skip("not a git checkout")
    found = {}
    for name in filter(None, listing.stdout.split("\0")):
        try:
            text = read(name)
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # a picture, a file that was removed, a nested checkout
        if lines := traces(text):
            found[name] = lines
    assert not found


def test_nobody_is_told_to_install_gemfi_from_an_index() -> None:
    """It is on none: `pip install .` in the clone is the way."""
    by_name = re.compile(r"pip install\s+(?:-\S+\s+)*['\"]?gemfi\b")
    assert by_name.search("pip install -U 'gemfi[plot]'")
    assert not by_name.search("pip install '.[plot]' in the clone of gemfi")
    files = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "examples").glob("*.py"),
        *(ROOT / "src").rglob("*.py"),
    ]
    assert [file.name for file in files if by_name.search(file.read_text(encoding="utf-8"))] == []


# --- one version, one range, pins that hold --------------------------------------------------


def test_citation_has_the_version() -> None:
    assert re.findall(r"(?m)^version: (.+)$", read("CITATION.cff")) == [gemfi.__version__]


def test_changelog_begins_with_the_version() -> None:
    versions = re.findall(r"(?m)^## \[(\d[^\]]*)\]", read("CHANGELOG.md"))
    assert versions[0] == gemfi.__version__


def test_makefile_and_pyproject_support_the_same_pythons() -> None:
    bounds = dict(re.findall(r"(?m)^PYTHON_(MIN|MAX) := 3\.(\d+)$", read("Makefile")))
    low, high = int(bounds["MIN"]), int(bounds["MAX"])
    supported = SpecifierSet(PYPROJECT["project"]["requires-python"])
    assert [n for n in range(100) if supported.contains(f"3.{n}.5")] == list(range(low, high + 1))
    classifiers = PYPROJECT["project"]["classifiers"]
    for minor in range(low, high + 1):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers


def pins() -> dict[str, str]:
    lines = (line for line in read("constraints.txt").splitlines() if line and line[0] != "#")
    pairs = (line.split("==") for line in lines)
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_dependency_of_a_checkout_is_pinned_within_its_range() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [
        *PYPROJECT["build-system"]["requires"],
        *PYPROJECT["project"]["dependencies"],
        *extras["dev"],
    ]
    pinned, seen = pins(), set()
    while wanted:
        requirement = Requirement(wanted.pop())
        name = canonicalize_name(requirement.name)
        if name == "gemfi":  # `gemfi[plot]` inside dev
            wanted += [line for extra in requirement.extras for line in extras[extra]]
            continue
        assert name in pinned, f"{name} is not in constraints.txt"
        assert requirement.specifier.contains(pinned[name]), f"{requirement} against {pinned[name]}"
        seen.add(name)
    assert {"torch", "matplotlib", "pytest", "hatchling"} <= seen


def test_torch_is_pinned_without_a_local_version() -> None:
    assert pins()["torch"] == "2.13.0"


# --- sizes -----------------------------------------------------------------------------------


# --- CI runs what the README says ------------------------------------------------------------


def test_ci_runs_the_readmes_test_command_and_the_rest() -> None:
    blocks = re.findall(r"(?ms)^```[^\n]*\n(.*?)^```", read("README.md"))
    commands = {
        line.split("#")[0].removeprefix("$ ").strip()
        for block in blocks
        for line in block.splitlines()
    }
    assert {"make demo", "make test"} <= commands
    script = [line for line in read(".ci/run").splitlines() if line.startswith("make ")]
    assert script == ["make install", "make test", "make lint", "make types", "make test-slow"]


# --- make: set-up from nothing, with a Python that only pretends ------------------------------

STAND_IN = """#!/bin/sh
# Answers the version check as Python {version}; `-m venv` makes an environment whose pip {pip}.
case "$1" in
-c) exec "{python}" -c 'import sys; sys.version_info = {version}; exec(sys.argv[1])' "$2" ;;
-m) mkdir -p .venv/bin && printf '%s\\n' '#!/bin/sh' 'echo "$*" >>log; {pip}' >.venv/bin/python &&
    chmod +x .venv/bin/python ;;
esac
"""


def checkout(folder: Path, version: tuple[int, int] = (3, 11), pip: str = "exit 0") -> Path:
    """A folder in which `make install` can run; returns its stand-in for Python."""
    (folder / "tests").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "tests/parity.txt"):
        shutil.copy(ROOT / name, folder / name)
    stand_in = folder / "python"
    stand_in.write_text(STAND_IN.format(version=version, pip=pip, python=sys.executable))
    stand_in.chmod(0o755)
    return stand_in


def installs(folder: Path) -> int:
    """How many times the package was installed."""
    log = folder / "log"
    return log.read_text().count("-e .[dev]") if log.exists() else 0


def test_make_installs_once_and_again_when_the_pins_change(tmp_path: Path) -> None:
    python = f"PYTHON={checkout(tmp_path)}"
    assert run("make", "install", python, cwd=tmp_path).returncode == 0
    assert (tmp_path / ".venv" / ".installed").exists()
    assert installs(tmp_path) == 1
    assert run("make", "test", "lint", "types", python, cwd=tmp_path).returncode == 0
    assert installs(tmp_path) == 1
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(tmp_path / "constraints.txt", (later, later))
    assert run("make", "install", python, cwd=tmp_path).returncode == 0
    assert installs(tmp_path) == 2


def test_make_leaves_no_stamp_when_the_install_is_cut_off(tmp_path: Path) -> None:
    python = f"PYTHON={checkout(tmp_path, pip='kill -KILL $$')}"
    for times in (1, 2):
        result = run("make", "install", python, cwd=tmp_path)
        assert result.returncode != 0
        assert not (tmp_path / ".venv" / ".installed").exists()
        assert installs(tmp_path) == times


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_make_refuses_a_python_that_is_not_supported(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    result = run("make", "test", f"PYTHON={checkout(tmp_path, version)}", cwd=tmp_path)
    errors = [line for line in result.stderr.splitlines() if not line.startswith("make")]
    assert result.returncode != 0
    assert len(errors) == 1
    assert "gemfi needs Python 3.11 to 3.13" in errors[0]
    assert f"is {version[0]}.{version[1]}" in errors[0]
    assert not (tmp_path / ".venv").exists()


def test_make_says_that_python_is_missing(tmp_path: Path) -> None:
    checkout(tmp_path)
    result = run("make", "test", "PYTHON=no-such-python", cwd=tmp_path)
    assert result.returncode != 0
    assert "no-such-python was not found" in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_alone_lists_the_targets() -> None:
    listed = re.findall(r"(?m)^make ([a-z-]+) +\S", run("make").stdout)
    assert {"demo", "test", "test-slow", "lint", "format", "types", "clean"} <= set(listed)


# --- a skipped test fails CI -----------------------------------------------------------------

SAMPLE = """
import pytest

def test_passes():
    pass

def test_skips():
    pytest.skip("no such luck")

@pytest.mark.xfail(strict=True)
def test_fails_as_expected():
    raise AssertionError

@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.skipif(True, reason="by a marker")
def test_marked(n):
    pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A small suite under our conftest: a test that passes, some that skip, a skipped module."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    # Importing torch takes seconds and plays no part here: each attribute is a call without effect.
    (tmp_path / "torch.py").write_text("def __getattr__(name):\n    return lambda *_: None\n")
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    (tests / SKIPS_ALLOWED).write_text("# nothing\n")
    (tests / "test_some.py").write_text(SAMPLE)
    (tests / "test_module.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    return tmp_path


def pytest_in(folder: Path, *options: str, ci: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "pytest", *options, cwd=folder, CI=ci)


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_skip_fails_ci_and_is_named(suite: Path, options: tuple[str, ...]) -> None:
    result = pytest_in(suite, *options, ci="true")
    assert result.returncode == 1, result.stdout
    summary = result.stdout.split("skipped in CI, which fails the run")[1]
    assert "tests/test_some.py::test_skips: no such luck" in summary
    assert "tests/test_some.py::test_marked[1]: by a marker" in summary
    assert "tests/test_module.py: could not import 'no_such_module'" in summary
    assert "test_fails_as_expected" not in summary


def test_a_skipped_module_alone_fails_ci(suite: Path) -> None:
    result = pytest_in(suite, "tests/test_module.py", ci="1")
    assert result.returncode == 1, result.stdout


def test_a_skip_passes_elsewhere(suite: Path) -> None:
    result = pytest_in(suite, ci="false")
    assert result.returncode == 0, result.stdout
    assert "fails the run" not in result.stdout


def test_a_listed_skip_passes_ci(suite: Path) -> None:
    (suite / "tests" / SKIPS_ALLOWED).write_text(
        "# why\ntests/test_some.py::test_skips\n\ntests/test_some.py::test_marked\n"
        "tests/test_module.py\n"
    )
    result = pytest_in(suite, ci="true")
    assert result.returncode == 0, result.stdout


@pytest.fixture
def conftest(pytestconfig: pytest.Config) -> ModuleType:
    """Our conftest as pytest loaded it."""
    path = str(ROOT / "tests" / "conftest.py")
    plugins = pytestconfig.pluginmanager.get_plugins()
    return next(p for p in plugins if isinstance(p, ModuleType) and p.__file__ == path)


def test_an_entry_matches_whole_names(conftest: ModuleType) -> None:
    gate = conftest.SkipGate(["tests/test_a.py::test_b", "tests/bench/"])
    assert gate.is_allowed("tests/test_a.py::test_b")
    assert gate.is_allowed("tests/test_a.py::test_b[1]")
    assert gate.is_allowed("tests/bench/test_c.py::test_d")
    assert not gate.is_allowed("tests/test_a.py::test_bc")
    assert not gate.is_allowed("tests/test_a.py")
    assert not gate.is_allowed("tests/bench_other.py")


def test_the_allow_list_is_short_and_names_what_exists(conftest: ModuleType) -> None:
    entries = conftest.read_skips_allowed(ROOT / "tests" / SKIPS_ALLOWED)
    assert len(entries) <= 11
    assert [entry for entry in entries if not (ROOT / entry.split("::")[0]).exists()] == []


# --- optional dependencies ---------------------------------------------------------------------


def test_the_package_and_its_commands_import_without_the_extras() -> None:
    code = (
        "import sys\n"
        "for name in ('PIL', 'matplotlib', 'pyarrow'): sys.modules[name] = None\n"
        "import gemfi, gemfi.cli\n"
        "print(sorted(name for name in ('scipy', 'sklearn') if name in sys.modules))"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"  # both take long to import, and few commands need them


def test_the_front_door_has_few_names_and_leaks_no_module() -> None:
    code = (
        "import gemfi, sys\n"
        "early = [name for name in sys.modules if name.partition('.')[0] in ('torch', 'sklearn')]\n"
        "assert not early, early\n"
        "assert len(gemfi.__all__) <= 25, len(gemfi.__all__)\n"
        "assert dir(gemfi) == sorted(gemfi.__all__)\n"
        "modules = [name for name in dir(gemfi) if type(getattr(gemfi, name)) is type(sys)]\n"
        "assert not modules, modules\n"
        "assert gemfi.scores.evidence and gemfi.metrics.auroc  # the rest has an address\n"
        "assert not hasattr(gemfi, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
