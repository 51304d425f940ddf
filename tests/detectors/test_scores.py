"""Each detector without gradients against slow and obvious code, or another library."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.neighbors import NearestNeighbors

from gemfi import Model
from gemfi.detectors import (
    DDU,
    KNN,
    LTS,
    DDUConfig,
    Energy,
    EnergyConfig,
    KNNConfig,
    LTSConfig,
    MaxP,
    Observed,
    TemperatureScaling,
    observe,
)
from gemfi.detectors.single_pass import activation_scale
from gemfi.errors import InputError
from support.detectors import fit_observed

from .conftest import CLASSES, TEST, TRAIN, VALIDATION, WIDTH


def test_maxp(test: Observed) -> None:
    found = MaxP().score_observed(test)
    for row, value in zip(test.logits.tolist(), found.tolist(), strict=True):
        powers = [math.exp(logit) for logit in row]
        assert value == pytest.approx(1 - max(powers) / sum(powers), abs=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 20.0])
def test_energy(test: Observed, temperature: float) -> None:
    found = Energy(EnergyConfig(temperature)).score_observed(test)
    for row, value in zip(test.logits.tolist(), found.tolist(), strict=True):
        total = sum(math.exp(logit / temperature) for logit in row)
        assert value == pytest.approx(-temperature * math.log(total), abs=1e-10)


class TestLTS:
    @pytest.mark.parametrize("percentile", [95.0, 60.0, 50.0, 0.0])
    def test_by_a_loop(self, test: Observed, percentile: float) -> None:
        found = LTS(LTSConfig(percentile)).score_observed(test)
        count = WIDTH - round(WIDTH * percentile / 100)
        for features, logits, value in zip(
            test.features.tolist(), test.logits.tolist(), found.tolist(), strict=True
        ):
            active = sorted((max(each, 0.0) for each in features), reverse=True)
            scale = (sum(active) / sum(active[: max(count, 1)])) ** 2
            total = sum(math.exp(scale * logit) for logit in logits)
            assert value == pytest.approx(-math.log(total), abs=1e-9)

    def test_k_is_five_of_a_hundred(self) -> None:
        features = torch.arange(1.0, 101.0)[None]
        assert float(activation_scale(features, 95.0)) == pytest.approx((5050 / 490) ** 2)

    def test_few_features_leave_one(self) -> None:
        features = torch.tensor([[3.0, 1.0, -5.0]])
        assert float(activation_scale(features, 95.0)) == pytest.approx((4 / 3) ** 2)

    def test_no_activation_leaves_the_logits(self) -> None:
        assert activation_scale(-torch.rand(4, 5), 95.0).tolist() == [1.0] * 4


class TestTemperature:
    def test_against_another_optimiser(self, train: Observed, validation: Observed) -> None:
        labels = validation.logits.argmax(dim=1)
        labels[::5] = (labels[::5] + 1) % CLASSES  # some are wrong, so there is a T
        confused = replace(validation, y=labels)
        detector = TemperatureScaling()
        fit_observed(detector, train, confused)
        logits = validation.logits.numpy()

        def nll(log_t: float) -> float:
            scaled = logits / math.exp(log_t)
            norm = np.log(np.exp(scaled).sum(axis=1))
            return float((norm - scaled[np.arange(len(labels)), labels.numpy()]).mean())

        best = minimize_scalar(nll, bounds=(-2.9, 2.9), method="bounded", options={"xatol": 1e-9})
        assert float(detector.log_temperature) == pytest.approx(best.x, abs=1e-5)
        powers = np.exp(logits / math.exp(best.x))
        wanted = 1 - (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
        np.testing.assert_allclose(detector.score_observed(confused).numpy(), wanted, atol=1e-6)
        assert detector.notes == [
            f"T = {math.exp(best.x):.4g}, fitted on {len(VALIDATION)} validation samples"
        ]

    def test_a_bound_is_said(self, train: Observed, validation: Observed) -> None:
        right = replace(validation, y=validation.logits.argmax(dim=1))
        detector = TemperatureScaling()
        fit_observed(detector, train, right)
        (note,) = detector.notes
        assert note.startswith(f"T = 0.05, fitted on {len(VALIDATION)} validation samples: a bound")


class TestDDU:
    def test_against_scipy(self, train: Observed, validation: Observed, test: Observed) -> None:
        detector = DDU(DDUConfig(ridge=1e-3))
        fit_observed(detector, train, validation)
        z, y = train.features.numpy(), TRAIN.labels.numpy()
        parts = [z[y == c] for c in range(CLASSES)]
        scatter = sum((part - part.mean(0)).T @ (part - part.mean(0)) for part in parts)
        ridge = 1e-3 * np.diag(scatter / len(z)).mean() * np.eye(WIDTH)
        density = np.zeros(len(test))
        for part in parts:
            covariance = np.cov(part.T, bias=True) + ridge
            normal = multivariate_normal(part.mean(0), covariance)
            density += len(part) / len(z) * normal.pdf(test.features.numpy())
        np.testing.assert_allclose(
            detector.score_observed(test).numpy(), -np.log(density), rtol=1e-8
        )

    def test_many_inputs_are_scored_in_pieces(
        self, model: Model, train: Observed, validation: Observed
    ) -> None:
        detector = DDU()
        fit_observed(detector, train, validation)
        many = observe(model, TEST.subset(list(range(len(TEST))) * 60))
        found = detector.score_observed(many)
        assert found.shape == (1200,)
        torch.testing.assert_close(found[-20:], found[:20])

    def test_a_class_that_has_no_samples_takes_no_part(
        self, train: Observed, validation: Observed, test: Observed
    ) -> None:
        two = replace(train, y=TRAIN.labels.clamp(max=1))
        detector = DDU()
        fit_observed(detector, two, validation)
        assert bool(torch.isfinite(detector.score_observed(test)).all())
        assert "class 2 has no samples" in detector.notes[0]


class TestKNN:
    @pytest.mark.parametrize("k", [1, 7, len(TRAIN)])
    def test_against_sklearn(
        self, train: Observed, validation: Observed, test: Observed, k: int
    ) -> None:
        detector = KNN(KNNConfig(k))
        fit_observed(detector, train, validation)
        unit = [
            each.numpy() / np.linalg.norm(each.numpy(), axis=1, keepdims=True)
            for each in (train.features, test.features)
        ]
        distance, _ = NearestNeighbors(n_neighbors=k).fit(unit[0]).kneighbors(unit[1])
        np.testing.assert_allclose(
            detector.score_observed(test).numpy(), distance[:, -1], atol=1e-7
        )
        assert detector.notes == []

    def test_fifty_by_default_and_no_more_than_there_are(
        self, train: Observed, validation: Observed, test: Observed
    ) -> None:
        usual, fifty, all_of_them, more = (
            KNN(), KNN(KNNConfig(50)), KNN(KNNConfig(len(TRAIN))), KNN(KNNConfig(500)),
        )  # fmt: skip
        for each in (usual, fifty, all_of_them, more):
            fit_observed(each, train, validation)
        assert torch.equal(usual.score_observed(test), fifty.score_observed(test))
        assert torch.equal(more.score_observed(test), all_of_them.score_observed(test))
        assert not torch.equal(more.score_observed(test), usual.score_observed(test))


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (EnergyConfig, {"temperature": 0.0}),
        (LTSConfig, {"percentile": 101.0}),
        (DDUConfig, {"ridge": 0.0}),
        (DDUConfig, {"shrinkage": 1.5}),
        (KNNConfig, {"k": 0}),
    ],
)
def test_bad_settings_are_refused(config: type, values: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(values))} must be"):
        config(**values)
