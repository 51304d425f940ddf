"""Trials of methods on validation data: the evidence behind the defaults (docs/findings.md).

A trial is a budget, a variant and a seed. It trains, looks at validation and OOD-validation data
and at nothing else, and appends one line to the records; a trial that is there is not run again.
Budgets and variants are in `trials.toml`.

    python -m gemfi_bench.trials digits --variants softmax gem-fi --seeds 0 1 2
    python -m gemfi_bench.trials cifar10-small
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemfi import diagnosis, dirichlet, losses, metrics, scores
from gemfi._config import with_settings
from gemfi._environment import environment
from gemfi._text import aligned, number
from gemfi.belief import Belief
from gemfi.data import TASKS, Role, Split, Task
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.density import ClassGaussians
from gemfi.detectors import knn_distance
from gemfi.methods import METHODS, GEMConfig
from gemfi.methods.gem_modules import in_space
from gemfi.methods.gem_paper import PAPER_PRESETS, PaperConfig, as_paper
from gemfi.model import Model, build_model
from gemfi.spectral import OFF
from gemfi.training import TrainConfig, fit

RECORDS = Path(__file__).parents[2] / "docs" / "records" / "trials.jsonl"


@dataclass(frozen=True)
class Budget:
    """Data, network and training of a trial."""

    task: str
    backbone: str
    train: TrainConfig
    options: Mapping[str, Any] = field(default_factory=dict)
    images: int | None = None  # of the training split; None for all
    held: tuple[int, ...] = ()  # classes kept out of training, which become the OOD data


class Data(NamedTuple):
    """What a trial may see."""

    train: Split
    validation: Split
    outside: Mapping[str, Split]


def load(budget: Budget) -> tuple[Task, Data]:
    """The data of a budget. Held-out classes of the training data stand in for near OOD."""
    task = TASKS[budget.task]()
    train = task.train
    if budget.images is not None:
        train = train.subset(range(budget.images))
    if not budget.held:
        return task, Data(train, task.validation, task.ood_validation)
    kept = [label for label in range(task.num_classes) if label not in budget.held]
    x = _only(task.validation, budget.held).x
    if len(x) < 500:  # digits have 126 images for validation
        x = torch.cat([_only(train, budget.held).x, x])
    held = Split(x, None, Role.OOD_VALIDATION, "held out")
    outside = {"held-out": held, **task.ood_validation}
    return task, Data(_only(train, kept), _only(task.validation, kept), outside)


def _only(split: Split, labels: Sequence[int]) -> Split:
    """The samples of some classes, which are numbered anew."""
    chosen = torch.tensor(labels)
    rows = torch.isin(split.labels, chosen)
    renumbered = (split.labels[rows, None] == chosen).to(torch.int64).argmax(dim=1)
    return Split(split.x[rows], renumbered, split.role, split.name)


@dataclass(frozen=True)
class Variant:
    """A method with changes to its configuration, such as `kl_weight=0 gate=prob`."""

    method: str
    changes: str = ""
    paper: bool = False  # start from the paper's configuration and not from the default one
    spectral: bool = False  # keep the backbone's spectral normalisation


_READ = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
VARIANTS = {name: Variant(**plain) for name, plain in _READ["variants"].items()}


def _budget(plain: Mapping[str, Any]) -> Budget:
    augmentation = AUGMENTATIONS[plain.get("augmentation", "none")]
    train = TrainConfig(**plain["train"], augmentation=augmentation)
    rest = {name: value for name, value in plain.items() if name != "augmentation"}
    return Budget(**rest | {"train": train, "held": tuple(plain.get("held", ()))})


BUDGETS = {name: _budget(plain) for name, plain in _READ["budgets"].items()}


def build(budget: Budget, variant: Variant, task: Task, seed: int) -> Model:
    """The untrained model of a trial."""
    method, changes = variant.method, variant.changes.split()
    config = PAPER_PRESETS[method] if variant.paper else METHODS[method].default_config()
    names = {change.partition("=")[0].partition(".")[0] for change in changes}
    if isinstance(config, GEMConfig) and not all(hasattr(config, name) for name in names):
        config = as_paper(config)  # which has the switches of the paper
    method = "gem-paper" if isinstance(config, PaperConfig) else method
    options = dict(budget.options) | ({} if variant.spectral else {"spectral": OFF})
    torch.manual_seed(seed)
    return build_model(
        method,
        budget.backbone,
        task.num_classes - len(budget.held),
        config=with_settings(config, changes, "changes"),
        normalisation=task.normalisation,
        **options,
    )


def run(budget_name: str, name: str, seed: int, runs: Path | None) -> dict[str, Any]:
    """Train one variant and measure it."""
    budget = BUDGETS[budget_name]
    task, data = load(budget)
    model = build(budget, VARIANTS[name], task, seed)
    begin = time.perf_counter()
    folder = None if runs is None else runs / f"{budget_name}-{name}-{seed}"
    config = replace(budget.train, seed=seed)
    with watch_router(model, config.samples_a_step) as used:
        result = fit(model, data.train, data.validation, config, progress=False, run_dir=folder)
    size, here = max(1, len(used) // 10), environment()
    tenths = [used[start : start + size] for start in range(0, len(used), size)][:10]
    return {
        "budget": budget_name,
        "variant": name,
        "seed": seed,
        "seconds": round(time.perf_counter() - begin, 1),
        "last_losses": {key: round(v, 4) for key, v in result.history[-1]["terms"].items()},
        "heads_over_training": [round(statistics.fmean(tenth), 3) for tenth in tenths],
        **measure(model, data),
        "commit": here.commit,
        "changed": here.changed,
        "threads": here.threads,
    }


@contextlib.contextmanager
def watch_router(model: Model, batch_size: int) -> Iterator[list[float]]:
    """Effective number of heads in each training step, from the router's own output."""
    used: list[float] = []

    def look(module: torch.nn.Module, _inputs: object, output: Tensor) -> None:
        if module.training:
            log_weight = torch.log_softmax(output.detach()[:batch_size], dim=-1)
            used.append(float(losses.usage(log_weight).exp()))

    router = getattr(model.head, "router", None)
    with contextlib.nullcontext() if router is None else router.register_forward_hook(look):
        yield used


