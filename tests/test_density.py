"""Densities against numpy and scipy: statistics, class Gaussians, the scaler ρ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch import Tensor

from gemfi import density
from gemfi.density import ClassGaussians, DensityScaler, Statistics
from gemfi.detectors.gradients import nearest
from gemfi.errors import InputError

CLASSES, FEATURES = 3, 4


def blobs(
    counts: tuple[int, ...] = (60, 25, 40), features: int = FEATURES, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Correlated classes of unequal size and spread, shuffled, in float64."""
    rng = np.random.default_rng(seed)
    z, y = [], []
    for label, count in enumerate(counts):
        mix = rng.normal(size=(features, features)) * (0.5 + label)
        z.append(rng.normal(size=(count, features)) @ mix + 4 * rng.normal(size=features))
        y += [label] * count
    order = rng.permutation(len(y))
    return torch.tensor(np.concatenate(z)[order]), torch.tensor(y)[order]


def gather(z: Tensor, y: Tensor, sizes: list[int] | None = None, tied: bool = False) -> Statistics:
    statistics = Statistics(int(y.max()) + 1, z.shape[1], tied=tied)
    sizes = [len(z)] if sizes is None else sizes
    for part, labels in zip(z.split(sizes), y.split(sizes), strict=True):
        statistics.update(part, labels)
    return statistics


def covariance_of(rows: Tensor) -> np.ndarray:
    return np.cov(rows.numpy(), rowvar=False, bias=True).reshape(rows.shape[1], -1)


def pooled(z: Tensor, y: Tensor) -> np.ndarray:
    """Within-class covariance of all, by numpy."""
    parts = [(y == label).sum().item() * covariance_of(z[y == label]) for label in y.unique()]
    return np.sum(parts, axis=0) / len(y)


def log_density_of(
    z: Tensor, y: Tensor, at: Tensor, tied: bool, shrinkage: float = 0.3, ridge: float = 1e-4
) -> np.ndarray:
    """log Σ_c (n_c/n) N(z; μ_c, (1 − s)·S_c + s·S + r·I), a class with one sample taking S."""
    shared = pooled(z, y)
    parts = []
    for label in y.unique():
        rows = z[y == label]
        own = shared if tied or len(rows) < 2 else covariance_of(rows)
        matrix = (1 - shrinkage) * own + shrinkage * shared
        matrix = matrix + ridge * np.diag(shared).mean() * np.eye(len(matrix))
        gaussian = multivariate_normal(rows.numpy().mean(axis=0), matrix)
        log_p = np.atleast_1d(gaussian.logpdf(at.numpy()))
        parts.append(math.log(len(rows) / len(y)) + log_p)
    return logsumexp(parts, axis=0)


def fitted(z: Tensor, y: Tensor, *, classes: int | None = None, **options: Any) -> ClassGaussians:
    model = ClassGaussians(classes or int(y.max()) + 1, z.shape[1], **options).to(z.dtype)
    statistics = model.statistics()
    statistics.update(z, y)
    model.fit(statistics)
    return model


def assert_same(one: Statistics, other: Statistics, scale: float = 1.0) -> None:
    """Equal counts, means and covariances, whatever the origins."""
    assert torch.equal(one.count, other.count)
    close = {"rtol": 1e-9, "atol": 1e-10 * scale}
    torch.testing.assert_close(one.means() + one.origin, other.means() + other.origin, **close)
    torch.testing.assert_close(one.tied_covariance(), other.tied_covariance(), **close)
    if not one.tied:
        for label in range(len(one.count)):
            torch.testing.assert_close(one.covariance(label), other.covariance(label), **close)


# ---------------------------------------------------------------- statistics


