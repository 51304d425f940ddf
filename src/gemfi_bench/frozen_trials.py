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
from collections.abc import Callable, Iterator
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


class Frozen(NamedTuple):
    """Features and logits of a network."""

    train: Tensor
    labels: Tensor
    inside: Tensor
    outside: Tensor
    inside_logits: Tensor
    outside_logits: Tensor
    scrambled: dict[str, Tensor]

    def auroc(self, score: Callable[[Tensor], Tensor]) -> float:
        """Of a score of features, higher is more OOD."""
        return _auroc(score(self.inside), score(self.outside))


def _auroc(inside: Tensor, outside: Tensor) -> float:
    return metrics.ood_metrics(inside.to(torch.float64), outside.to(torch.float64))["auroc"]


def extract(budget_name: str, seed: int, runs: Path) -> Frozen:
    """Train, or find, the network, and run everything through it once."""
    budget = trials.BUDGETS[budget_name]
    task, data = trials.load(budget)
    model = trials.build(budget, trials.VARIANTS["softmax"], task, seed)
    folder = runs / f"{budget_name}-softmax-{seed}"
    fit(model, data.train, data.validation, replace(budget.train, seed=seed), run_dir=folder)
    outside = next(iter(data.outside.values()))
    generator = torch.Generator().manual_seed(seed)
    x = data.train.x[:SCRAMBLED]
    other = x[torch.randperm(len(x), generator=generator)]
    scrambled = {
        make.__name__: torch.cat(
            [
                model.embed(make(a, b, generator))
                for a, b in zip(torch.split(x, 500), torch.split(other, 500), strict=True)
            ]
        )
        for make in IMAGES
    }
    logits = [model.predict(split).need("logits")[:, 0] for split in (data.validation, outside)]
    return Frozen(
        model.embed(data.train),
        data.train.labels,
        model.embed(data.validation),
        model.embed(outside),
        logits[0],
        logits[1],
        scrambled,
    )


# -- without training ---------------------------------------------------------------------------


def post_hoc(z: Frozen) -> dict[str, float]:
    """Twenty-six scores that need no training."""

    def energy(logits: Tensor) -> Tensor:
        return -torch.logsumexp(logits, dim=1)

    def doubt(logits: Tensor) -> Tensor:
        return -torch.softmax(logits, dim=1).amax(dim=1)

    found = {
        "1 - max p": _auroc(doubt(z.inside_logits), doubt(z.outside_logits)),
        "energy of the logits": _auroc(energy(z.inside_logits), energy(z.outside_logits)),
    }
    best: dict[str, Callable[[Tensor], Tensor]] = {}
    for name, score in _densities(z):
        found[name] = z.auroc(score)
        best[name] = score
    for space, change in (("unit", partial(in_space, space="unit")), ("raw", lambda z: z)):
        for k in (1, 10, 50, 200):
            found[f"{k}-NN distance, {space}"] = _auroc(
                *(_distance(change(each), change(z.train), k) for each in (z.inside, z.outside))
            )
    for name in ("tied, unit", "class 0.3, unit"):
        parts = [
            (-best[name](z.inside), -best[name](z.outside)),
            (-energy(z.inside_logits), -energy(z.outside_logits)),
        ]
        found[f"density ({name}) and energy of the logits"] = _auroc(*_product(parts))
    return found


def _densities(z: Frozen) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    classes = int(z.labels.max()) + 1
    for space, change in (("unit", partial(in_space, space="unit")), ("raw", lambda z: z)):
        for shrinkage in (None, 0.0, 0.1, 0.3, 0.5, 0.7, 0.9):
            density = ClassGaussians(
                classes,
                z.train.shape[1],
                covariance="tied" if shrinkage is None else "class",
                shrinkage=shrinkage or 0.0,
            ).double()
            statistics = density.statistics()
            statistics.update(change(z.train).double(), z.labels)
            density.fit(statistics)
            name = "tied" if shrinkage is None else f"class {shrinkage}"

            def score(
                each: Tensor,
                density: ClassGaussians = density,
                change: Callable[[Tensor], Tensor] = change,
            ) -> Tensor:
                return -density(change(each).double())  # type: ignore[no-any-return]

            yield f"{name}, {space}", score


def _distance(z: Tensor, reference: Tensor, k: int) -> Tensor:
    rows = [
        torch.cdist(part, reference).topk(k, dim=1, largest=False).values[:, -1]
        for part in torch.split(z, 256)
    ]
    return torch.cat(rows)


def _product(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Unfamiliarity: minus the log of a product of memberships, as GEM has it."""
    totals: list[Tensor] = [torch.zeros(len(side), dtype=torch.float64) for side in parts[0]]
    for inside, outside in parts:
        location, scale = membership(inside)
        for index, values in enumerate((inside, outside)):
            totals[index] -= functional.logsigmoid((values.double() - location) / scale)
    return totals[0], totals[1]


# -- an energy that learns ----------------------------------------------------------------------


def energies(z: Frozen, seed: int) -> dict[str, float]:
    """The energy by the outliers that it learns from, and its rank correlation with the k-NN."""
    found = {}
    for low, high in ((0.3, 1.0), (0.5, 3.0), (1.0, 2.0)):
        found[f"halo {low:g}-{high:g}"] = _energy(z, [], (low, high), seed)
    for name in z.scrambled:
        found[name] = _energy(z, [name], None, seed)
    everything = list(z.scrambled)
    found["all scrambled"] = _energy(z, everything, None, seed)
    found["all scrambled and halo 0.5-3"] = _energy(z, everything, (0.5, 3.0), seed)
    return found


def _energy(z: Frozen, kinds: list[str], halo: tuple[float, float] | None, seed: int) -> float:
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    features, classes = z.train.shape[1], int(z.labels.max()) + 1
    network = Perceptron((features, 64, 1), spectral=OFF, dropout=0.03)
    log_temperature = torch.nn.Parameter(torch.tensor(0.2).log())
    optimizer = torch.optim.AdamW([*network.parameters(), log_temperature], lr=1e-3)
    maker = None
    if halo is not None:
        config = OutlierConfig(kind="halo", near=halo[0], far=halo[1])
        maker = Halo(config, classes, features)
    pool = torch.cat([z.scrambled[kind] for kind in kinds]) if kinds else None

    def energy(each: Tensor) -> Tensor:
        return network(in_space(each, "unit")).squeeze(1) * torch.exp(-log_temperature)  # type: ignore[no-any-return]

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
        loss = (
            functional.softplus(energy(inside)).mean()
            + functional.softplus(-energy(torch.cat(outliers))).mean()
        )
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