@dataclass(frozen=True)
class Support:
    """Rank correlations of energy, gate and evidence, with the sign that they ought to have."""

    energy: float | None  # of the energy with the distance to the training data: positive
    evidence: float | None  # of the evidence, ρ included, with the distance: negative
    gate: float | None  # of the mean gate with the distance: negative
    gate_energy: float | None  # of the mean gate with the energy: negative
    label_changes: float
    """Share of inputs whose most probable class a gate on probabilities changes; 0 for gates that
    are part of α, which cannot be undone here."""


def support(belief: Belief, distance: Tensor) -> Support:
    """Compare a belief with distances (B,), such as those of `knn_distance`."""

    def correlation(first: Tensor | None, second: Tensor | None) -> float | None:
        return (
            None if first is None or second is None else diagnosis.rank_correlation(first, second)
        )

    evidence = None if belief.log_evidence is None else -scores.evidence(belief)
    gate = None if belief.log_gate is None else belief.log_gate.exp().mean(dim=1)
    ungated = dirichlet.log_mixture(belief.log_p, belief.log_weight).argmax(dim=-1)
    changed = (ungated != belief.labels()).to(torch.float64)
    return Support(
        energy=correlation(belief.energy, distance),
        evidence=correlation(evidence, distance),
        gate=correlation(gate, distance),
        gate_energy=correlation(gate, belief.energy),
        label_changes=float(changed.mean()),
    )


def measure(model: Model, data: Data) -> dict[str, Any]:
    """Classification, detection by every score, and the diagnostics of the parts."""
    inside, gaussians = data.validation, _gaussians(model, data.train)
    belief, bank = model.predict(inside), model.embed(data.train.x[:20_000])
    near, known = _scores(model, belief, inside, bank, gaussians)
    record: dict[str, Any] = {
        "id": metrics.classification_metrics(belief.log_probs(), inside.labels),
        "id_support": asdict(support(belief, near)),
        "id_heads": asdict(diagnosis.heads(belief)),
        "evidence_by_class": _by_class(belief, inside),
        "ood": {},
    }
    for key, split in data.outside.items():
        outside = model.predict(split)
        far, values = _scores(model, outside, split, bank, gaussians)
        both = Belief.cat([belief, outside])
        record["ood"][key] = {
            "auroc": {name: metrics.auroc(known[name], values[name]) for name in known},
            "support": asdict(support(both, torch.cat([near, far]))),
            "heads": asdict(diagnosis.heads(outside)),
        }
    return record


