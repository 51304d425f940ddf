"""Every method and every preset computes what it computed when the file beside this was made.

    python tests/methods/test_golden.py    # makes it anew, after a change that is meant

One file holds, for each case, inputs, loss terms with outliers, the gradient of their sum with
respect to features and weights, and the belief and all scores after statistics were fitted.
Everything is in float64, so that machines differ in the last digits alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gemfi import scores
from gemfi.methods import METHODS, Batch, DataFacts, Head, Progress, gem_paper

FILE = Path(__file__).with_name("golden") / "heads.npz"
FEATURES, CLASSES, ROWS, OUTLIERS = 6, 4, 12, 4
CASES: dict[str, Callable[[], Head]] = {}


def _add(name: str, method: str, config: object = None) -> None:
    CASES[name] = lambda: METHODS[method](FEATURES, CLASSES, config)


for _name in METHODS:
    if _name not in {"ensemble", "gem-paper"}:  # features of all members; every preset below
        _add(_name, _name)
for _name, _config in (gem_paper.PAPER_PRESETS | gem_paper.presets()).items():
    _add(f"paper/{_name}", "gem-paper", _config)
for _name, _config in gem_paper.ablation(gem_paper.OURS).items():
    _add(f"ours/{_name}", "gem-paper", _config)


def inputs() -> dict[str, Tensor]:
    """Features of four classes, their labels, and outliers."""
    random = np.random.default_rng(0)
    label = np.arange(ROWS) % CLASSES
    centre = random.normal(size=(CLASSES, FEATURES)) * 2
    return {
        "z": torch.from_numpy(centre[label] + random.normal(size=(ROWS, FEATURES))),
        "y": torch.from_numpy(label),
        "outliers": torch.from_numpy(random.normal(size=(OUTLIERS, FEATURES)) * 5),
    }


def computed(make: Callable[[], Head], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """All that a head says of the inputs, before and after its statistics are fitted."""
    torch.manual_seed(0)
    head = make().double()
    head.prepare(DataFacts(torch.bincount(given["y"], minlength=CLASSES), steps=100))
    z = given["z"].clone().requires_grad_()
    outliers = given["outliers"].clone().requires_grad_() if head.takes_outliers else None
    head.train()
    torch.manual_seed(1)  # of dropout
    terms = head.objective(Batch(z, given["y"], outliers, 0.5), Progress(40, 100))
    torch.stack(list(terms.values())).sum().backward()
    found = {f"term/{name}": value.detach() for name, value in terms.items()}
    found |= {"gradient/z": z.grad} if z.grad is not None else {}
    if outliers is not None and outliers.grad is not None:
        found["gradient/outliers"] = outliers.grad
    norms = [each.grad.norm() for each in head.parameters() if each.grad is not None]
    found["gradient/weights"] = torch.stack(norms).norm()
    head.eval()
    batches = [(given["z"], given["y"])]
    with torch.no_grad():
        head.fit_statistics(batches, batches)
        torch.manual_seed(2)  # of MC dropout
        belief = head(torch.cat([given["z"], given["outliers"]]))
    for path, leaf in pytree.tree_flatten_with_path(belief)[0]:
        found["belief" + pytree.keystr(path)] = leaf
    found["belief/log_probs"] = belief.log_probs()
    for name in scores.available(belief):
        found[f"score/{name}"] = scores.SCORES[name](belief)
    return found


def _flat() -> dict[str, np.ndarray]:
    given = inputs()
    flat = {f"inputs//{name}": value.numpy() for name, value in given.items()}
    for case, make in CASES.items():
        for name, value in computed(make, given).items():
            flat[f"{case}//{name}"] = value.detach().numpy()
    return flat


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


def test_every_case_of_the_file_is_here(golden: dict[str, np.ndarray]) -> None:
    assert {key.split("//")[0] for key in golden} == {"inputs", *CASES}


@pytest.mark.parametrize("case", CASES)
def test_as_before(case: str, golden: dict[str, np.ndarray]) -> None:
    given = {name: torch.from_numpy(golden[f"inputs//{name}"]) for name in inputs()}
    found = computed(CASES[case], given)
    known = {key.split("//")[1] for key in golden if key.split("//")[0] == case}
    assert set(found) == known
    for name, value in found.items():
        there = torch.from_numpy(golden[f"{case}//{name}"])
        # to the bit on one machine; other processors round gradients otherwise, by up to 6e-8
        torch.testing.assert_close(
            value.detach(), there, rtol=1e-6, atol=1e-9, msg=partial("{}: {}".format, name)
        )


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **_flat())
    sys.stdout.write(f"{FILE}: {FILE.stat().st_size:,} bytes, {len(CASES)} cases\n")
