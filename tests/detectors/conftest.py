"""A small model that was not trained, and what it makes of small splits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gemfi import Model, Normalisation, Split, build_model
from gemfi.detectors import Observed, observe

CLASSES, INPUTS, WIDTH = 3, 4, 6
MEAN, STD = (0.1, -0.2, 0.3, 0.0), (0.5, 2.0, 1.0, 0.25)


def wave(*shape: int, phase: float = 0.0) -> Tensor:
    """Numbers that no generator has to make: sines, in float64."""
    count = int(torch.tensor(shape).prod())
    steps = torch.arange(1, count + 1, dtype=torch.float64)
    return torch.sin(1.7 * steps + phase + 0.01 * steps.square()).reshape(shape)


def make_model(method: str = "softmax", *, config: object = None) -> Model:
    """In float64, with weights that are waves."""
    model = build_model(
        method,
        "mlp",
        CLASSES,
        config=config,
        normalisation=Normalisation(MEAN, STD),
        in_features=INPUTS,
        width=WIDTH,
        depth=1,
    ).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            if parameter.ndim:
                parameter.copy_(wave(*parameter.shape, phase=number))
    return model.eval()


def make_split(role: str, count: int, phase: float, spread: float = 1.0) -> Split:
    labels = None if role.startswith("ood") else torch.arange(count) % CLASSES
    x = spread * wave(count, INPUTS, phase=phase)
    if labels is not None:
        x = x + labels[:, None]
    return Split(x, labels, role, role, CLASSES if labels is not None else None)  # type: ignore[arg-type]


TRAIN = make_split("train", 60, 0.0)
VALIDATION = make_split("validation", 30, 1.0)
TEST = make_split("test", 20, 2.0)
OOD_VALIDATION = make_split("ood-validation", 25, 3.0, spread=4.0)
OOD_TEST = make_split("ood-test", 15, 4.0, spread=4.0)


@pytest.fixture
def model() -> Model:
    return make_model()


@pytest.fixture
def train(model: Model) -> Observed:
    return observe(model, TRAIN)


@pytest.fixture
def validation(model: Model) -> Observed:
    return observe(model, VALIDATION)


@pytest.fixture
def test(model: Model) -> Observed:
    return observe(model, TEST)
