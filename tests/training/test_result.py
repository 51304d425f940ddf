"""What is printed of a fit: short, and the numbers of its history."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gemfi.data import line
from gemfi.model import build_model
from gemfi.training import FitResult, TrainConfig, fit


def record(epoch: int, nll: float | None) -> dict[str, Any]:
    judged = {} if nll is None else {"validation_nll": nll, "validation_accuracy": 90.0 + epoch}
    return {
        "step": epoch,
        "epoch": epoch,
        "loss": 1.5,
        "terms": {"risk": 1.25, "kl": 0.25},
    } | judged


def result(nlls: list[float | None], **changes: Any) -> FitResult:
    history = [record(epoch, nll) for epoch, nll in enumerate(nlls)]
    default: dict[str, Any] = {
        "steps": 40, "seconds": 1.26, "history": history, "best_epoch": None, "notes": [],
        "resumed_at": None,
    }  # fmt: skip
    return FitResult(**default | changes)


def rows(text: str) -> dict[str, list[str]]:
    """The lines of numbers by their titles."""
    wide = len("validation accuracy, %")
    return {line[:wide].strip(): line[wide:].split() for line in text.splitlines()[1:]}


def test_the_first_the_best_and_the_last_epoch() -> None:
    text = str(result([0.9, 0.2, 0.4]))
    assert text.splitlines()[0] == "40 steps, 3 epochs, 1.3 s"
    found = rows(text)
    assert found["epoch"] == ["1", "2", "3"]
    assert found["validation NLL"] == ["0.900", "0.200", "0.400"]
    assert found["validation accuracy, %"] == ["90.00", "91.00", "92.00"]
    assert found["risk"] == ["1.25"] * 3
    assert text.endswith("validation NLL, 0.2 to 0.9: █▁▃")


def test_the_epoch_that_was_kept_is_the_best() -> None:
    text = str(result([0.9, 0.2, 0.4], best_epoch=2, resumed_at=20))
    assert "resumed at step 20; the weights of epoch 3 were kept" in text
    assert rows(text)["epoch"] == ["1", "3", "3"]


def test_without_validation_data() -> None:
    text = str(result([None, None]))
    assert "validation" not in text
    assert "loss, 1.5 to 1.5: ▁▁" in text


def test_without_a_history_and_with_notes() -> None:
    text = str(result([], notes=["a long note " * 20]))
    assert text.startswith("40 steps, 0 epochs, 1.3 s\nnote: a long note")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("nlls", [[math.inf, 0.5, 0.1], [math.inf, math.inf]])
def test_an_infinite_nll_is_a_full_bar(nlls: list[float | None]) -> None:
    assert str(result(nlls)).splitlines()[-1].partition(": ")[2][0] == "█"


def test_a_long_run_fits_a_screen() -> None:
    task = line(n=40)
    model = build_model("gem-fi", "mlp", task.num_classes, in_features=1, width=8)
    found = fit(model, task.train, task.validation, TrainConfig(epochs=2), progress=False)
    long = FitResult(**vars(found) | {"history": found.history * 200})
    lines = f"{long}".splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    assert repr(long) == str(long)
