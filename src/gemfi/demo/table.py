"""The demo's table, in plain text."""

from __future__ import annotations

from collections.abc import Sequence

from gemfi.demo.runner import Run

_HEADS = {
    "digits": "digits 0-6, unseen: digits 8 and 9 (near), noise, inverted, shuffled images (far)",
    "two-moons": "two moons, unseen: a cluster beside them",
    "line": "one-dimensional toy, unseen: the gap and the right tail",
}
_GROUPS = {  # data set -> column title -> OOD sets whose mean is shown
    "digits": {"near": ("digits-8-9",), "far": ("noise", "inverted", "shuffled")},
    "two-moons": {"cluster": ("cluster",)},
    "line": {"gap": ("gap",), "tail": ("right-tail",)},
}


def render(runs: Sequence[Run]) -> str:
    """One block a data set, one line a method. Percent; ↑ higher is better, ↓ lower."""
    blocks = []
    for dataset, title in _HEADS.items():
        chosen = [run for run in runs if run.plan.task == dataset]
        if chosen:
            blocks.append(f"{title}\n{_block(chosen, dataset)}")
    return "\n\n".join(blocks)


def _block(runs: Sequence[Run], dataset: str) -> str:
    groups = _GROUPS[dataset]
    top = ["", "", "", "", *(cell for name in groups for cell in (f"{name} AUROC↑", "", "AUPR↑"))]
    head = ["method", "acc↑", "ECE↓", "Brier↓", *["alea.", "epis.", "epis."] * len(groups), "s"]
    lines = [[*top, ""], head]
    for run in runs:
        numbers = run.evaluation.classification
        line = [run.plan.method, *(f"{numbers[key]:.1f}" for key in ("accuracy", "ece", "brier"))]
        for sets in groups.values():
            line += [_mean(run, sets, "aleatoric", "auroc"), _mean(run, sets, "epistemic", "auroc")]
            line.append(_mean(run, sets, "epistemic", "aupr_id"))
        lines.append([*line, f"{run.seconds:.1f}"])
    return _aligned(lines)


def _mean(run: Run, sets: Sequence[str], kind: str, metric: str) -> str:
    values = [run.evaluation.ood[name][kind][metric] for name in sets]
    return f"{sum(values) / len(values):.1f}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[index]) for line in lines[1:]) for index in range(len(lines[0]))]
    shown = []
    for line in lines:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  " + "  ".join(cells).rstrip())
    shown.insert(2, "  " + "─" * (len(shown[1]) - 2))
    return "\n".join(shown)
