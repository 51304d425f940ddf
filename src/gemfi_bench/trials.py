"""Trials of methods on validation data: the evidence behind the defaults (docs/findings.md).

A trial is a budget, a variant and a seed. It trains, looks at validation and OOD-validation data
and at nothing else, and appends one line to the records; a trial that is there is not run again.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gemfi import diagnostics, losses, metrics, scores
from gemfi._config import with_settings
from gemfi.belief import Belief
from gemfi.data import TASKS, Role, Split, Task
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.density import ClassGaussians
from gemfi.methods import METHODS
from gemfi.methods.gem_modules import in_space
from gemfi.methods.gem_paper import PAPER_PRESETS
from gemfi.model import Model, build_model
from gemfi.runs.record import environment
from gemfi.spectral import OFF
from gemfi.training import TrainConfig, fit

RECORDS = Path(__file__).parent.parent / "docs" / "records" / "trials.jsonl"


@dataclass(frozen=True)
class Budget:
    """Data, network and training of a trial."""

    task: str
    backbone: str
    options: Mapping[str, Any]
    train: TrainConfig
    images: int | None = None  # of the training split; None for all
    held: tuple[int, ...] = ()  # classes kept out of training, which become the OOD data


_MNIST = TrainConfig(epochs=5, batch_size=128, learning_rate=1e-3)
_CIFAR = TrainConfig(
    epochs=10,
    batch_size=128,
    learning_rate=4e-3,
    schedule="one-cycle",
    weight_decay=0.05,
    augmentation=AUGMENTATIONS["standard"],
)
BUDGETS = {
    "digits": Budget(
        "digits",
        "convnet",
        {"size": 8, "channels": 32},
        TrainConfig(epochs=20, batch_size=32, learning_rate=5e-3),
    ),
    "two-moons": Budget(
        "two-moons",
        "mlp",
        {"in_features": 2, "width": 64},
        TrainConfig(epochs=40, batch_size=64, learning_rate=2e-3),
    ),
    "line": Budget(
        "line",
        "mlp",
        {"in_features": 1, "width": 64},
        TrainConfig(epochs=60, batch_size=64, learning_rate=2e-3),
    ),
    "mnist-small": Budget("mnist", "convnet", {}, replace(_MNIST, epochs=3), 12_000),
    "mnist": Budget("mnist", "convnet", {}, _MNIST),
    "cifar10-small": Budget("cifar10", "resnet18", {"width": 8}, replace(_CIFAR, epochs=8), 15_000),
    "cifar10": Budget("cifar10", "resnet18", {"width": 16}, _CIFAR),
}
BUDGETS |= {
    f"digits-without-{a}{b}": replace(BUDGETS["digits"], held=(a, b))
    for a, b in ((0, 1), (2, 3), (4, 5), (3, 6))
}
BUDGETS["cifar10-small-without-39"] = replace(BUDGETS["cifar10-small"], held=(3, 9))


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
        train = Split(
            train.x[: budget.images], train.labels[: budget.images], train.role, train.name
        )
    if not budget.held:
        return task, Data(train, task.validation, task.ood_validation)
    kept = [label for label in range(task.num_classes) if label not in budget.held]
    inside = Data(_only(train, kept), _only(task.validation, kept), {})
    x = _only(task.validation, budget.held).x
    if len(x) < 500:  # digits have 126 images for validation
        x = torch.cat([_only(train, budget.held).x, x])
    held = Split(x, None, Role.OOD_VALIDATION, "held out")
    return task, inside._replace(outside={"held-out": held, **task.ood_validation})


def _only(split: Split, labels: Sequence[int]) -> Split:
    """The samples of some classes, which are numbered anew."""
    chosen = torch.tensor(labels)
    rows = torch.isin(split.labels, chosen)
    renumbered = (split.labels[rows, None] == chosen).to(torch.int64).argmax(dim=1)
    return Split(split.x[rows], renumbered, split.role, split.name)


@dataclass(frozen=True)
class Variant:
    """A method with changes to its configuration."""

    method: str
    changes: tuple[str, ...] = ()
    paper: bool = False  # start from the paper's configuration and not from the default one
    spectral: bool = False  # keep the backbone's spectral normalisation


def _fi(*changes: str, **more: Any) -> Variant:
    return Variant("gem-fi", changes, **more)


_STRONG = "outlier_weight=0.1"  # the weight that the paper names for VOS

VARIANTS: dict[str, Variant] = {
    "softmax": Variant("softmax"),
    "edl": Variant("edl"),
    **{
        f"edl-{risk}-{weight}": Variant("edl", (f"risk={risk}", f"kl_weight={weight}"))
        for risk in ("mse", "log", "digamma")
        for weight in (1, 0.1, 0.01)
    },
    "re-edl": Variant("re-edl"),
    "daedl": Variant("daedl"),
    **{
        f"{method}-{name}": Variant(method, settings)
        for method in ("edl", "re-edl", "daedl")
        for name, settings in (
            (
                "vos",
                ("outliers.kind=vos", "outliers.ratio=0.3", "outliers.scrambled=0", _STRONG),
            ),
            ("halo", ("outliers.kind=halo", _STRONG)),
        )
    },
    "gem-core": Variant("gem-core"),
    "gem-mix": Variant("gem-mix"),
    "core-squared": Variant("gem-core", ("loss=squared",)),
    "gem-fi": _fi(),
    "paper-core": Variant("gem-core", paper=True),
    "paper-mix": Variant("gem-mix", paper=True),
    "paper-fi": _fi(paper=True),
    "paper-fi-sn": _fi(paper=True, spectral=True),
    "sn": _fi("sn=true", spectral=True),
    "no-scrambled": _fi("outliers.scrambled=0"),
    "no-halo": _fi("outliers.kind=scrambled"),
    "vos": _fi("outliers.kind=vos", "outliers.ratio=0.3", "outliers.scrambled=0"),
    "no-outliers": _fi("outliers.kind=none"),
    "gate-prob": _fi("gate=prob"),
    "gate-logit": _fi("gate=logit"),
    "gate-evidence": _fi("gate=evidence"),
    "one-head": _fi("mix=false"),
    "one-head-squared": _fi("mix=false", "loss=squared"),
    "no-fi": _fi("fi_reg=false", "fi_mod=false"),
    "unc": _fi("unc=true"),
    "unc-out": _fi("unc=true", "unc_id=0", "unc_outlier=1"),
    "no-kl": _fi("kl_weight=0"),
    "kl-5": _fi("kl_weight=0.00001"),
    "kl-3": _fi("kl_weight=0.001"),
    "kl-2": _fi("kl_weight=0.01"),
    "unit": _fi("feature_space=unit"),
    "unit-paper-heads": _fi("feature_space=unit", "sizes=paper"),
    "raw-paper-heads": _fi("sizes=paper"),
    "energy-raw": _fi("energy_space=raw"),
    "repel": _fi("repulsion=0.1"),
    "repel-3": _fi("repulsion=0.3"),
    "no-pi-entropy": _fi("pi_entropy=0"),
    "balance": _fi("pi_entropy=0", "pi_balance=0.1"),
    "ebm-0.03": _fi("ebm_weight=0.03", "ebm_outlier_weight=0.03"),
    "ebm-0.3": _fi("ebm_weight=0.3", "ebm_outlier_weight=0.3"),
    "ebm-1": _fi("ebm_weight=1", "ebm_outlier_weight=1"),
    "scrambled-0.15": _fi("outliers.scrambled=0.15"),
    "scrambled-0.5": _fi("outliers.scrambled=0.5"),
    "far-2": _fi("outliers.far=2"),
    "near-0.25": _fi("outliers.near=0.25"),
    "ebm-0.1": _fi("ebm_weight=0.1", "ebm_outlier_weight=0.1"),
    "detached": _fi("energy_detached=true"),
    "rho-refit": _fi("rho_refit=0.1", "kl_evidence=scaled"),
    "fi-1": _fi("fi_reg_weight=1", "fi_mod_strength=1"),
    "no-fi-no-pi-entropy": _fi("fi_reg=false", "fi_mod=false", "pi_entropy=0"),
}


def build(budget: Budget, variant: Variant, task: Task, seed: int) -> Model:
    """The untrained model of a trial."""
    start = PAPER_PRESETS if variant.paper else {}
    config = start.get(variant.method, METHODS[variant.method].default_config())
    options = dict(budget.options) | ({} if variant.spectral else {"spectral": OFF})
    torch.manual_seed(seed)
    return build_model(
        variant.method,
        budget.backbone,
        task.num_classes - len(budget.held),
        config=with_settings(config, variant.changes, "changes"),
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
    with watch_router(model, config.batch_size) as used:
        result = fit(model, data.train, data.validation, config, progress=False, run_dir=folder)
    here = environment()
    return {
        "budget": budget_name,
        "variant": name,
        "seed": seed,
        "seconds": round(time.perf_counter() - begin, 1),
        "last_losses": {key: round(v, 4) for key, v in result.history[-1]["terms"].items()},
        "heads_over_training": _tenths(used),
        **measure(model, data),
        "commit": here.commit,
        "changed": here.changed,
        "threads": here.threads,
    }


@contextlib.contextmanager
def watch_router(model: Model, batch_size: int) -> Iterator[list[float]]:
    """Effective number of heads in each training step, from the router's own output."""
    used: list[float] = []
    router = getattr(model.head, "router", None)
    if router is None:
        yield used
        return

    def look(module: torch.nn.Module, _inputs: object, output: Tensor) -> None:
        if module.training:
            log_weight = torch.log_softmax(output.detach()[:batch_size], dim=-1)
            used.append(float(losses.usage(log_weight).exp()))

    handle = router.register_forward_hook(look)
    yield used
    handle.remove()


