"""ODIN and the Mahalanobis distance with noise and layers, against gradients by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from gemfi import Model, Normalisation, Split, build_model, metrics
from gemfi.detectors import ODIN, Mahalanobis, MahalanobisConfig, Observed, ODINConfig, observe
from gemfi.detectors.gradients import CANDIDATES, layer_features
from gemfi.errors import InputError, RoleError
from support.detectors import fit_observed

from .conftest import (
    CLASSES,
    OOD_TEST,
    OOD_VALIDATION,
    TEST,
    TRAIN,
    VALIDATION,
    WIDTH,
    make_model,
)

STEPS = (4.0, 0.6, 0.0, 0.0014)


def numeric_step(model: Model, x: Tensor, temperature: float, epsilon: float) -> Tensor:
    """ODIN's input, its gradient by central differences."""
    moved, width = x.clone(), 1e-6
    for row in range(len(x)):
        label = int(model(x[row : row + 1]).labels())
        for column in range(x.shape[1]):
            losses = []
            for sign in (1, -1):
                near = x[row : row + 1].clone()
                near[0, column] += sign * width
                logits = model(near).need("logits")[0, 0] / temperature
                losses.append(float(torch.logsumexp(logits, 0) - logits[label]))
            moved[row, column] -= epsilon * np.sign(losses[0] - losses[1])
    return moved


class TestODIN:
    @pytest.mark.parametrize(("temperature", "epsilon"), [(1000.0, 0.0014), (1.0, 0.3)])
    def test_against_central_differences(
        self, model: Model, temperature: float, epsilon: float
    ) -> None:
        x = TEST.x[:6].double()
        with torch.no_grad():
            moved = numeric_step(model, x, temperature, epsilon)
            p = torch.softmax(model(moved).need("logits")[:, 0] / temperature, dim=1)
        found = ODIN(ODINConfig(temperature, epsilon)).score(model, x)
        torch.testing.assert_close(found, 1 - p.amax(dim=1), rtol=0, atol=1e-10)

    def test_a_step_makes_the_predicted_class_more_likely(self, model: Model) -> None:
        still = ODIN(ODINConfig(10.0, 0.0)).score(model, TEST.x)
        moved = ODIN(ODINConfig(10.0, 0.01)).score(model, TEST.x)
        assert bool((moved < still).all())

    def test_no_step_is_the_temperature_alone(self, model: Model, test: Observed) -> None:
        found = ODIN(ODINConfig(5.0, 0.0)).score(model, TEST.x)
        wanted = 1 - torch.softmax(test.logits / 5, dim=1).amax(dim=1)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)

    def test_bytes_are_scaled_as_the_model_does(self) -> None:
        torch.manual_seed(0)
        model = build_model(
            "softmax", "convnet", 3, size=8, channels=2, normalisation=Normalisation((0.4,), (0.2,))
        )
        images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
        detector = ODIN(ODINConfig(2.0, 0.05))
        found = detector.score(model, images)
        assert torch.equal(found, detector.score(model, images.float() / 255))
        assert not torch.equal(found, ODIN(ODINConfig(2.0, 0.0)).score(model, images))

    def test_probabilities_are_in_float64_for_a_model_of_float32(self) -> None:
        """At T = 1000 all scores are near 1 − 1/C, and float32 has seven digits."""
        model = make_model().float()
        with torch.no_grad():
            logits = model(TEST.x).need("logits")[:, 0].double()
        wanted = 1 - torch.softmax(logits / 1000, dim=1).amax(dim=1)
        found = ODIN(ODINConfig(epsilon=0.0)).score(model, TEST.x)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)

    def test_it_works_inside_no_grad_and_in_batches(self, model: Model) -> None:
        with torch.no_grad():
            found = ODIN().score(model, TEST.x, batch_size=7)
        torch.testing.assert_close(found, ODIN().score(model, TEST.x), rtol=0, atol=1e-14)

    @pytest.mark.parametrize("method", ["edl", "gem-fi"])
    def test_other_heads_have_gradients_too(self, method: str) -> None:
        torch.manual_seed(0)
        model = build_model(method, "mlp", CLASSES, in_features=4, width=WIDTH, depth=1)
        still = ODIN(ODINConfig(10.0, 0.0)).score(model, TEST.x)
        moved = ODIN(ODINConfig(10.0, 0.001)).score(model, TEST.x)
        assert float((moved < still).double().mean()) > 0.8

    @pytest.mark.parametrize("values", [{"temperature": 0.0}, {"epsilon": -0.1}])
    def test_bad_settings_are_refused(self, values: dict[str, float]) -> None:
        with pytest.raises(InputError, match=f"{next(iter(values))} must be"):
            ODINConfig(**values)


