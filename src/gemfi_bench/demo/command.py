"""`gemfi demo`, from its arguments to its files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Self

from tqdm import tqdm

from gemfi._drawing import require_matplotlib
from gemfi._files import to_json, write_atomically
from gemfi.errors import InputError
from gemfi_bench.demo.figures import draw_figures
from gemfi_bench.demo.report import render_report
from gemfi_bench.demo.runner import PLANS, Plan, run_demo
from gemfi_bench.demo.table import render


def demo(
    out: str = "demo-out", seed: int = 0, json: str | None = None, *, quick: bool = False
) -> None:
    """Train on digits and toy data, print a table, write figures and a report.

    Softmax, EDL, GEM-CORE, GEM-MIX and GEM-FI learn the digits 0 to 6 and meet 8, 9 and synthetic
    images; EDL, DAEDL and GEM-FI learn two toys. Nothing is downloaded.

    Args:
        out: folder for the figures and report.html; it is created.
        seed: of weights and training.
        json: also write the numbers to this file.
        quick: fewer epochs and so a coarser picture, in seconds.
    """
    begin = time.perf_counter()
    folder = Path(out)
    require_matplotlib()  # as below: fail before training and not after it
    _check_writable(folder, json)
    with _Announcer() as announcer:
        runs = run_demo(seed, quick=quick, workers=_cores(), finished=announcer)
    rows = [row for run in runs for row in run.rows()]
    print(render(runs))
    figures = draw_figures(runs)
    for name, png in figures.items():
        write_atomically(folder / f"{name}.png", png)
    facts = {"seed": seed, "quick": quick, "seconds": round(time.perf_counter() - begin, 1)}
    write_atomically(folder / "report.html", render_report(runs, figures, facts).encode())
    if json is not None:
        write_atomically(Path(json), to_json({**facts, "rows": rows}, indent=1).encode())
    _say_where(folder, json, time.perf_counter() - begin)


def _check_writable(folder: Path, json: str | None) -> None:
    """Fail before training and not after it."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; give a folder")
    if json is not None and not Path(json).resolve().parent.is_dir():
        raise InputError(f"--json {json}: its folder does not exist")
    if json is not None and Path(json).is_dir():
        raise InputError(f"--json {json} is a folder; give a file")


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


def _say_where(folder: Path, json: str | None, seconds: float) -> None:
    lines = [
        "",
        "acc, ECE, Brier (sum over classes ×100), AUROC and AUPR (ID positive) in percent;",
        "alea. and epis. are each method's own scores: see gemfi methods.",
        f"Wrote {folder / 'report.html'} and its figures in {seconds:.0f} s.",
    ]
    if json is not None:
        lines.append(f"Wrote {json}.")
    print("\n".join(lines))
