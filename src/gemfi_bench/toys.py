"""The toys of the paper's first figures: small models on two moons and on a line.

They are the same in every protocol, and are trained as `gemfi demo` trains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gemfi._files import hold_lock
from gemfi.runs import Run, RunSpec, train_run
from gemfi.runs.folder import is_finished
from gemfi_bench.demo.runner import PLANS, Plan, spec_of
from gemfi_bench.runner import RUNS
from gemfi_bench.unavailable import Unavailable

Toy = tuple[str, str]
"""Task and method."""

MOONS: Final = "two-moons"
LINE: Final = "line"
TOYS: Final[tuple[Toy, ...]] = (
    (MOONS, "edl"),
    (MOONS, "daedl"),
    (MOONS, "gem-fi"),
    (LINE, "daedl"),
    (LINE, "gem-fi"),
)
"""The panels of the paper, in its order."""

_LOCK: Final = ".toys.lock"


def toy_plans(task: str | None = None) -> dict[Toy, Plan]:
    """What each panel shows, with the configuration that the demo has for it.

    Args:
        task: those of one task; None for all.
    """
    known = {(plan.task, plan.method): plan for plan in PLANS}
    return {toy: known[toy] for toy in TOYS if task in (None, toy[0])}


def toy_specs(seed: int = 0) -> dict[Toy, RunSpec]:
    """What is trained for each panel."""
    return {toy: spec_of(plan, seed, quick=False) for toy, plan in toy_plans().items()}


def toy_runs(folder: Path | str, *, progress: bool | None = None) -> dict[Toy, Run]:
    """Train the toys, or finish training them, or open those that are there.

    Of several processes one does it, and the others wait for it.

    Args:
        folder: of a bench; the runs are put beside its own.
        progress: a bar for each training: yes, no, or (None) if standard error is a terminal.
    """
    with hold_lock(Path(folder) / _LOCK):
        return {
            toy: train_run(spec, toy_folder(folder, spec), progress=progress)
            for toy, spec in toy_specs().items()
        }


def trained_toys(folder: Path | str, task: str) -> dict[Toy, Run]:
    """The toys of a task that were trained.

    Args:
        folder: of a bench.
        task: `two-moons` or `line`.

    Raises:
        Unavailable: if one of them is not there, or not finished.
    """
    specs = {toy: spec for toy, spec in toy_specs().items() if toy[0] == task}
    missing = [toy[1] for toy, spec in specs.items() if not is_finished(toy_folder(folder, spec))]
    if missing:
        raise Unavailable(f"not trained on {task}: {_listed(missing)}; gemfi bench trains them")
    return {toy: Run.open(toy_folder(folder, spec)) for toy, spec in specs.items()}


def toy_folder(folder: Path | str, spec: RunSpec) -> Path:
    """Where a toy is trained."""
    return Path(folder) / RUNS / spec.name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
