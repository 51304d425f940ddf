"""Temperature scaling against another optimiser, its degenerate cases, and beliefs at T."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from gemfi import Belief
from gemfi.calibration import HIGHEST, LOWEST, at_bound, calibrated, fit_temperature
from gemfi.errors import InputError


def sample(seed: int, sharpness: float, count: int = 300, classes: int = 4) -> Any:
    """Log-probabilities that are too sharp or too flat by a known factor, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]
    return torch.log_softmax(sharpness * logits, dim=1), labels


def nll(log_probs: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """By hand: p^(1/T) renormalised, in a loop."""
    total = 0.0
    for row, label in zip(log_probs, labels, strict=True):
        powers = [math.exp(value / temperature) for value in row]
        total -= math.log(powers[label] / sum(powers))
    return total / len(labels)


@pytest.mark.parametrize("sharpness", [0.2, 0.7, 1.0, 3.0, 8.0])
def test_it_is_the_optimum_of_another_optimiser(sharpness: float) -> None:
    log_probs, labels = sample(0, sharpness)
    found = fit_temperature(log_probs, labels)
    assert found.dtype == torch.float64
    assert found.shape == ()
    best = minimize_scalar(
        lambda t: nll(log_probs.numpy(), labels.numpy(), math.exp(t)),
        bounds=(-4, 4),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert float(found) == pytest.approx(best.x, abs=1e-6)
    assert float(found) == pytest.approx(math.log(sharpness), abs=0.3)


def test_the_slope_at_the_optimum_is_zero_to_the_last_digits() -> None:
    log_probs, labels = sample(1, 2.5)
    beta = torch.exp(-fit_temperature(log_probs, labels)).requires_grad_()
    loss = torch.nn.functional.nll_loss(torch.log_softmax(beta * log_probs, dim=1), labels)
    (slope,) = torch.autograd.grad(loss, beta)
    assert abs(float(slope)) < 1e-13


def test_float32_and_a_class_of_probability_zero_are_no_obstacle() -> None:
    log_probs, labels = sample(2, 2.0)
    assert float(fit_temperature(log_probs.float(), labels)) == pytest.approx(
        float(fit_temperature(log_probs, labels)), abs=1e-5
    )
    never = torch.full((len(labels), 1), -math.inf, dtype=torch.float64)
    widened = torch.cat([log_probs, never], dim=1)
    assert torch.equal(fit_temperature(widened, labels), fit_temperature(log_probs, labels))


class TestDegenerate:
    def test_all_right_is_the_lower_bound(self) -> None:
        log_probs, _ = sample(3, 1.0)
        found = fit_temperature(log_probs, log_probs.argmax(dim=1))
        assert float(found) == math.log(LOWEST)
        assert at_bound(found)

    def test_fully_confident_and_right_changes_nothing(self) -> None:
        certain = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
        assert float(fit_temperature(certain, torch.tensor([0, 1]))) == 0.0

    def test_all_wrong_is_the_upper_bound(self) -> None:
        log_probs, _ = sample(3, 1.0)
        found = fit_temperature(log_probs, log_probs.argmin(dim=1))
        assert float(found) == math.log(HIGHEST)
        assert at_bound(found)

    def test_an_optimum_is_not_a_bound(self) -> None:
        assert not at_bound(fit_temperature(*sample(0, 3.0)))

    def test_uniform_predictions_keep_their_temperature(self) -> None:
        uniform = torch.full((5, 4), -math.log(4), dtype=torch.float64)
        assert float(fit_temperature(uniform, torch.arange(5) % 4)) == 0.0

    def test_labels_of_one_class_are_a_fit_like_any_other(self) -> None:
        log_probs, _ = sample(4, 1.0)
        assert math.isfinite(float(fit_temperature(log_probs, torch.zeros(300, dtype=torch.long))))

    @pytest.mark.parametrize(
        ("log_probs", "labels", "words"),
        [
            (torch.zeros(3, 1), torch.zeros(3).long(), "at least two classes"),
            (torch.zeros(0, 3), torch.zeros(0).long(), "N at least 1"),
            (torch.zeros(4), torch.zeros(4).long(), r"\(N, C\)"),
            (torch.randn(4, 3), torch.zeros(4).long(), "log_softmax first"),
            (torch.full((4, 3), math.nan), torch.zeros(4).long(), "log_softmax first"),
            (torch.full((2, 2), 0.5).log(), torch.tensor([0, 2]), r"0\.\.1, found 0\.\.2"),
            (torch.tensor([[0.0, -math.inf]]), torch.tensor([1]), "sample 0 .* probability 0"),
        ],
    )
    def test_what_has_no_temperature_is_refused(
        self, log_probs: Any, labels: Any, words: str
    ) -> None:
        with pytest.raises(InputError, match=words):
            fit_temperature(log_probs, labels)


class TestCalibrated:
    def belief(self) -> Belief:
        log_p, _ = sample(5, 1.0, count=6)
        gate = torch.log_softmax(torch.arange(24, dtype=torch.float64).sin().view(6, 4), dim=1)
        return Belief(log_p[:, None], torch.zeros(6, 1, dtype=torch.float64), log_gate=gate)

    def test_it_is_the_power_of_the_predictive_distribution(self) -> None:
        belief = self.belief()
        found = calibrated(belief, math.log(2.0)).probs().numpy()
        powers = belief.probs().numpy() ** 0.5
        np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), rtol=1e-12)

    def test_temperatures_multiply(self) -> None:
        belief = self.belief()
        twice = calibrated(calibrated(belief, math.log(2.0)), torch.tensor(math.log(3.0)))
        once = calibrated(belief, math.log(6.0))
        torch.testing.assert_close(twice.log_probs(), once.log_probs(), rtol=1e-7, atol=1e-7)

    def test_a_second_fit_finds_nothing_left(self) -> None:
        log_probs, labels = sample(6, 4.0)
        belief = Belief(log_probs[:, None], torch.zeros(300, 1, dtype=torch.float64))
        better = calibrated(belief, fit_temperature(belief.log_probs(), labels))
        assert float(fit_temperature(better.log_probs(), labels)) == pytest.approx(0, abs=1e-12)

    @pytest.mark.parametrize("bad", [math.nan, math.inf, torch.zeros(2)])
    def test_it_takes_one_finite_number(self, bad: Any) -> None:
        with pytest.raises(InputError, match="one finite number"):
            calibrated(self.belief(), bad)
