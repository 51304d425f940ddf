"""Trials on the frozen features of a trained softmax network (docs/findings.md).

Two questions, and as many trials for one as for the other: how well do scores that need no training
(densities, neighbours, logits) tell OOD-validation data apart, and how well does an energy that
learns from each kind of outlier?

    python -m gemfi_bench.frozen_trials cifar10 --runs FOLDER

The network is that of `trials.py BUDGET --variants softmax --runs FOLDER`: trained here if it is
not there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import metrics
from gemfi._environment import environment
from gemfi.density import ClassGaussians, membership
from gemfi.detectors import knn_distance
from gemfi.methods.gem_modules import Perceptron, in_space
from gemfi.outliers import IMAGES, Halo, OutlierConfig
from gemfi.spectral import OFF
from gemfi.training import fit
from gemfi_bench import trials

STEPS, BATCH, SCRAMBLED = 800, 256, 10_000
SHRINKAGES = (None, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # None: one covariance for all classes
HALOS = ((0.3, 1.0), (0.5, 3.0), (1.0, 2.0))  # how near and how far

Feature = Callable[[Tensor], Tensor]
"""A score of features, higher is more OOD."""


class Frozen(NamedTuple):
    """Features and logits of a network."""

    train: Tensor
    labels: Tensor
    inside: Tensor
    outside: Tensor
    inside_logits: Tensor
    outside_logits: Tensor
    scrambled: dict[str, Tensor]

    @property
    def classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    def auroc(self, score: Feature) -> float:
        """AUROC of a score of features."""
        return metrics.auroc(score(self.inside), score(self.outside))


def extract(budget_name: str, seed: int, runs: Path) -> Frozen:
    """Train, or find, the network, and run everything through it once."""
    budget = trials.BUDGETS[budget_name]
    task, data = trials.load(budget)
    model = trials.build(budget, trials.VARIANTS["softmax"], task, seed)
    folder = runs / f"{budget_name}-softmax-{seed}"
    fit(model, data.train, data.validation, replace(budget.train, seed=seed), run_dir=folder)
    generator = torch.Generator().manual_seed(seed)
    x = data.train.x[:SCRAMBLED]
    other = x[torch.randperm(len(x), generator=generator)]
    batches = list(zip(torch.split(x, 500), torch.split(other, 500), strict=True))
    scrambled = {
        make.__name__: torch.cat([model.embed(make(a, b, generator)) for a, b in batches])
        for make in IMAGES
    }
    outside = next(iter(data.outside.values()))
    splits = data.train, data.validation, outside
    train, near, far = (model.embed(split) for split in splits)
    _, inside, unseen = (model.predict(split).need("logits")[:, 0] for split in splits)
    return Frozen(train, data.train.labels, near, far, inside, unseen, scrambled)


# -- without training ---------------------------------------------------------------------------


def post_hoc(z: Frozen) -> dict[str, float]:
    """AUROC of twenty-six scores that need no training."""
    sides = z.inside_logits, z.outside_logits
    energy = [-torch.logsumexp(logits, dim=1) for logits in sides]
    doubt = [-torch.softmax(logits, dim=1).amax(dim=1) for logits in sides]
    found = {
        "1 - max p": metrics.auroc(*doubt),
        "energy of the logits": metrics.auroc(*energy),
    }
    densities = {
        f"{'tied' if shrinkage is None else f'class {shrinkage}'}, {space}": _density(
            z, space, shrinkage
        )
        for space in ("unit", "raw")
        for shrinkage in SHRINKAGES
    }
    found |= {name: z.auroc(score) for name, score in densities.items()}
    for space in ("unit", "raw"):
        for k in (1, 10, 50, 200):
            distance = partial(knn_distance, reference=z.train, k=k, unit=space == "unit")
            found[f"{k}-NN distance, {space}"] = z.auroc(distance)
    for name in ("tied, unit", "class 0.3, unit"):
        density = [densities[name](side) for side in (z.inside, z.outside)]
        found[f"density ({name}) and energy of the logits"] = _product(density, energy)
    return found


def _density(z: Frozen, space: str, shrinkage: float | None) -> Feature:
    """Minus the log density of Gaussians that are fitted to the training features."""
    gaussians = ClassGaussians(
        z.classes,
        z.train.shape[1],
        covariance="tied" if shrinkage is None else "class",
        shrinkage=shrinkage or 0.0,
    ).double()
    moments = gaussians.statistics()
    moments.update(in_space(z.train, space).double(), z.labels)
    gaussians.fit(moments)
    return lambda features: -gaussians(in_space(features, space).double())


def _product(*scores: list[Tensor]) -> float:
    """AUROC of minus the log of a product of memberships, as GEM's unfamiliarity has it."""
    total: list[Tensor] = [torch.zeros(len(side), dtype=torch.float64) for side in scores[0]]
    for sides in scores:
        location, scale = membership(-sides[0])
        for at, values in enumerate(sides):
            total[at] -= functional.logsigmoid((-values.double() - location) / scale)
    return metrics.auroc(*total)


