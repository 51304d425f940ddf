"""All methods on digits under one recipe: the table of docs/methods.md.

One backbone, optimiser, schedule and budget for all (`trials.py`, budget `digits`). The learning
rate of each method is the one of three with the least NLL on ID validation data, at seed 0. Then
five seeds, measured on test data: mean and sample standard deviation. Detectors stand on the
softmax networks. A run that is in the records is not run again.

    python benchmarks/matched.py --records docs/records/matched.jsonl
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import trials
from torch import Tensor

from gemfi import metrics, scores
from gemfi.data import Split, Task, digits
from gemfi.detectors import DETECTORS, Detector, observe
from gemfi.methods import METHODS
from gemfi.model import Model
from gemfi.runs.record import environment
from gemfi.training import fit

RATES = (1e-3, 5e-3, 2e-2)
SEEDS = (0, 1, 2, 3, 42)
NEAR = "digits-8-9"


def train(method: str, rate: float, seed: int, task: Task) -> Model:
    """One network of a method."""
    budget = trials.BUDGETS["digits"]
    model = trials.build(budget, trials.Variant(method), task, seed)
    config = replace(budget.train, seed=seed, learning_rate=rate)
    fit(model, task.train, task.validation, config, progress=False)
    return model


def choose_rate(method: str, task: Task) -> dict[str, Any]:
    """The learning rate with the least NLL on validation data."""
    found = {}
    for rate in RATES:
        belief = train(method, rate, 0, task).predict(task.validation)
        found[str(rate)] = metrics.nll(belief.log_probs(), task.validation.labels)
    best = min(found, key=lambda each: found[each])
    return {"method": method, "rate": float(best), "validation_nll": found}


def measure(model: Model, task: Task) -> dict[str, Any]:
    """Test data, and each OOD test set by the method's two scores."""
    inside = model.predict(task.test)
    outside = {name: model.predict(split) for name, split in task.ood_test.items()}
    found = {"id": metrics.classification_metrics(inside.log_probs(), task.test.labels)}
    for kind, name in model.head.named_scores.items():
        score = scores.SCORES[name]
        found[kind] = _aurocs(score(inside), {key: score(each) for key, each in outside.items()})
    return found


def _aurocs(inside: Tensor, outside: Mapping[str, Tensor]) -> dict[str, float]:
    each = {name: metrics.ood_metrics(inside, values)["auroc"] for name, values in outside.items()}
    far = [value for name, value in each.items() if name != NEAR]
    return {"near": each[NEAR], "far": statistics.fmean(far)}


def detect(model: Model, task: Task) -> dict[str, dict[str, float]]:
    """Every detector on one softmax network."""
    train_, validation = observe(model, task.train), observe(model, task.validation)
    found = {}
    for name, kind in DETECTORS.items():
        detector = kind()
        detector.fit(train_, validation)
        score = _scorer(detector, model)
        found[name] = _aurocs(
            score(task.test), {key: score(split) for key, split in task.ood_test.items()}
        )
    return found


def _scorer(detector: Detector, model: Model) -> Callable[[Split], Tensor]:
    if detector.info.needs == "inputs":
        return lambda split: detector.score_inputs(model, split.x)
    return lambda split: detector.score(observe(model, split))


def collect(path: Path) -> None:
    """Run what is missing."""
    task = digits()
    done = trials.read(path)
    rates = {each["method"]: each["rate"] for each in done if "rate" in each and "seed" not in each}
    have = {(each["method"], each["seed"]) for each in done if "seed" in each}
    for method in METHODS:
        if method not in rates:
            record = choose_rate(method, task)
            rates[method] = record["rate"]
            _append(path, record)
        for seed in SEEDS:
            if (method, seed) in have:
                continue
            begin = time.perf_counter()
            model = train(method, rates[method], seed, task)
            spent = time.perf_counter() - begin
            found = {"method": method, "seed": seed, "seconds": round(spent, 2)}
            found |= {"rate": rates[method], "commit": environment().commit, **measure(model, task)}
            if method == "softmax":
                found["detectors"] = detect(model, task)
            _append(path, found)
            print(f"{method} seed {seed}: {spent:.1f} s", file=sys.stderr, flush=True)


def _append(path: Path, record: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def table(path: Path) -> str:
    """Markdown: a row a method, then a row a detector."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for each in trials.read(path):
        if "seed" in each:
            runs.setdefault(each["method"], []).append(each)
    header = (
        "method", "learning rate", "accuracy", "NLL", "ECE", "Brier", "near, aleatoric",
        "near, epistemic", "far, aleatoric", "far, epistemic",
    )  # fmt: skip
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for method in METHODS:
        members = runs.get(method, [])
        if not members:
            continue
        cells = [f"`{method}`", f"{members[0]['rate']:g}"]
        cells += [
            _mean([run["id"][name] for run in members], 3 if name == "nll" else 1)
            for name in ("accuracy", "nll", "ece", "brier")
        ]
        cells += [
            _mean([run[kind][where] for run in members])
            for where in ("near", "far")
            for kind in ("aleatoric", "epistemic")
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| detector on softmax | near | far |", "|---|---|---|"]
    for name in DETECTORS:
        near, far = (
            _mean([run["detectors"][name][where] for run in runs["softmax"]])
            for where in ("near", "far")
        )
        lines.append(f"| `{name}` | {near} | {far} |")
    return "\n".join(lines)


def _mean(values: list[float], places: int = 1) -> str:
    if len(values) < 2:
        return f"{values[0]:.{places}f}"
    return f"{statistics.fmean(values):.{places}f} ± {statistics.stdev(values):.{places}f}"


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = trials.RECORDS.parent / "matched.jsonl"
    parser.add_argument("--records", type=Path, default=default)
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if not arguments.table:
        collect(arguments.records)
    print(table(arguments.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