class TestStatistics:
    def test_is_numpys(self) -> None:
        z, y = blobs()
        found = gather(z, y, [50, 75])
        assert found.count.tolist() == [60, 25, 40]
        for label in range(CLASSES):
            rows = z[y == label]
            mean = found.means()[label] + found.origin
            np.testing.assert_allclose(mean, rows.numpy().mean(axis=0), rtol=1e-12)
            np.testing.assert_allclose(found.covariance(label), covariance_of(rows), rtol=1e-9)
        np.testing.assert_allclose(found.tied_covariance(), pooled(z, y), rtol=1e-9)

    @pytest.mark.parametrize("tied", [False, True])
    @pytest.mark.parametrize("sizes", [[125], [1] * 125, [3, 100, 22], [0, 60, 0, 65], [124, 1]])
    def test_batches_of_any_size_and_order_are_one_pass(self, sizes: list[int], tied: bool) -> None:
        z, y = blobs()
        order = torch.randperm(len(z), generator=torch.Generator().manual_seed(len(sizes)))
        assert_same(gather(z[order], y[order], sizes, tied), gather(z, y, None, tied))

    @pytest.mark.parametrize("options", [{}, {"tied": True}, {"sketch": 2}])
    def test_parts_with_origins_of_their_own_add_up(self, options: dict[str, Any]) -> None:
        """As those of several processes do."""
        z, y = blobs()
        whole, first, second = (Statistics(CLASSES, FEATURES, **options) for _ in range(3))
        whole.update(z, y)
        first.update(z[:40], y[:40])
        second.update(z[40:], y[40:])
        assert not torch.allclose(first.origin, second.origin)
        for part in (first, second):
            part.move(whole.origin)
        for one, other, expected in zip(first.sums(), second.sums(), whole.sums(), strict=True):
            torch.testing.assert_close(one + other, expected, rtol=1e-10, atol=1e-10)

    def test_tied_is_the_sum_of_the_classes(self) -> None:
        z, y = blobs()
        one, other = gather(z, y, tied=True), gather(z, y)
        assert one.outer.shape == (1, FEATURES, FEATURES)
        torch.testing.assert_close(one.tied_covariance(), other.tied_covariance())

    @pytest.mark.parametrize("tied", [False, True])
    def test_a_large_mean_does_not_swallow_a_small_spread(self, tied: bool) -> None:
        z, y = blobs()
        small, large = 1e-3 * z, 1e-3 * z + 1e4
        both = torch.cat([large, large + 1e-2])
        found = gather(both, torch.cat([y, y]), [10, 60, 180], tied)
        expected = gather(torch.cat([small, small + 1e-2]), torch.cat([y, y]), None, tied)
        # float64 holds 1e4 + 1e-3 to nine digits of the spread; Σzzᵀ about zero would hold none
        torch.testing.assert_close(
            found.tied_covariance(), expected.tied_covariance(), rtol=1e-5, atol=1e-12
        )

    def test_float32_features_are_gathered_in_float64(self) -> None:
        z, y = blobs()
        assert_same(gather(z.float(), y, [25, 100]), gather(z.float().double(), y))

    @pytest.mark.parametrize(
        ("z", "y"),
        [
            (torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64)),
            (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64)),
            (torch.zeros(4), torch.zeros(4, dtype=torch.int64)),
        ],
    )
    def test_wrong_shapes(self, z: Tensor, y: Tensor) -> None:
        with pytest.raises(InputError, match=r"expected features \(B, 4\) with B labels"):
            Statistics(CLASSES, FEATURES).update(z, y)


# ---------------------------------------------------------------- class Gaussians


