"""Every method on a device that is not the CPU, without one: `meta` tensors and a strict referee.

Meta tensors have no numbers, so that whatever looks at one (and would wait for a GPU) fails. The
referee refuses an operation on tensors of both devices, as CUDA does; it is stricter in one thing,
for CUDA takes an index from the CPU, and waits for it. What this cannot see: kernels, streams,
memory, the numbers. torch's fake tensors on CUDA would be closer, but a build without CUDA cannot
even slice them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gemfi import devices, scores
from gemfi.bundle import load
from gemfi.data import as_split, two_moons
from gemfi.detectors import DETECTORS, observe
from gemfi.errors import InputError
from gemfi.estimator import GEMClassifier
from gemfi.evaluation import evaluate
from gemfi.methods import METHODS
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.training import Objective, TrainConfig, fit
from support.small_images import make

THERE = torch.device("meta")
IMAGES = torch.rand(16, 3, 8, 8)
LABELS = torch.arange(16) % 4
MOVES = {"aten::_to_copy", "aten::copy_"}


class Referee(TorchDispatchMode):
    """Refuses operations on tensors of two devices; numbers (0-d) of the CPU may go anywhere."""

    def __torch_dispatch__(
        self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        kinds = {x.device.type for x in given if x.ndim or x.device.type != "cpu"}
        if len(kinds) > 1 and operation.name().partition(".")[0] not in MOVES:
            raise AssertionError(f"{operation} mixes {sorted(kinds)}")
        return operation(*args, **kwargs)


def test_the_referee_is_awake() -> None:
    with Referee():
        there = torch.empty(3, device=THERE)
        assert (there + torch.tensor(1.0)).device == THERE
        with pytest.raises(AssertionError, match="mixes"):
            _ = there + torch.ones(3)
        with pytest.raises((RuntimeError, NotImplementedError)):
            float(there.sum())


def finished(method: str) -> Model:
    model = make(method)
    data = torch.cat([IMAGES] * 4), torch.cat([LABELS] * 4)
    model.finish(as_split(*data, role="train"), as_split(*data, role="validation"))
    return model


def move_there(module: nn.Module) -> None:
    """All its tensors, but the counts of VOS, which stay on the CPU."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                part._parameters[name] = nn.Parameter(torch.empty_like(value, device=THERE))
        for name, value in part._buffers.items():
            if value is not None and name not in {"seen", "fresh"}:
                part._buffers[name] = torch.empty_like(value, device=THERE)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ensemble"])
def test_a_step(method: str) -> None:
    objective = Objective(make(method), 10, class_counts=torch.full((4,), 4)).train()
    move_there(objective)
    optimizer = torch.optim.AdamW(objective.parameters())
    with Referee():
        for step in range(4, 8):
            objective.step = step
            loss = objective(IMAGES, LABELS)
            assert {loss.device, *(term.device for term in objective.terms.values())} == {THERE}
            loss.backward()
            torch.nn.utils.clip_grad_norm_(objective.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("method", METHODS)
def test_a_belief_and_its_scores(method: str) -> None:
    model = finished(method)
    move_there(model)
    with Referee(), torch.no_grad():
        belief = model(IMAGES.to(THERE))
        names = scores.available(belief)
        assert model.head.named_scores["epistemic"] in names
        for name in names:
            assert scores.SCORES[name](belief).device == THERE


@pytest.mark.parametrize("kind", ["halo", "vos", "noise", "between", "scrambled"])
@pytest.mark.parametrize("images", [True, False])
def test_outliers(kind: Any, images: bool) -> None:
    outliers = OutlierConfig(kind=kind, scrambled=0.5)
    if images:
        objective = Objective(make("gem-fi"), 10, outliers=outliers).train()
    else:
        model = build_model("gem-fi", "mlp", 4, in_features=192, width=8, depth=1)
        objective = Objective(model, 10, outliers=outliers).train()
    move_there(objective)
    with Referee():
        for step in (5, 6, 7):
            objective.step = step
            x = IMAGES if images else IMAGES.flatten(1)
            assert objective(x, LABELS).device == THERE


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors(name: str) -> None:
    """Those that go back through the model do so there; the others see features on the CPU."""
    model = finished("softmax")
    detector = DETECTORS[name]()
    data = as_split(IMAGES, LABELS, role="train"), as_split(IMAGES, LABELS, role="validation")
    detector.fit(model, *data)
    if detector.needs != "inputs":
        assert detector.score(model, IMAGES).device.type == "cpu"
        return
    move_there(model)
    with Referee():
        assert detector._score_batch(model, IMAGES.to(THERE)).device == THERE


def test_names_of_devices() -> None:
    assert devices.find_device("auto") == devices.find_device("cpu") == torch.device("cpu")
    for name, message in (
        ("cuda", "this torch sees no CUDA device; use auto or cpu"),
        ("cuda:7", "this torch sees no CUDA device"),
        ("mps", "this machine has none"),
        ("gpu", "unknown device 'gpu'; expected auto, cpu, cuda, cuda:N or mps"),
    ):
        with pytest.raises(InputError, match=message):
            devices.find_device(name)


def test_a_device_that_is_not_here_is_refused_everywhere() -> None:
    moons = two_moons(n=60)
    model = finished("softmax")
    asks: list[Callable[[], object]] = [
        lambda: fit(model, moons.train, device="cuda"),
        lambda: model.predict(IMAGES, device="cuda"),
        lambda: observe(model, IMAGES, device="cuda"),
        lambda: evaluate(model, as_split(IMAGES, LABELS, role="test"), device="cuda"),
        lambda: load("mnist-gem-fi", device="cuda"),
        lambda: GEMClassifier(device="cuda").fit(moons.train.x.numpy(), moons.train.labels.numpy()),
    ]
    for ask in asks:
        with pytest.raises(InputError, match="device 'cuda': this torch sees no CUDA device"):
            ask()


def test_half_precision_needs_cuda() -> None:
    moons = two_moons(n=60)
    model = build_model("softmax", "mlp", 2, in_features=2, width=4, depth=1)
    with pytest.raises(InputError, match="precision fp16 needs CUDA"):
        fit(model, moons.train, config=TrainConfig(epochs=1, precision="fp16"))
    result = fit(model, moons.train, config=TrainConfig(epochs=1, precision="auto"), device="auto")
    assert result.steps == 1


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_batch_in_parts_gives_the_gradient_of_the_whole(parts: int) -> None:
    moons = two_moons(n=90)
    models = []
    for accumulate in (1, parts):
        torch.manual_seed(0)
        model = build_model("edl", "mlp", 2, in_features=2, width=8, depth=1)
        config = TrainConfig(
            epochs=2, batch_size=30, optimizer="sgd", learning_rate=0.1, accumulate=accumulate
        )
        fit(model, moons.train, config=config, progress=False)
        models.append(model)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)