def _tenths(values: list[float]) -> list[float]:
    """The mean of each tenth of a run."""
    size = max(1, len(values) // 10)
    return [
        round(statistics.fmean(values[start : start + size]), 3)
        for start in range(0, size * min(10, len(values)), size)
    ]


def measure(model: Model, data: Data) -> dict[str, Any]:
    """Classification, detection by every score, and the diagnostics of the parts."""
    train, inside = data.train, data.validation
    belief = model.predict(inside)
    reference = model.embed(train.x[:20_000])
    z = model.embed(inside)
    distance = diagnostics.knn_distance(z, reference).to(torch.float64)
    gaussians = _gaussians(model, train)
    base = _scores(belief, z, distance, gaussians)
    found: dict[str, Any] = {
        "id": metrics.classification_metrics(belief.log_probs(), inside.labels),
        "id_support": asdict(diagnostics.support(belief, distance)),
        "id_heads": asdict(diagnostics.heads(belief)),
        "evidence_by_class": _by_class(belief, inside),
        "ood": {},
    }
    for key, split in data.outside.items():
        outside, other = model.predict(split), model.embed(split)
        far = diagnostics.knn_distance(other, reference).to(torch.float64)
        values = _scores(outside, other, far, gaussians)
        everything = Belief.cat([belief, outside])
        found["ood"][key] = {
            "auroc": {n: metrics.ood_metrics(base[n], values[n])["auroc"] for n in base},
            "support": asdict(diagnostics.support(everything, torch.cat([distance, far]))),
            "heads": asdict(diagnostics.heads(outside)),
        }
    return found


def _by_class(belief: Belief, inside: Split) -> dict[str, float] | None:
    """How log α0 (gated, without ρ) spreads between the classes and within them."""
    if belief.log_evidence is None:
        return None
    value = -scores.bare_evidence(belief)
    each = [value[inside.labels == label] for label in range(belief.log_p.shape[-1])]
    return {
        "between": float(torch.stack([part.mean() for part in each]).std()),
        "within": float(torch.stack([part.std() for part in each]).mean()),
    }


def _gaussians(model: Model, train: Split) -> dict[str, ClassGaussians]:
    """Densities fitted after training on the features of any method."""
    z = model.embed(train)
    found = {}
    for space in ("unit", "raw"):
        for covariance in ("tied", "class"):
            density = ClassGaussians(model.head.num_classes, z.shape[1], covariance=covariance)
            statistics_ = density.statistics()
            statistics_.update(in_space(z, "unit") if space == "unit" else z, train.labels)
            density.fit(statistics_)
            found[f"{space}-{covariance}"] = density
    return found


def _scores(
    belief: Belief,
    z: Tensor,
    distance: Tensor,
    gaussians: Mapping[str, ClassGaussians],
) -> dict[str, Tensor]:
    found = {name: scores.SCORES[name](belief) for name in scores.available(belief)}
    if belief.log_evidence is not None and belief.log_rho is not None:
        ungated = scores.logit_energy(belief)
        found["rho_alone"] = ungated - belief.log_rho
    found["knn"] = distance
    for name, density in gaussians.items():
        space = "unit" if name.startswith("unit") else "raw"
        found[name] = -density(in_space(z, space)).to(torch.float64)
    return {name: value.to(torch.float64) for name, value in found.items()}


# -- records ------------------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """The records so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def show(records: list[dict[str, Any]]) -> str:
    """A line a variant: means over seeds."""
    columns = (
        "max_prob", "logit_energy", "bare_evidence", "evidence", "energy", "unit-tied",
        "unit-class", "knn", "disagreement", "unfamiliarity",
    )  # fmt: skip
    lines = []
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["variant"], []).append(record)
    head = f"{'':18s} n   acc    nll    ece  brier | " + " ".join(f"{c[:9]:>9s}" for c in columns)
    lines.append(head + " |  E~kNN heads differ   JSD/ood")
    for name, each in groups.items():
        ood = [next(iter(r["ood"].values())) for r in each]

        def mean(values: list[float | None]) -> float:
            kept = [v for v in values if v is not None]
            return statistics.fmean(kept) if kept else float("nan")

        ident = [mean([r["id"][k] for r in each]) for k in ("accuracy", "nll", "ece", "brier")]
        aurocs = [mean([o["auroc"].get(c) for o in ood]) for c in columns]
        used = mean([r["id_heads"]["used"] for r in each])
        differ = mean([r["id_heads"]["differ"] for r in each])
        jsd = mean([r["id_heads"]["disagreement"] for r in each])
        jsd_out = mean([o["heads"]["disagreement"] for o in ood])
        rank = mean([o["support"]["energy"] for o in ood])
        lines.append(
            f"{name:18s} {len(each)} "
            + "{:6.2f} {:6.3f} {:6.2f} {:6.2f} | ".format(*ident)
            + " ".join(f"{a:9.2f}" for a in aurocs)
            + f" | {rank:6.2f} {used:5.2f} {differ:6.3f} {jsd:.3f}/{jsd_out:.3f}"
        )
    return "\n".join(lines)


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
