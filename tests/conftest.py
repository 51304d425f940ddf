"""What every test gets: fixed seeds, one core a worker, and no silent skips in CI."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before numpy and torch read it. Processes that a test starts inherit it.
    os.environ["OMP_NUM_THREADS"] = "1"

import hypothesis
import numpy as np
import pytest
import torch

IS_XDIST_WORKER = "PYTEST_XDIST_WORKER" in os.environ
SKIPS_ALLOWED = Path(__file__).with_name("skips-allowed.txt")

if IS_XDIST_WORKER:
    torch.set_num_threads(1)


class TorchRandom:
    """Torch's global generator in the form in which hypothesis seeds it for each example."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


TORCH_RANDOM = TorchRandom()  # hypothesis keeps a weak reference only
hypothesis.register_random(TORCH_RANDOM)
hypothesis.settings.register_profile(
    "gemfi",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # it measures seconds
)
hypothesis.settings.load_profile("gemfi")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Seed the global generators, for what a test uses without an explicit one."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - scikit-learn draws from it when random_state is None
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets."""
    value = os.environ.get("GEMFI_DATA")
    if not value:
        pytest.skip("needs real data: set GEMFI_DATA to the folder that holds mnist/ and the rest")
    folder = Path(value)
    if not folder.is_dir():
        pytest.fail(f"GEMFI_DATA is {value}, which is not a folder")
    return folder


def read_skips_allowed(path: Path) -> list[str]:
    """The entries of the allow-list, without comments and empty lines."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


class SkipGate:
    """Fails the run if a test was skipped that the allow-list does not name.

    Lives in the process that hears of every test: pytest's own, or the controller of xdist.
    """

    def __init__(self, allowed: list[str]) -> None:
        self.allowed = allowed
        self.refused: dict[str, str] = {}  # test id -> reason

    def is_allowed(self, nodeid: str) -> bool:
        """Whether an entry is the id, or the file, class, folder or function that it is under."""
        return any(
            nodeid == entry or nodeid.startswith((f"{entry}::", f"{entry}[", f"{entry}/"))
            for entry in (entry.rstrip("/") for entry in self.allowed)
        )

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Remember a skip that is not allowed; an expected failure is not a skip."""
        if not report.skipped or hasattr(report, "wasxfail") or self.is_allowed(report.nodeid):
            return
        where: Any = report.longrepr  # (file, line, "Skipped: reason")
        reason = where[2] if isinstance(where, tuple | list) else str(where)
        self.refused.setdefault(report.nodeid, reason.removeprefix("Skipped: "))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused and session.exitstatus in {
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        }:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.refused:
            return
        terminalreporter.section("skipped in CI, which fails the run", red=True, bold=True)
        for nodeid, reason in sorted(self.refused.items()):
            terminalreporter.line(f"{nodeid}: {reason}")
        terminalreporter.line(f"Make them run, or list them in {SKIPS_ALLOWED.name} and say why.")


def pytest_configure(config: pytest.Config) -> None:
    in_ci = os.environ.get("CI", "").lower() not in {"", "0", "false", "no", "off"}
    if in_ci and not IS_XDIST_WORKER:
        config.pluginmanager.register(SkipGate(read_skips_allowed(SKIPS_ALLOWED)), "skip-gate")
