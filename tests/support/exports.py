"""Small trained models and their graphs, which take seconds to make: tests share them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from gemfi import Model, Normalisation, TrainConfig, build_model, fit
from gemfi.data import Role, Split
from gemfi.decisions import Policy
from gemfi.export import Deployed, to_onnx, to_program
from gemfi.spectral import SOFT

CENTRES = torch.tensor([[2.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]])
GOAL = "false_alarm=0.1,coverage=0.8"


def rows(count: int, role: str, seed: int) -> Split:
    """Three blobs in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = CENTRES[y] + 0.7 * torch.randn(count, 4, generator=generator)
    return Split(x, y, Role(role), "blobs", 3, class_names=("a", "b", "c"))


def images(count: int, role: str, seed: int) -> Split:
    """Bytes (1, 8, 8) with a bright row, one of three, or noise where there are no labels."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = torch.randint(0, 90, (count, 1, 8, 8), generator=generator)
    if role != "ood-validation":
        x[torch.arange(count), 0, 2 * y + 1] += 130
    labels = None if role == "ood-validation" else y
    classes = None if labels is None else 3
    return Split(x.to(torch.uint8), labels, Role(role), "bars", classes)


def mixed(count: int) -> torch.Tensor:
    """Rows of the blobs, and as many from near to far off them."""
    generator = torch.Generator().manual_seed(9)
    far = torch.randn(count - count // 2, 4, generator=generator)
    spread = torch.linspace(0.5, 12, len(far)).unsqueeze(1)
    return torch.cat([rows(count // 2, "validation", 8).x, spread * far])


@cache
def row_model(method: str) -> Model:
    """A method on blobs, after a few steps."""
    torch.manual_seed(0)
    train = rows(300, "train", 0)
    model = build_model(
        method, "mlp", 3, in_features=4, width=16, normalisation=Normalisation.of(train)
    )
    fit(model, train, rows(99, "validation", 1), TrainConfig(epochs=4, batch_size=50))
    return model


def row_policy(model: Model, **options: Any) -> Policy:
    return Policy.fit(model, rows(300, "calibration", 2), GOAL, **options)


@dataclass(frozen=True)
class Made:
    """A module with its graphs."""

    model: Model
    deployed: Deployed
    program: Any
    proto: Any

    @property
    def data(self) -> bytes:
        found: bytes = self.proto.SerializeToString()
        return found


@cache
def bar_model() -> Made:
    """GEM-FI on bytes, with spectral norms, a temperature and p-values within each class."""
    torch.manual_seed(0)
    model = build_model(
        "gem-fi", "convnet", 3, in_channels=1, size=8, channels=16, hidden=(16,), spectral=SOFT
    )
    fit(
        model,
        images(150, "train", 0),
        images(60, "validation", 1),
        TrainConfig(epochs=10, batch_size=25, learning_rate=1e-2),
    )
    model.set_temperature(0.2)
    model.inputs = replace(model.inputs, class_names=("top", "middle", "bottom"))
    calibration = images(300, "calibration", 2)
    deployed = Deployed(model, Policy.fit(model, calibration, GOAL, conditional=True))
    program = to_program(deployed)
    return Made(model, deployed, program, to_onnx(deployed, program))
