"""Small models of the digits, trained for the tests that ask a model and do not train one."""

from __future__ import annotations

import torch

from gemfi import Model, Task, TrainConfig, build_model, fit


def trained_on(task: Task, method: str, *, epochs: int, channels: int) -> Model:
    """A model of the digits, the same each time."""
    torch.manual_seed(0)
    model = build_model(method, "convnet", task.num_classes, size=8, channels=channels)
    config = TrainConfig(epochs=epochs, batch_size=32, learning_rate=5e-3)
    fit(model, task.train, task.validation, config, progress=False)
    return model