class TestClassGaussians:
    @pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_is_scipys(self, covariance: Any, shrinkage: float) -> None:
        z, y = blobs()
        at = torch.cat([z, 30 * torch.randn(20, FEATURES, dtype=torch.float64)])
        found = fitted(z, y, covariance=covariance, shrinkage=shrinkage)(at)
        expected = log_density_of(z, y, at, covariance == "tied", shrinkage)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-8)

    def test_knows_whether_it_is_fitted(self) -> None:
        z, y = blobs()
        assert not ClassGaussians(CLASSES, FEATURES).fitted
        assert fitted(z, y).fitted

    @pytest.mark.parametrize("ridge", [1e-4, 0.1])
    def test_the_ridge_is_in_units_of_the_mean_variance(self, ridge: float) -> None:
        z, y = blobs()
        found = fitted(z, y, ridge=ridge)(z)
        np.testing.assert_allclose(found, log_density_of(z, y, z, False, ridge=ridge), rtol=1e-9)
        scaled = fitted(10 * z, y, ridge=ridge)(10 * z)
        # a change of units moves log p by −D log 10
        np.testing.assert_allclose(scaled, found - FEATURES * math.log(10), rtol=1e-9)

    def test_one_class_in_one_dimension_by_hand(self) -> None:
        z = torch.tensor([[1.0], [3.0]], dtype=torch.float64)  # mean 2, variance 1
        found = fitted(z, torch.tensor([0, 0]), ridge=0.0)(torch.tensor([[5.0]]).double())
        assert found.item() == pytest.approx(-0.5 * math.log(2 * math.pi) - 4.5)

    @pytest.mark.parametrize("offset", [0.0, 1e3])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_float32_is_close_to_float64(self, covariance: Any, offset: float) -> None:
        z, y = blobs((80, 80, 80), features=24)
        z = (z + offset).float()
        at = torch.cat([z, z.flip(0) * 1.5 - 0.5 * offset])
        found = fitted(z, y, covariance=covariance)(at)
        assert found.dtype == torch.float32
        expected = log_density_of(z.double(), y, at.double(), covariance == "tied")
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=0.02)

    def test_unit_features_in_many_dimensions(self) -> None:
        """The usual case: unit-norm features, whose densities are huge, in float32."""
        z, y = blobs((90, 90, 90), features=64)
        z = torch.nn.functional.normalize(z).float()
        for covariance in ("class", "tied"):
            found = fitted(z, y, covariance=covariance)(z)
            expected = log_density_of(z.double(), y, z.double(), covariance == "tied")
            assert expected.mean() > 50
            np.testing.assert_allclose(found, expected, atol=0.05)

    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_collapsed_classes_in_float32(self, covariance: Any) -> None:
        """After long training classes are small and far apart; the spread must not drown."""
        rng = np.random.default_rng(4)
        y = torch.arange(300) % 3
        basis = np.linalg.qr(rng.normal(size=(64, 5)))[0]
        mean = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(3, 64))))
        z = (mean[y] + torch.tensor(0.01 * rng.normal(size=(300, 5)) @ basis.T)).float()
        found = fitted(z, y, covariance=covariance)(z)
        expected = log_density_of(z.double(), y, z.double(), covariance == "tied")
        assert expected.std() < 10
        np.testing.assert_allclose(found, expected, atol=0.05)

    @pytest.mark.parametrize("counts", [(40, 0, 30), (0, 50, 0)])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_a_class_without_samples(self, covariance: Any, counts: tuple[int, ...]) -> None:
        z, y = blobs(counts)
        model = fitted(z, y, classes=3, covariance=covariance)
        found = model(z)
        np.testing.assert_allclose(
            found, log_density_of(z, y, z, covariance == "tied"), rtol=1e-9, atol=1e-9
        )
        assert model.notes == [
            f"class {label} has no samples and takes no part in the density"
            for label, count in enumerate(counts)
            if count == 0
        ]
        at = z[:3].clone().requires_grad_()
        model(at).sum().backward()
        assert torch.isfinite(at.grad).all()

    def test_a_class_with_one_sample_takes_the_tied_covariance(self) -> None:
        z, y = blobs((40, 1, 30))
        model = fitted(z, y)
        np.testing.assert_allclose(model(z), log_density_of(z, y, z, False), rtol=1e-9)
        assert model.notes == ["class 1 has one sample: tied covariance"]

    @pytest.mark.parametrize("shrinkage", [0.3, 0.0])
    def test_a_class_with_fewer_samples_than_dimensions(self, shrinkage: float) -> None:
        z, y = blobs((40, 3, 4))
        model = fitted(z, y, shrinkage=shrinkage)
        expected = log_density_of(z, y, z, False, shrinkage)
        np.testing.assert_allclose(model(z), expected, rtol=1e-7)
        (note,) = model.notes
        assert note.startswith("2 of 3 classes have no more samples (3 to 4) than dimensions (4)")
        assert f"shrinkage {shrinkage}" in note

    def test_enough_samples_need_no_note(self) -> None:
        z, y = blobs((40, 5, 6))
        assert fitted(z, y).notes == []
        assert fitted(*blobs((40, 1, 2)), covariance="tied").notes == []

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_constant_features(self, covariance: Any, value: float) -> None:
        z, y = torch.full((30, FEATURES), value), torch.arange(30) % 3
        model = fitted(z, y, covariance=covariance)
        inside, outside = model(z), model(z + 1)
        assert torch.isfinite(inside).all()
        assert torch.isfinite(outside).all()
        assert outside.max() < inside.min()

    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
    @pytest.mark.parametrize("count", [1, 20])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_classes_that_are_points(self, covariance: Any, count: int, scale: float) -> None:
        """One sample a class, or copies of it: no spread but rounding, which is no covariance."""
        points = scale * torch.randn(5, 16, dtype=torch.float64)
        y = torch.arange(5).repeat(count)
        model = fitted(points[y], y, covariance=covariance)
        inside, outside = model(points), model(points + 0.1 * scale)
        assert torch.isfinite(inside).all()
        assert torch.isfinite(outside).all()
        assert outside.max() < inside.min()

    def test_dead_features_do_no_harm(self) -> None:
        z, y = blobs()
        z = torch.cat([z, torch.zeros(len(z), 2)], dim=1)
        np.testing.assert_allclose(fitted(z, y)(z), log_density_of(z, y, z, False), rtol=1e-9)

    def test_is_tied_beyond_the_limit_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        z, y = blobs()
        monkeypatch.setattr(density, "LARGEST", CLASSES * FEATURES**2)
        assert not ClassGaussians(CLASSES, FEATURES).tied
        monkeypatch.setattr(density, "LARGEST", CLASSES * FEATURES**2 - 1)
        model = fitted(z, y)
        assert model.tied
        assert model.statistics().outer.shape == (1, FEATURES, FEATURES)
        assert model.notes == [
            "one covariance for all classes: 3 × 4² entries pass the limit of 47"
        ]
        np.testing.assert_allclose(model(z), log_density_of(z, y, z, True), rtol=1e-9)
        model.fit(gather(z, y, tied=True))  # a refit does not say it twice
        assert len(model.notes) == 1
        assert fitted(z, y, covariance="tied").notes == []  # asked for, so nothing to say

    def test_a_refit_replaces_the_notes(self) -> None:
        model = fitted(*blobs((40, 1, 30)))
        model.fit(gather(*blobs()))
        assert model.notes == []

    def test_fit_without_data(self) -> None:
        model = ClassGaussians(CLASSES, FEATURES)
        with pytest.raises(InputError, match="no features were given"):
            model.fit(model.statistics())
        assert not model.fitted

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_fit_on_features_that_are_not_finite(self, value: float) -> None:
        z, y = blobs()
        z[7, 2] = value
        with pytest.raises(InputError, match="NaN or infinite"):
            fitted(z, y)

    def test_errors(self) -> None:
        for shrinkage in (-0.1, 1.1, math.nan):
            with pytest.raises(InputError, match="shrinkage must be at least 0 and at most 1"):
                ClassGaussians(2, 2, shrinkage=shrinkage)
        with pytest.raises(InputError, match="covariance must be one of class, tied, got 'full'"):
            ClassGaussians(2, 2, covariance="full")  # type: ignore[arg-type]

    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_state_dict_keeps_it_fitted(self, covariance: Any) -> None:
        z, y = blobs()
        model = fitted(z.float(), y, covariance=covariance)
        other = torch.nn.Sequential(ClassGaussians(CLASSES, FEATURES, covariance=covariance))
        assert not other[0].fitted
        other.load_state_dict({f"0.{key}": value for key, value in model.state_dict().items()})
        assert other[0].fitted
        assert torch.equal(other(z.float()), model(z.float()))
        model.load_state_dict(ClassGaussians(3, 4, covariance=covariance).state_dict())
        assert not model.fitted

    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_survives_export(self, covariance: Any) -> None:
        z, y = blobs()
        z = z.float()
        model = torch.nn.Sequential(fitted(z, y, covariance=covariance), DensityScaler()).eval()
        model[1].fit(model[0](z))
        batch = torch.export.Dim("batch", min=1, max=512)
        program = torch.export.export(model, (z[:4],), dynamic_shapes=({0: batch},))
        torch.testing.assert_close(program.module()(z), model(z))


