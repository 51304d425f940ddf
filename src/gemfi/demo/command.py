"""`gemfi demo`, from its arguments to its files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Self

from tqdm import tqdm

from gemfi.demo.figures import draw_figures
from gemfi.demo.report import render_report
from gemfi.demo.runner import PLANS, Plan, run_demo
from gemfi.demo.table import render
from gemfi.errors import InputError
from gemfi.files import to_json, write_atomically
from gemfi.style import require_matplotlib


def main(*, out: str, seed: int, json_file: str | None, quick: bool) -> None:
    """Train, print, draw and write; the JSON file holds `rows`, one a method and OOD set."""
    begin = time.perf_counter()
    folder = Path(out)
    require_matplotlib()  # as below: fail before training and not after it
    _check_writable(folder, json_file)
    with _Announcer() as announcer:
        runs = run_demo(seed, quick=quick, workers=_cores(), finished=announcer)
    rows = [row for run in runs for row in run.rows()]
    print(render(runs))
    figures = draw_figures(runs)
    for name, png in figures.items():
        write_atomically(folder / f"{name}.png", png)
    facts = {"seed": seed, "quick": quick, "seconds": round(time.perf_counter() - begin, 1)}
    write_atomically(folder / "report.html", render_report(runs, figures, facts).encode())
    if json_file is not None:
        write_atomically(Path(json_file), to_json({**facts, "rows": rows}, indent=1).encode())
    _say_where(folder, json_file, time.perf_counter() - begin)


def _check_writable(folder: Path, json_file: str | None) -> None:
    """Fail before training and not after it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; give a folder")
    if json_file is not None and not Path(json_file).resolve().parent.is_dir():
        raise InputError(f"--json {json_file}: its folder does not exist")
    if json_file is not None and Path(json_file).is_dir():
        raise InputError(f"--json {json_file} is a folder; give a file")


def _cores() -> int:
    """Two processes where there are two cores; nine small runs gain little from more."""
    return min(2, os.cpu_count() or 1)


class _Announcer:
    """Says on standard error what has been trained: a bar on a terminal, else a line a model."""

    def __init__(self) -> None:
        self.bar = tqdm(total=len(PLANS), desc="training", unit="model", disable=None, leave=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def __call__(self, plan: Plan) -> None:
        self.bar.update()
        self.bar.set_postfix_str(f"{plan.method} on {plan.task} done")
        if self.bar.disable:
            line = f"trained {plan.method} on {plan.task}"
            print(line, file=sys.stderr, flush=True)


def _say_where(folder: Path, json_file: str | None, seconds: float) -> None:
    lines = [
        "",
        "acc, ECE, Brier (sum over classes ×100), AUROC and AUPR (ID positive) in percent;",
        "alea. and epis. are each method's own scores: see gemfi methods.",
        f"Wrote {folder / 'report.html'} and its figures in {seconds:.0f} s.",
    ]
    if json_file is not None:
        lines.append(f"Wrote {json_file}.")
    print("\n".join(lines))