class TestChooseEpsilon:
    def worths(self, model: Model, outside: Split | None) -> dict[float, float]:
        found = {}
        for epsilon in STEPS:
            detector = ODIN(ODINConfig(1000.0, epsilon))
            inside = detector.score(model, VALIDATION.x)
            found[epsilon] = float((1 - inside).mean())
            if outside is not None:
                found[epsilon] = metrics.auroc(inside, detector.score(model, outside.x))
        return found

    @pytest.mark.parametrize("outside", [None, OOD_VALIDATION])
    def test_it_is_the_best_of_the_candidates(self, model: Model, outside: Split | None) -> None:
        worth = self.worths(model, outside)
        found = ODIN.choose_epsilon(model, VALIDATION, outside, candidates=STEPS)
        assert worth[found] == max(worth.values())

    def test_the_two_ways_differ(self, model: Model) -> None:
        alone = ODIN.choose_epsilon(model, VALIDATION, candidates=STEPS)
        judged = ODIN.choose_epsilon(model, VALIDATION, OOD_VALIDATION, candidates=STEPS)
        assert alone != judged

    def test_of_equals_it_is_the_smallest(self, model: Model) -> None:
        for outside in (None, OOD_VALIDATION):  # steps so small that float64 does not see them
            found = ODIN.choose_epsilon(model, VALIDATION, outside, candidates=(2e-30, 1e-30))
            assert found == 1e-30

    def test_by_default_no_step_is_a_candidate(self, model: Model) -> None:
        assert 0.0 in CANDIDATES
        assert ODIN.choose_epsilon(model, VALIDATION) in CANDIDATES

    def test_roles(self, model: Model) -> None:
        for inside in (TRAIN, TEST, OOD_VALIDATION):
            with pytest.raises(RoleError, match="the choice of ODIN's step as ID data refuses"):
                ODIN.choose_epsilon(model, inside)
        for outside in (OOD_TEST, VALIDATION, TEST):
            with pytest.raises(RoleError, match="the choice of ODIN's step as OOD data refuses"):
                ODIN.choose_epsilon(model, VALIDATION, outside)

    def test_it_needs_a_candidate(self, model: Model) -> None:
        with pytest.raises(InputError, match="at least one candidate"):
            ODIN.choose_epsilon(model, VALIDATION, candidates=())


def squared(train: np.ndarray, y: np.ndarray, z: np.ndarray, ridge: float) -> np.ndarray:
    """Distances to the nearest class mean, written out."""
    means = [train[y == c].mean(axis=0) for c in range(CLASSES)]
    centred = np.concatenate([train[y == c] - means[c] for c in range(CLASSES)])
    covariance = centred.T @ centred / len(train)
    covariance += ridge * np.diag(covariance).mean() * np.eye(len(covariance))
    inverse = np.linalg.inv(covariance)
    return np.array([min((row - m) @ inverse @ (row - m) for m in means) for row in z])


class TestMahalanobis:
    def test_against_numpy(self, train: Observed, validation: Observed, test: Observed) -> None:
        detector = Mahalanobis(MahalanobisConfig(ridge=1e-3))
        fit_observed(detector, train, validation)
        wanted = squared(train.features.numpy(), TRAIN.labels.numpy(), test.features.numpy(), 1e-3)
        np.testing.assert_allclose(detector.score_observed(test).numpy(), wanted, rtol=1e-9)

    def test_a_class_without_samples_is_never_the_nearest(
        self, train: Observed, validation: Observed, test: Observed
    ) -> None:
        labels = TRAIN.labels.clamp(min=1)
        two = replace(train, y=labels)
        detector = Mahalanobis()
        fit_observed(detector, two, validation)
        z = train.features.numpy()
        parts = [z[labels.numpy() == c] for c in (1, 2)]
        centred = np.concatenate([part - part.mean(axis=0) for part in parts])
        covariance = centred.T @ centred / len(z)
        covariance += 1e-4 * np.diag(covariance).mean() * np.eye(WIDTH)
        away = [test.features.numpy() - part.mean(axis=0) for part in parts]
        wanted = [np.einsum("nd,nd->n", a @ np.linalg.inv(covariance), a) for a in away]
        np.testing.assert_allclose(
            detector.score_observed(test).numpy(), np.minimum(*wanted), rtol=1e-8
        )

    def test_noise_moves_the_input_towards_the_nearest_class(
        self, model: Model, train: Observed, validation: Observed, test: Observed
    ) -> None:
        still, noisy = Mahalanobis(), Mahalanobis(MahalanobisConfig(noise=1e-3))
        for each in (still, noisy):
            fit_observed(each, train, validation)
        assert bool((noisy.score(model, TEST.x) < still.score_observed(test)).all())

    def test_layers_need_their_own_fit(self, train: Observed, validation: Observed) -> None:
        with pytest.raises(InputError, match=r"fit_layers\(model, train, inside, outside\)"):
            fit_observed(Mahalanobis(MahalanobisConfig(layers=("first",))), train, validation)

    @pytest.mark.parametrize("layers", ["first", ("first", "first")])
    def test_bad_layers_are_refused(self, layers: tuple[str, ...]) -> None:
        with pytest.raises(InputError, match="layers must be"):
            MahalanobisConfig(layers=layers)