# ---------------------------------------------------------------- low rank

WIDE, LIMIT = 60, 60 * 20  # 60² entries are too many, a sketch of 20 columns is not: rank 10


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "LARGEST", LIMIT)


def flat(rank: int, counts: tuple[int, ...] = (90, 40, 70)) -> tuple[Tensor, Tensor]:
    """Classes anywhere, which spread along `rank` directions of sixty, less and less."""
    rng = np.random.default_rng(7)
    y = torch.tensor(rng.permutation(np.repeat(np.arange(len(counts)), counts)))
    basis = np.linalg.qr(rng.normal(size=(WIDE, rank)))[0] * 0.8 ** np.arange(rank)
    mean = torch.tensor(3 * rng.normal(size=(len(counts), WIDE)))
    return mean[y] + torch.tensor(rng.normal(size=(len(y), rank)) @ basis.T), y


def truncated(z: Tensor, y: Tensor, rank: int, ridge: float = 1e-4) -> np.ndarray:
    """The largest eigenvalues of the pooled covariance, and the mean of the others beside them."""
    shared = pooled(z, y)
    values, vectors = np.linalg.eigh(shared)
    values[:-rank] = values[:-rank].mean()
    return (vectors * (values + ridge * np.diag(shared).mean())) @ vectors.T