# -- an energy that learns ----------------------------------------------------------------------


def energies(z: Frozen, seed: int) -> dict[str, float]:
    """AUROC of the energy by the outliers that it learns from."""
    every = list(z.scrambled)
    found = {f"halo {low:g}-{high:g}": _energy(z, [], (low, high), seed) for low, high in HALOS}
    found |= {name: _energy(z, [name], None, seed) for name in every}
    found["all scrambled"] = _energy(z, every, None, seed)
    found["all scrambled and halo 0.5-3"] = _energy(z, every, (0.5, 3.0), seed)
    return found


def _energy(z: Frozen, kinds: list[str], halo: tuple[float, float] | None, seed: int) -> float:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    network = Perceptron((z.train.shape[1], 64, 1), spectral=OFF, dropout=0.03)
    log_temperature = torch.nn.Parameter(torch.tensor(0.2).log())
    optimizer = torch.optim.AdamW([*network.parameters(), log_temperature], lr=1e-3)
    maker = None
    if halo is not None:
        config = OutlierConfig(kind="halo", near=halo[0], far=halo[1])
        maker = Halo(config, z.classes, z.train.shape[1])
    pool = torch.cat([z.scrambled[kind] for kind in kinds]) if kinds else None

    def energy(features: Tensor) -> Tensor:
        scaled: Tensor = network(in_space(features, "unit")).squeeze(1) * torch.exp(
            -log_temperature
        )
        return scaled

    for _ in range(STEPS):
        rows = torch.randint(len(z.train), (BATCH,), generator=generator)
        inside, outliers = z.train[rows], []
        if maker is not None:
            maker.observe(inside, z.labels[rows])
            made = maker.sample(inside, z.labels[rows], generator)
            outliers += [] if made is None else [made]
        if pool is not None:
            share = BATCH if maker is None else round(0.3 * BATCH)
            outliers.append(pool[torch.randint(len(pool), (share,), generator=generator)])
        outside = torch.cat(outliers)
        loss = functional.softplus(energy(inside)).mean()
        loss = loss + functional.softplus(-energy(outside)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    network.eval()
    with torch.no_grad():
        return z.auroc(energy)


def main() -> int:
    """Run both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("budget", choices=list(trials.BUDGETS))
    parser.add_argument("--runs", type=Path, required=True, help="folder of the trained network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also append the numbers to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    z = extract(arguments.budget, arguments.seed, arguments.runs)
    spread = knn_distance(z.outside, z.train[:20_000]).mean()
    print(f"{arguments.budget}, seed {arguments.seed}; mean 10-NN distance outside {spread:.3f}")
    record: dict[str, Any] = {
        "budget": arguments.budget,
        "seed": arguments.seed,
        "commit": environment().commit,
        "post_hoc": post_hoc(z),
        "energy": energies(z, arguments.seed),
    }
    for title in ("post_hoc", "energy"):
        print(f"\n{title}: {len(record[title])} trials, AUROC")
        for name, value in record[title].items():
            print(f"  {name:48s} {value:6.2f}")
    if arguments.json is not None:
        with arguments.json.open("a") as file:
            file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