def _by_class(belief: Belief, inside: Split) -> dict[str, float] | None:
    """How log α0 (gated, without ρ) spreads between the classes and within them."""
    if belief.log_evidence is None:
        return None
    value = -scores.bare_evidence(belief)
    parts = [value[inside.labels == label] for label in range(belief.log_p.shape[-1])]
    return {
        "between": float(torch.stack([part.mean() for part in parts]).std()),
        "within": float(torch.stack([part.std() for part in parts]).mean()),
    }


def _gaussians(model: Model, train: Split) -> dict[tuple[str, str], ClassGaussians]:
    """Densities by space and covariance, fitted after training on the features of any method."""
    z, densities = model.embed(train), {}
    for space in ("unit", "raw"):
        for covariance in ("tied", "class"):
            density = ClassGaussians(model.head.num_classes, z.shape[1], covariance=covariance)
            moments = density.statistics()
            moments.update(in_space(z, space), train.labels)
            density.fit(moments)
            densities[space, covariance] = density
    return densities


def _scores(
    model: Model,
    belief: Belief,
    split: Split,
    bank: Tensor,
    gaussians: Mapping[tuple[str, str], ClassGaussians],
) -> tuple[Tensor, dict[str, Tensor]]:
    """The distances of a split to training features, and all its scores."""
    z = model.embed(split)
    distance = knn_distance(z, bank).to(torch.float64)
    values = {name: scores.SCORES[name](belief) for name in scores.available(belief)}
    if belief.log_evidence is not None and belief.log_rho is not None:
        values["rho_alone"] = scores.logit_energy(belief) - belief.log_rho
    values["knn"] = distance
    for (space, covariance), density in gaussians.items():
        values[f"{space}-{covariance}"] = -density(in_space(z, space))
    return distance, {name: value.to(torch.float64) for name, value in values.items()}


# -- records ------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The records so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


_SCORES = (
    "max_prob", "logit_energy", "bare_evidence", "evidence", "energy", "unit-tied", "unit-class",
    "knn", "disagreement", "unfamiliarity",
)  # fmt: skip


def show(records: Sequence[dict[str, Any]]) -> str:
    """A line a variant: means over seeds; AUROC by each score of the first OOD set."""
    id_names = ("accuracy", "nll", "ece", "brier")
    rows: list[tuple[str, ...]] = [
        ("variant", "n", *id_names, *_SCORES, "E~kNN", "heads", "differ", "JSD", "JSD ood")
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["variant"], []).append(record)
    for name, members in groups.items():
        heads = [record["id_heads"] for record in members]
        outside = [next(iter(record["ood"].values())) for record in members]
        columns = [[record["id"][key] for record in members] for key in id_names]
        columns += [[ood["auroc"].get(score) for ood in outside] for score in _SCORES]
        columns.append([ood["support"]["energy"] for ood in outside])
        columns += [[head[key] for head in heads] for key in ("used", "differ", "disagreement")]
        columns.append([ood["heads"]["disagreement"] for ood in outside])
        rows.append((name, str(len(members)), *(number(_mean(column), 3) for column in columns)))
    return "\n".join(aligned(rows))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def main() -> int:
    """Run what is missing and show what is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("budget", choices=list(BUDGETS))
    parser.add_argument("--variants", nargs="*", default=[], choices=list(VARIANTS), metavar="NAME")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--runs", type=Path, help="keep checkpoints below this folder, and resume")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    done = {(r["budget"], r["variant"], r["seed"]) for r in read(arguments.records)}
    for seed in arguments.seeds:
        for name in arguments.variants:
            if (arguments.budget, name, seed) in done:
                continue
            record = run(arguments.budget, name, seed, arguments.runs)
            with arguments.records.open("a") as file:
                file.write(json.dumps(record) + os.linesep)
            print(f"{name} seed {seed}: {record['seconds']} s", file=sys.stderr, flush=True)
    print(show([r for r in read(arguments.records) if r["budget"] == arguments.budget]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