def log_density_by(matrix: np.ndarray, z: Tensor, y: Tensor, at: Tensor) -> np.ndarray:
    parts = []
    for label in y.unique():
        rows = z[y == label].numpy()
        log_p = multivariate_normal(rows.mean(axis=0), matrix).logpdf(at.numpy())
        parts.append(math.log(len(rows) / len(y)) + log_p)
    return logsumexp(parts, axis=0)


@pytest.mark.usefixtures("small_limit")
class TestLowRank:
    @pytest.mark.parametrize("rank", [1, 6, 10])
    @pytest.mark.parametrize("covariance", ["class", "tied"])
    def test_is_the_tied_one_where_the_data_have_low_rank(self, covariance: Any, rank: int) -> None:
        z, y = flat(rank)
        at = torch.cat([z, z + 0.1 * torch.randn(z.shape, dtype=z.dtype)])
        model = fitted(z, y, covariance=covariance)
        assert model.whiten.shape == (WIDE, 10)
        expected = log_density_of(z, y, at, tied=True)
        np.testing.assert_allclose(model(at), expected, rtol=2e-5)
        (note,) = model.notes
        assert note.startswith("one covariance of rank 10 and a variance for the rest: 60² entries")

    def test_is_the_truncated_covariance_where_the_sketch_holds_all(self) -> None:
        """Rank 20 of data in 20 columns: nothing is lost before the truncation to 10."""
        z, y = flat(20)
        at = torch.cat([z, z + 0.1 * torch.randn(z.shape, dtype=z.dtype)])
        expected = log_density_by(truncated(z, y, 10), z, y, at)
        np.testing.assert_allclose(fitted(z, y)(at), expected, rtol=2e-5, atol=1e-2)

    def test_is_near_it_where_the_spectrum_falls_on(self) -> None:
        """Sixty directions in 20 columns: the trace is exact and the large eigenvalues close."""
        z, y = flat(WIDE)
        model = fitted(z, y)
        statistics = model.statistics()
        statistics.update(z, y)
        _, values, trace = statistics.spectrum(10)
        exact = np.linalg.eigvalsh(pooled(z, y))[::-1]
        assert trace.item() == pytest.approx(exact.sum())
        np.testing.assert_allclose(values[:5], exact[:5], rtol=0.02)
        assert (values.numpy() <= exact[:10] * (1 + 1e-9)).all()  # never more than there is
        expected = log_density_by(truncated(z, y, 10), z, y, z)
        assert np.corrcoef(model(z), expected)[0, 1] > 0.9

    def test_batches_of_any_size_are_one_pass(self) -> None:
        z, y = flat(WIDE)
        one, other = (ClassGaussians(3, WIDE).statistics() for _ in range(2))
        one.update(z, y)
        for part, labels in zip(z.split(33), y.split(33), strict=True):
            other.update(part, labels)
        assert one.outer.shape == (1, WIDE, 20)
        for ours, theirs in zip(one.spectrum(10)[1:], other.spectrum(10)[1:], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)

    def test_float32_is_close_to_float64(self) -> None:
        z, y = flat(WIDE)
        found, expected = fitted(z.float(), y), fitted(z, y)
        assert found(z.float()).dtype == torch.float32
        torch.testing.assert_close(found(z.float()).double(), expected(z), rtol=1e-4, atol=0.02)

    @pytest.mark.parametrize("count", [1, 20])
    def test_classes_that_are_points(self, count: int) -> None:
        points = torch.randn(5, WIDE, dtype=torch.float64)
        model = fitted(points[torch.arange(5).repeat(count)], torch.arange(5).repeat(count))
        inside, outside = model(points), model(points + 0.1)
        assert torch.isfinite(inside).all()
        assert torch.isfinite(outside).all()
        assert outside.max() < inside.min()

    def test_features_that_are_not_finite(self) -> None:
        z, y = flat(3)
        z[5, 5] = math.nan
        with pytest.raises(InputError, match="NaN or infinite"):
            fitted(z, y)

    def test_a_state_dict_and_a_graph_hold_it(self) -> None:
        z, y = flat(WIDE)
        z = z.float()
        model, other = fitted(z, y), ClassGaussians(3, WIDE)
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(z), model(z))
        batch = torch.export.Dim("batch", min=1, max=512)
        program = torch.export.export(model.eval(), (z[:4],), dynamic_shapes=({0: batch},))
        torch.testing.assert_close(program.module()(z), model(z))

    def test_the_distance_of_mahalanobis_is_in_its_units(self) -> None:
        z, y = flat(6)
        found = nearest(fitted(z, y, covariance="tied"), z)
        inverse = np.linalg.inv(truncated(z, y, 10))
        means = torch.stack([z[y == label].mean(dim=0) for label in range(3)])
        gaps = (z[:, None] - means).numpy()
        expected = np.einsum("bcd,de,bce->bc", gaps, inverse, gaps).min(axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("classes", "features", "columns", "sketch"),
    [
        (10, 2236, 10 * 2236, 0),  # a covariance for each class
        (10, 2237, 2237, 0),  # one for all
        (2, 7071, 7071, 0),
        (2, 7072, 256, 512),  # one of low rank
        (2, 1_000_000, 25, 50),
    ],
)
def test_where_the_covariance_changes(
    classes: int, features: int, columns: int, sketch: int
) -> None:
    with torch.device("meta"):
        found = ClassGaussians(classes, features)
    assert found.whiten.shape == (features, columns)
    assert found.sketch == sketch


