"""Every method and detector on an accelerator that is not there (`support.accelerator`).

Each case runs in one process of its own, which registers the accelerator; the tests read what came
of it. What this cannot see: kernels, streams, memory, numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gemfi import outliers, scores
from gemfi.data import as_split
from gemfi.data.augmentation import Augmentation
from gemfi.detectors import DETECTORS, observe
from gemfi.evaluation import evaluate
from gemfi.methods import METHODS
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.training import Objective, TrainConfig, fit, loop

KINDS = ("halo", "vos", "noise", "between", "scrambled")
ALONE = [name for name in METHODS if name != "ensemble"]  # an ensemble trains its members

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.accelerator import Accelerator, WaitError, register
    from support.small_images import make


def split(role: str) -> Any:
    labels = None if role == "ood-test" else torch.arange(32) % 4
    return as_split(torch.rand(32, 3, 8, 8), labels, role=role)


def on_it(method: str, gpu: Accelerator) -> Model:
    with gpu.waiting():
        return make(method).to(gpu.device)


def steps(objective: Objective, gpu: Accelerator, x: Tensor) -> None:
    """Four steps after the outliers have begun, none of which waits for a number."""
    with gpu.waiting():
        objective.to(gpu.device)
    optimizer = torch.optim.AdamW(objective.parameters(), fused=True)
    for step in range(4, 8):
        objective.step = step
        loss = objective(x, torch.arange(16) % 4)
        assert {loss.device, *(term.device for term in objective.terms.values())} == {gpu.device}
        loss.backward()
        torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    for parameter in objective.parameters():
        assert parameter.device == gpu.device


def train_a_step(method: str, gpu: Accelerator) -> None:
    objective = Objective(make(method), 10, class_counts=torch.full((4,), 4)).train()
    steps(objective, gpu, torch.rand(16, 3, 8, 8))


def make_outliers(kind: Any, images: bool, gpu: Accelerator) -> None:
    model, x = make("gem-fi"), torch.rand(16, 3, 8, 8)
    if not images:
        model = build_model("gem-fi", "mlp", 4, in_features=192, width=8, depth=1)
        x = x.flatten(1)
    kinds = OutlierConfig(kind=kind, scrambled=0.5)
    steps(Objective(model, 10, outliers=kinds).train(), gpu, x)


def run_all(method: str, gpu: Accelerator) -> None:
    """Fit (steps, validation, statistics), ask and judge; few numbers are waited for in a step."""
    train, validation = split("train"), split("validation")
    model = on_it(method, gpu)
    config = TrainConfig(epochs=2, batch_size=16, augmentation=Augmentation(crop=1, flip=0.5))
    with patched_step(gpu), gpu.waiting():
        fit(model, train, validation, config, progress=False)
        assert model.head.num_classes == 4
        assert {p.device for p in model.parameters()} == {gpu.device}
        belief = model.predict(split("test"))
        assert belief.log_p.device.type == "cpu"
        assert belief.log_p.dtype == torch.float64
        named = set(model.head.named_scores.values())
        assert named <= set(scores.available(belief))
        with torch.no_grad():
            there = model(torch.rand(3, 3, 8, 8).to(gpu.device))
        for name in scores.available(there):
            assert scores.SCORES[name](there).device == gpu.device
        evaluate(model, split("test"), {"far": split("ood-test")})


@contextlib.contextmanager
def patched_step(gpu: Accelerator) -> Iterator[None]:
    """Let nothing in a step wait, but what says so."""
    step = loop._Run._step

    def strict(run: Any, x: Tensor, y: Tensor) -> None:
        gpu.may_wait = False
        step(run, x, y)
        gpu.may_wait = True

    loop._Run._step = strict  # type: ignore[method-assign]
    try:
        yield
    finally:
        loop._Run._step = step  # type: ignore[method-assign]


def detect(name: str, gpu: Accelerator) -> None:
    model, detector = on_it("softmax", gpu), DETECTORS[name]()
    with gpu.waiting():
        model.finish(split("train"), split("validation"))
        detector.fit(model, split("train"), split("validation"))
        assert detector.score(model, torch.rand(16, 3, 8, 8)).device.type == "cpu"
        assert observe(model, torch.rand(5, 3, 8, 8)).features.device.type == "cpu"
    assert gpu.copies > 0


def awake(gpu: Accelerator) -> None:
    """The accelerator refuses what it should."""
    with gpu.waiting():
        there = torch.ones(3).to(gpu.device)
    assert (there[1:] + torch.tensor(1.0)).device == gpu.device
    with pytest.raises(RuntimeError, match="same device"):
        _ = there + torch.ones(3)
    for wait in (lambda: float(there.sum()), there.cpu, lambda: torch.ones(3).to(gpu.device)):
        with pytest.raises(WaitError):
            wait()


CASES: dict[str, Callable[[Any], None]] = {
    "awake": awake,
    **{f"step of {name}": partial(train_a_step, name) for name in ALONE},
    **{f"all of {name}": partial(run_all, name) for name in METHODS},
    **{f"{kind} of images": partial(make_outliers, kind, True) for kind in KINDS},
    **{f"{kind} of rows": partial(make_outliers, kind, False) for kind in KINDS},
    **{f"detector {name}": partial(detect, name) for name in DETECTORS},
}


@pytest.fixture(scope="module")
def outcome() -> dict[str, str]:
    """Case -> what went wrong."""
    run = subprocess.run(
        [sys.executable, __file__], check=True, capture_output=True, text=True, env=dict(os.environ)
    )
    return json.loads(run.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES)
def test_on_an_accelerator(outcome: dict[str, str], case: str) -> None:
    assert not outcome[case], outcome[case]


def main() -> None:
    """Run the cases, and print what went wrong with each."""
    device = register()
    said = {}
    for name, case in CASES.items():
        gpu = Accelerator(device)
        host = partial(gpu.waiting, answer=True)
        loop.on_host = outliers.on_host = host  # type: ignore[attr-defined,assignment]
        torch.manual_seed(0)
        try:
            with gpu:
                case(gpu)
            said[name] = ""
        except Exception:  # noqa: BLE001 - the test says it
            said[name] = traceback.format_exc()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