class TestLayers:
    def test_the_weights_are_a_logistic_regression(self, model: Model) -> None:
        detector = Mahalanobis(MahalanobisConfig(layers=("first",), ridge=1e-3))
        detector.fit_layers(model, TRAIN, VALIDATION, OOD_VALIDATION)

        def table(split: Split) -> np.ndarray:
            columns = []
            for index in range(2):
                z, fitted = (
                    layer_features(model, each.x.double(), ("first",))[index].detach().numpy()
                    for each in (split, TRAIN)
                )
                columns.append(squared(fitted, TRAIN.labels.numpy(), z, 1e-3))
            return np.stack(columns, axis=1)

        both = np.concatenate([table(VALIDATION), table(OOD_VALIDATION)])
        centre, spread = both.mean(axis=0), both.std(axis=0, ddof=1)
        target = [0] * len(VALIDATION) + [1] * len(OOD_VALIDATION)
        regression = LogisticRegression(max_iter=1000).fit((both - centre) / spread, target)
        wanted = regression.decision_function((table(TEST) - centre) / spread)
        found = detector.score(model, TEST.x)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-3, atol=1e-3)
        assert metrics.auroc(found, detector.score(model, OOD_TEST.x)) > 80
        assert detector.notes[0].startswith("weights of the standardised distances: first ")

    def test_noise_acts_on_each_layer(self, model: Model) -> None:
        still = Mahalanobis(MahalanobisConfig(layers=("first",)))
        noisy = Mahalanobis(MahalanobisConfig(layers=("first",), noise=1e-3))
        for each in (still, noisy):
            each.fit_layers(model, TRAIN, VALIDATION, OOD_VALIDATION)
        x = TEST.x.double()
        assert bool((noisy._distances(model, x) < still._distances(model, x)).all())

    def test_space_is_averaged_and_hooks_are_gone(self) -> None:
        torch.manual_seed(0)
        model = build_model("softmax", "convnet", 3, size=8, channels=2)
        images = torch.rand(4, 1, 8, 8)
        first, features = layer_features(model, images, ("convs.0",))
        torch.testing.assert_close(first, model.backbone.convs[0](images).mean(dim=(2, 3)))
        assert torch.equal(features, model.features(images))
        assert not model.backbone.convs[0]._forward_hooks

    def test_unknown_layers_are_refused(self, model: Model) -> None:
        with pytest.raises(InputError, match=r"no module 'last'; it has first, blocks, blocks\.0"):
            layer_features(model, TEST.x.double(), ("last",))
        with pytest.raises(InputError, match="'blocks' of the backbone takes no part"):
            layer_features(model, TEST.x.double(), ("blocks",))

    def test_roles(self, model: Model) -> None:
        detector = Mahalanobis(MahalanobisConfig(layers=("first",)))
        good = (TRAIN, VALIDATION, OOD_VALIDATION)
        for place, bad in ((0, TEST), (1, TEST), (1, TRAIN), (2, OOD_TEST), (2, TEST)):
            splits = [*good[:place], bad, *good[place + 1 :]]
            with pytest.raises(RoleError, match="fitting the layers of a Mahalanobis detector as"):
                detector.fit_layers(model, *splits)


def test_observing_in_float32_agrees(train: Observed) -> None:
    """The waves are in float64; a model of float32 gives the same features, less precisely."""
    found = observe(make_model().float(), TRAIN)
    torch.testing.assert_close(found.features.double(), train.features, rtol=1e-4, atol=1e-4)