def test_many_classes_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of a group of classes are the same; whitened features are never all there."""
    z, y = blobs((30, 20, 25, 28, 31))
    model = fitted(z, y)
    expected = model(z)
    monkeypatch.setattr(density, "_WIDE", 2 * FEATURES)
    torch.testing.assert_close(model(z), expected, rtol=1e-12, atol=0)


# ---------------------------------------------------------------- memberships


class TestMembership:
    VALUES = -40 + 3 * torch.randn(1001, generator=torch.Generator().manual_seed(2)).double() ** 3

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_is_a_half_at_the_twentieth_and_nine_tenths_at_the_median(self, dtype: Any) -> None:
        values = self.VALUES.to(dtype)
        location, scale = density.membership(values)
        at = np.quantile(values.double().numpy(), [0.05, 0.5])
        found = 1 / (1 + np.exp(-(at - location.item()) / scale.item()))
        assert found.tolist() == pytest.approx([0.5, 0.9], rel=1e-9)

    def test_follows_a_change_of_units(self) -> None:
        location, scale = density.membership(self.VALUES)
        moved, stretched = density.membership(7 + 3 * self.VALUES)
        assert moved.item() == pytest.approx(7 + 3 * location.item())
        assert stretched.item() == pytest.approx(3 * scale.item())

    @pytest.mark.parametrize("count", [1, 2, 3, 20, 1000])
    def test_quantiles_are_torchs(self, count: int) -> None:
        low, middle = torch.quantile(
            self.VALUES[:count], torch.tensor([0.05, 0.5], dtype=torch.float64)
        )
        location, scale = density.membership(self.VALUES[:count])
        assert location == low
        assert scale == ((middle - low) / math.log(9)).clamp_min(1e-6)

    def test_more_values_than_torchs_quantile_takes(self) -> None:
        values = torch.arange(2**24 + 1, dtype=torch.float32)
        with pytest.raises(RuntimeError, match="too large"):
            torch.quantile(values, 0.5)
        assert density.membership(values)[0].item() == pytest.approx(0.05 * 2**24)

    def test_equal_values_keep_a_scale(self) -> None:
        location, scale = density.membership(torch.full((10,), 5.0))
        assert location.item() == 5.0
        assert scale.item() == pytest.approx(1e-6)


# ---------------------------------------------------------------- ρ


def scaler(kind: Any, values: Tensor, **options: Any) -> DensityScaler:
    found = DensityScaler(kind, **options)
    found.fit(values)
    return found


class TestDensityScaler:
    VALUES = 1740 + 25 * torch.randn(2001, generator=torch.Generator().manual_seed(0)).double()

    def test_standardised_at_its_quantiles(self) -> None:
        low, middle = np.quantile(self.VALUES.numpy(), [0.05, 0.5])
        found = scaler("standardised", self.VALUES).double()
        rho = found(torch.tensor([low, middle])).exp()
        assert rho.tolist() == pytest.approx([0.5**1.2, 0.9**1.2], rel=1e-4)
        assert rho.tolist() == pytest.approx([0.435, 0.881], abs=1e-3)

    @pytest.mark.parametrize("power", [1.0, 1.2, 2.5])
    def test_standardised_is_its_formula(self, power: float) -> None:
        low, middle = np.quantile(self.VALUES.numpy(), [0.05, 0.5])
        at = torch.linspace(1700, 1900, 41).double()
        expected = (1 / (1 + np.exp(-(at.numpy() - low) / ((middle - low) / np.log(9))))) ** power
        found = scaler("standardised", self.VALUES, power=power, floor=0.0)(at)
        np.testing.assert_allclose(found.exp(), expected, rtol=1e-4)

    def test_raw_is_the_papers_formula_and_needs_no_fit(self) -> None:
        at = torch.tensor([-20.0, -3.0, 0.0, 2.0, 1740.0]).double()
        found = DensityScaler("raw", floor=0.0)
        assert found.fitted
        np.testing.assert_allclose(found(at).exp(), torch.sigmoid(at).numpy() ** 1.2, rtol=1e-9)
        moved = scaler("raw", self.VALUES, floor=0.0)
        assert torch.equal(moved(at), found(at))

    def test_raw_stays_finite_where_the_sigmoid_is_zero(self) -> None:
        at = torch.tensor([-300.0, -1300.0])  # σ(−300)^1.2 is exactly 0 in float32
        assert (torch.sigmoid(at) ** 1.2).tolist() == [0, 0]
        assert DensityScaler("raw", floor=0.0)(at).tolist() == pytest.approx([-360.0, -1560.0])

    def test_minmax_is_its_formula_with_clipping(self) -> None:
        found = scaler("minmax", torch.tensor([4.0, 2.0, 10.0]), floor=0.05)
        at = torch.tensor([-1e6, 2.0, 2.1, 4.0, 8.0, 10.0, 11.0])
        expected = [0.05, 0.05, 0.05, 0.25, 0.75, 1.0, 1.0]
        assert found(at).exp().tolist() == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("kind", ["standardised", "minmax", "raw"])
    @pytest.mark.parametrize("floor", [1e-3, 0.2])
    def test_monotone_and_never_below_the_floor(self, kind: Any, floor: float) -> None:
        at = torch.cat([torch.tensor([-1e30]), torch.linspace(-3000, 3000, 2001)])
        log_rho = scaler(kind, self.VALUES, floor=floor)(at)
        assert torch.isfinite(log_rho).all()
        assert (log_rho.diff() >= 0).all()
        assert log_rho[0].exp().item() == pytest.approx(floor, rel=1e-5)
        assert log_rho[-1].item() == pytest.approx(0.0, abs=1e-6)
        inside = scaler(kind, self.VALUES, floor=floor)(self.VALUES.float().sort().values)
        if kind != "raw":  # which is a step there, and cannot tell one ID sample from another
            assert inside.unique().numel() > 1000

    @pytest.mark.parametrize("kind", ["standardised", "minmax"])
    def test_equal_densities(self, kind: Any) -> None:
        found = scaler(kind, torch.full((10,), 5.0))
        assert torch.isfinite(found(torch.tensor([-100.0, 5.0, 100.0]))).all()

    @pytest.mark.parametrize("kind", ["standardised", "minmax", "raw"])
    @pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, -math.inf]])
    def test_fit_needs_finite_values(self, kind: Any, values: list[float]) -> None:
        with pytest.raises(InputError, match="all of them finite"):
            DensityScaler(kind).fit(torch.tensor(values))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"floor": -0.1}, "must be at least 0 and below 1, got -0.1"),
            ({"floor": 1.0}, "must be at least 0 and below 1, got 1.0"),
            ({"kind": "minmax", "floor": 0.0}, "needs a positive floor"),
            ({"kind": "none"}, "standardised, minmax, raw, got 'none'"),
        ],
    )
    def test_errors(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            DensityScaler(**options)

    def test_state_dict_keeps_it_fitted(self) -> None:
        found = scaler("standardised", self.VALUES)
        other = DensityScaler()
        assert not other.fitted
        other.load_state_dict(found.state_dict())
        assert other.fitted
        assert torch.equal(other(self.VALUES.float()), found(self.VALUES.float()))
