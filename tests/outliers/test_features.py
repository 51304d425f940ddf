"""Outliers in feature space against numpy, scipy, `torch.distributions` and plain Python."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import MultivariateNormal

from gemfi import outliers as package
from gemfi.outliers import Between, Halo, Noise, OutlierConfig, Synthesiser, Tails, synthesiser

CLASSES, FEATURES = 3, 4


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(count: int, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated classes with means apart and spreads of their own."""
    rng = np.random.default_rng(seed)
    shapes = np.random.default_rng(99)
    mean = 6 * shapes.normal(size=(classes, FEATURES))
    spread = np.linspace(0.3, 2, classes)[:, None, None]
    mix = spread * shapes.normal(size=(classes, FEATURES, FEATURES))
    y = rng.integers(0, classes, count)
    z = mean[y] + np.einsum("bi,bij->bj", rng.normal(size=(count, FEATURES)), mix[y])
    return torch.tensor(z, dtype=torch.float32), torch.tensor(y)


def vos(classes: int = CLASSES, **options: Any) -> Tails:
    found = synthesiser(replace(package.VOS, **options), classes, FEATURES)
    assert isinstance(found, Tails)
    return found


def halo(num_features: int = FEATURES, classes: int = CLASSES, **options: Any) -> Halo:
    found = synthesiser(OutlierConfig(kind="halo", **options), classes, num_features)
    assert isinstance(found, Halo)
    return found


def gaussians(
    z: Tensor, y: Tensor, covariance: str, classes: int = CLASSES
) -> list[MultivariateNormal | None]:
    """What VOS should have fitted, by numpy in float64: None for a class without samples."""
    rows = [z[y == label].numpy().astype(np.float64) for label in range(classes)]
    centred = [each - each.mean(axis=0) for each in rows if len(each)]
    shared = sum(each.T @ each for each in centred) / len(z)
    found: list[MultivariateNormal | None] = []
    for each in rows:
        if not len(each):
            found.append(None)
            continue
        own = np.cov(each, rowvar=False, bias=True) if covariance == "per-class" else shared
        own = own + 1e-3 * np.diag(own).mean() * np.eye(FEATURES)
        mean = torch.tensor(each.mean(axis=0))
        found.append(MultivariateNormal(mean, covariance_matrix=torch.tensor(own)))
    return found


# ---------------------------------------------------------------- halo


def within(z: Tensor, y: Tensor) -> float:
    """Unbiased variance within classes on the unit sphere, a coordinate's mean, by numpy."""
    unit = z.numpy().astype(np.float64)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    rows = [unit[y.numpy() == label] for label in y.unique().tolist()]
    squares = sum(len(each) * np.var(each, axis=0).sum() for each in rows)
    return float(squares / (len(z) - len(rows)) / z.shape[1])


def opposed(num_features: int) -> tuple[Tensor, Tensor]:
    """Two opposite classes that spread along the first coordinate alone."""
    z = torch.full((400, num_features), 1.0)
    y = torch.arange(400) % 2
    z[y == 1] *= -1
    z[:, 0] += torch.randn(400, generator=seeded(5))
    return z, y


def around(point: Tensor, found: Halo) -> Tensor:
    """Noise around one point, so that mixtures are that point too, in units of its length."""
    outliers = found.sample(point.expand(400, -1), torch.arange(400) % 2, seeded())
    return (outliers - point).double() / point.double().norm()


class TestHaloSpread:
    @pytest.mark.parametrize("count", [5, 60])
    def test_is_numpys_pooled_variance(self, count: int) -> None:
        z, y = features(count)
        y[0] = 4  # class 4 has one sample, class 3 none
        found = halo(classes=5)
        found.observe(z, y)
        assert found.spread.item() == pytest.approx(within(z, y), rel=1e-4)

    def test_is_the_mean_of_fifty_batches_and_then_follows(self) -> None:
        found = halo()
        batches = [features(8, seed=step) for step in range(70)]
        each = [within(z, y) for z, y in batches]
        for z, y in batches[:50]:
            found.observe(z, y)
        assert found.spread.item() == pytest.approx(np.mean(each[:50]), rel=1e-4)
        expected = np.mean(each[:50])
        for (z, y), variance in zip(batches[50:], each[50:], strict=True):
            found.observe(z, y)
            expected = 0.98 * expected + 0.02 * variance
        assert found.spread.item() == pytest.approx(expected, rel=1e-4)

    def test_a_batch_in_which_every_class_occurs_once_says_nothing(self) -> None:
        z, y = torch.randn(CLASSES, FEATURES), torch.arange(CLASSES)
        found = halo()
        found.observe(z, y)
        assert found.sample(z, y, seeded()) is None
        found.observe(*features(30))
        before = {name: buffer.clone() for name, buffer in found.named_buffers()}
        found.observe(z, y)
        found.observe(z[:0], y[:0])
        for name, buffer in found.named_buffers():
            assert torch.equal(buffer, before[name]), name

    def test_observing_does_not_keep_the_graph(self) -> None:
        z, y = features(20)
        found = halo()
        found.observe(z.requires_grad_(), y)
        assert not found.spread.requires_grad
        assert not found.sample(z, y, seeded()).requires_grad

    def test_state_dict_goes_on_identically(self) -> None:
        first, second = halo(), halo()
        for step in range(7):
            first.observe(*features(9, seed=step))
        second.load_state_dict(first.state_dict())
        for step in range(7, 12):
            z, y = features(9, seed=step)
            assert torch.equal(first.sample(z, y, seeded(step)), second.sample(z, y, seeded(step)))
            first.observe(z, y)
            second.observe(z, y)
        for name, buffer in first.named_buffers():
            assert torch.equal(buffer, second.get_buffer(name)), name


class TestHaloSample:
    @pytest.mark.parametrize(("near", "far"), [(0.5, 3.0), (2.0, 2.0)])
    def test_length_is_near_to_far_times_the_spread(self, near: float, far: float) -> None:
        """Per coordinate, relative to the feature; it is nearly sure where there are many."""
        z, y = opposed(2048)
        found = halo(2048, near=near, far=far)
        found.observe(z, y)
        noise = around(torch.full((2048,), 0.3), found)
        length = noise.square().mean(dim=1).sqrt() / within(z, y) ** 0.5
        assert length.min() > 0.92 * near
        assert length.max() < 1.08 * far
        if far > near:  # log-uniform between them
            law = stats.uniform(np.log(near), np.log(far / near))
            assert stats.kstest(length.log().numpy(), law.cdf).pvalue > 0.05

    def test_noise_leaves_in_every_direction(self) -> None:
        """Also in those that the features do not spread along."""
        z, y = opposed(8)
        found = halo(8, near=1.0, far=1.0, ratio=10.0)
        found.observe(z, y)
        noise = around(torch.arange(8.0), found) / within(z, y) ** 0.5
        np.testing.assert_allclose(np.cov(noise.numpy(), rowvar=False), np.eye(8), atol=0.1)
        np.testing.assert_allclose(noise.mean(dim=0), np.zeros(8), atol=0.05)

    def test_follows_the_length_of_the_features(self) -> None:
        """Their lengths play no part in the spread, and outliers grow with them."""
        z, y = features(40)
        first, second = halo(), halo()
        first.observe(z, y)
        second.observe(z * torch.linspace(0.1, 10, 40)[:, None], y)
        torch.testing.assert_close(first.spread, second.spread)
        grown = second.sample(8 * z, y, seeded())
        torch.testing.assert_close(grown, 8 * first.sample(z, y, seeded()))

    def test_is_a_feature_or_a_mixture_of_two(self) -> None:
        found = halo(32, near=1e-6, far=1e-6, ratio=30.0)
        z, y = torch.eye(32), torch.arange(32) % CLASSES  # an outlier shows its parents
        found.observe(z, y)
        outliers = found.sample(z, y, seeded())
        parents = (outliers > 1e-4).sum(dim=1)
        assert set(parents.tolist()) == {1, 2}
        np.testing.assert_allclose(outliers.sum(dim=1), np.ones(960), atol=1e-4)
        assert (parents == 2).float().mean().item() == pytest.approx(0.5 * 31 / 32, abs=0.05)
        smaller = outliers[parents == 2].topk(2).values[:, 1].numpy()
        assert smaller.max() <= 0.5
        assert stats.kstest(smaller, stats.uniform(0, 0.5).cdf).pvalue > 0.05
        whole = outliers[parents == 1].argmax(dim=1)
        assert whole.unique().numel() == 32  # any feature can be one

    def test_none_before_a_batch_was_observed(self) -> None:
        z, y = features(30)
        found = halo()
        assert found.sample(z, y, seeded()) is None
        found.observe(z, y)
        assert found.sample(z, y, seeded()) is not None

    @pytest.mark.parametrize(("ratio", "made"), [(0.3, 12), (1.0, 40), (2.5, 100), (0.001, 1)])
    def test_how_many(self, ratio: float, made: int) -> None:
        found = halo(ratio=ratio)
        z, y = features(40)
        found.observe(z, y)
        assert found.sample(z, y, seeded()).shape == (made, FEATURES)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_keeps_the_type_of_the_features(self, dtype: torch.dtype) -> None:
        z, y = features(40)
        found = halo()
        found.observe(z.to(dtype), y)
        assert found.sample(z.to(dtype), y, seeded()).dtype == dtype
        assert found.spread.dtype == torch.float32


# ---------------------------------------------------------------- VOS: fit and tail


class TestVOSTail:
    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_mean_and_covariance_are_numpys(self, covariance: str) -> None:
        z, y = features(60)
        found = vos(covariance=covariance, queue=100)
        found.observe(z, y)
        assert found.sample(z, y, seeded()) is not None
        for label, gaussian in enumerate(gaussians(z, y, covariance)):
            factor = found.factor[0 if covariance == "shared" else label].double()
            np.testing.assert_allclose(found.mean[label], gaussian.mean, rtol=1e-4, atol=1e-5)
            matrix = gaussian.covariance_matrix.numpy()
            np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-3, atol=1e-4)
        assert len(found.factor) == (1 if covariance == "shared" else CLASSES)

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_keeps_exactly_the_least_likely_draws(self, covariance: str) -> None:
        z, y = features(90)
        found = vos(covariance=covariance, draws=200, ratio=0.2)
        found.observe(z, y)
        outliers = found.sample(z, y, seeded(7))
        assert outliers.shape == (18, FEATURES)  # 0.2 · 90, six of each class
        noise = torch.randn(CLASSES, 200, FEATURES, generator=seeded(7)).double()
        for label, gaussian in enumerate(gaussians(z, y, covariance)):
            draws = gaussian.mean + noise[label] @ gaussian.scale_tril.T
            log_p = gaussian.log_prob(draws)
            expected = draws[log_p.argsort()[:6]]
            kept = outliers[6 * label : 6 * label + 6].double()
            kept = kept[gaussian.log_prob(kept).argsort()]
            torch.testing.assert_close(kept, expected, rtol=1e-3, atol=1e-3)
            assert gaussian.log_prob(kept).max() < log_p.sort().values[6] + 1e-2

    def test_outliers_are_far_from_their_classes(self) -> None:
        z, y = features(600)
        found = vos(draws=500, ratio=0.05)
        found.observe(z, y)
        outliers = found.sample(z, y, seeded()).double()
        models = gaussians(z, y, "shared")
        inside = torch.stack([each.log_prob(z.double()) for each in models]).max(dim=0).values
        outside = torch.stack([each.log_prob(outliers) for each in models]).max(dim=0).values
        assert outside.median() < inside.quantile(0.05)

    @pytest.mark.parametrize(
        ("count", "ratio", "made"), [(10, 0.1, 1), (90, 0.2, 18), (10, 0.01, 1), (50, 1.0, 51)]
    )
    def test_how_many(self, count: int, ratio: float, made: int) -> None:
        """ratio·B, at least one, rounded up to as many of each class that takes part."""
        found = vos(ratio=ratio)
        found.observe(*features(90))
        z, y = features(count, seed=1)
        assert len(found.sample(z, y, seeded())) == made

    def test_of_many_classes_some_take_part_at_random(self) -> None:
        """So that a step costs what its batch does, however many classes there are."""
        classes = 200
        found = vos(classes, draws=5, ratio=0.5)
        y = torch.arange(classes).repeat(2)
        z = 1000.0 * y[:, None] + torch.randn(len(y), FEATURES, generator=seeded())
        found.observe(z, y)
        drawn = [found.sample(z[:40], y[:40], seeded(seed)) for seed in range(30)]
        assert {len(each) for each in drawn} == {20}
        near = {int(label) for each in drawn for label in (each.mean(dim=1) / 1000).round()}
        assert len(near) > 0.9 * classes

    def test_no_more_than_were_drawn(self) -> None:
        found = vos(ratio=1.0, draws=5)
        z, y = features(90)
        found.observe(z, y)
        assert len(found.sample(z, y, seeded())) == 15

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_absent_classes_take_no_part(self, covariance: str) -> None:
        z, y = features(60, 2)
        y = 2 * y + 1  # classes 1 and 3 of 5
        found = vos(5, covariance=covariance, draws=50, ratio=0.1)
        found.observe(z, y)
        outliers = found.sample(z, y, seeded(3)).double()
        noise = torch.randn(2, 50, FEATURES, generator=seeded(3)).double()
        longest = noise.norm(dim=2).argsort(dim=1, descending=True)[:, :3]
        models = gaussians(z, y, covariance, 5)
        expected = [
            models[label].mean + noise[row, longest[row]] @ models[label].scale_tril.T
            for row, label in enumerate((1, 3))
        ]
        torch.testing.assert_close(outliers, torch.cat(expected), rtol=1e-3, atol=1e-3)

    def test_none_until_two_classes_have_two_features(self) -> None:
        z, y = torch.randn(1, FEATURES), torch.tensor([0])
        found = vos()
        assert found.sample(z, y, seeded()) is None
        for label, ready in ((0, False), (0, False), (1, False), (2, False), (2, True)):
            found.observe(z, torch.tensor([label]))
            assert (found.sample(z, y, seeded()) is not None) == ready

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_constant_features(self, covariance: str) -> None:
        z, y = torch.full((12, FEATURES), 3.0), torch.arange(12) % 3
        found = vos(covariance=covariance)
        found.observe(z, y)
        outliers = found.sample(z, y, seeded())
        torch.testing.assert_close(outliers, torch.full_like(outliers, 3.0), rtol=1e-3, atol=1e-3)

    def test_fewer_features_than_dimensions(self) -> None:
        z, y = features(7)
        found = vos(covariance="per-class")
        found.observe(z, y)
        assert torch.isfinite(found.sample(z, y, seeded())).all()


# ---------------------------------------------------------------- VOS: queues and refits


class TestVOSQueue:
    @pytest.mark.parametrize("queue", [2, 5, 16])
    def test_is_a_queue(self, queue: int) -> None:
        """Batches of any size and mix, some with more of a class than the queue holds."""
        found = vos(queue=queue)
        expected = [deque(maxlen=queue) for _ in range(CLASSES)]
        rng = np.random.default_rng(queue)
        for step, size in enumerate((1, 3, 40, 7, 0, 25, 60, 2)):
            z, y = features(size, seed=step)
            if step % 3 == 2:  # mostly one class
                y = torch.where(torch.tensor(rng.random(size) < 0.9), 1, y)
            found.observe(z, y)
            for row, label in zip(z, y.tolist(), strict=True):
                expected[label].append(tuple(row.tolist()))
            for label in range(CLASSES):
                held = min(int(found.seen[label]), queue)
                rows = {tuple(row) for row in found.bank[label, :held].tolist()}
                assert rows == set(expected[label])
                assert held == len(expected[label])

    def test_the_oldest_makes_room_one_by_one(self) -> None:
        found = vos(queue=3)
        for value in range(5):
            found.observe(torch.full((1, FEATURES), float(value)), torch.tensor([1]))
        assert sorted(found.bank[1, :, 0].tolist()) == [2, 3, 4]
        assert found.seen.tolist() == [0, 5, 0]

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_fits_what_the_queues_hold(self, covariance: str) -> None:
        z, y = features(200)
        found = vos(queue=10, covariance=covariance)
        for part, labels in zip(z.split(30), y.split(30), strict=True):
            found.observe(part, labels)
        found.sample(z, y, seeded())
        kept = torch.cat([torch.nonzero(y == label)[-10:, 0] for label in range(CLASSES)])
        for label, gaussian in enumerate(gaussians(z[kept], y[kept], covariance)):
            np.testing.assert_allclose(found.mean[label], gaussian.mean, rtol=1e-4, atol=1e-5)
            factor = found.factor[0 if covariance == "shared" else label].double()
            matrix = gaussian.covariance_matrix.numpy()
            np.testing.assert_allclose(factor @ factor.T, matrix, rtol=1e-3, atol=1e-3)

    def test_refits_when_a_quarter_is_new(self) -> None:
        found = vos(queue=8)  # 24 places: a fit is due after six features
        z, y = features(30)
        found.observe(z, y)
        found.sample(z, y, seeded())
        refits = []
        for step in range(13):
            before = found.mean.clone()
            found.observe(*features(1, seed=100 + step))
            found.sample(z, y, seeded())
            refits.append(not torch.equal(found.mean, before))
        assert [step + 1 for step, refitted in enumerate(refits) if refitted] == [6, 12]

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_a_class_that_joins_is_fitted_at_once(self, covariance: str) -> None:
        """It must not draw from the zeros that its Gaussian starts with."""
        z, y = features(40, 2)
        found = vos(queue=500, covariance=covariance)
        found.observe(z, y)
        assert len(found.sample(z, y, seeded())) == 12
        late = 1000 + torch.randn(3, FEATURES)
        found.observe(late, torch.full((3,), 2))
        outliers = found.sample(z, y, seeded())
        assert len(outliers) == 12
        assert (outliers[:8] < 500).all()
        assert (outliers[8:] > 500).all()

    @pytest.mark.parametrize("covariance", ["shared", "per-class"])
    def test_state_dict_goes_on_identically(self, covariance: str) -> None:
        first, second = vos(queue=8, covariance=covariance), vos(queue=8, covariance=covariance)
        generator = seeded(1)
        for step in range(6):
            first.observe(*features(5, seed=step))
            first.sample(*features(5), generator)
        first.observe(*features(2, seed=50))
        assert 0 < first.fresh < 5  # between two fits, which are six features apart
        second.load_state_dict(first.state_dict())
        twin = torch.Generator()
        twin.set_state(generator.get_state())
        for step in range(6, 20):
            z, y = features(1, seed=step)
            first.observe(z, y)
            second.observe(z, y)
            assert torch.equal(first.sample(z, y, generator), second.sample(z, y, twin))
        for name, buffer in first.named_buffers():
            assert torch.equal(buffer, second.get_buffer(name)), name

    def test_observing_does_not_keep_the_graph(self) -> None:
        z, y = features(20)
        found = vos()
        found.observe(z.requires_grad_(), y)
        assert not found.bank.requires_grad
        assert not found.sample(z, y, seeded()).requires_grad


# ---------------------------------------------------------------- noise and mixtures


class TestNoise:
    def test_is_a_feature_plus_scaled_noise(self) -> None:
        z, y = features(40)
        found = Noise(OutlierConfig(kind="noise", ratio=0.5, scale=2.0), CLASSES, FEATURES)
        outliers = found.sample(z, y, seeded(4))
        generator = seeded(4)
        rows = torch.randint(40, (20,), generator=generator)
        noise = torch.randn(20, FEATURES, generator=generator)
        spread = float(np.mean(np.std(z.numpy(), axis=0)))
        torch.testing.assert_close(outliers, z[rows] + 2.0 * spread * noise)

    @pytest.mark.parametrize("scale", [0.5, 3.0])
    def test_scale_is_in_units_of_the_mean_spread(self, scale: float) -> None:
        z = torch.zeros(4000, FEATURES)
        z[:2000, 0] = 2.0  # spreads 1, 0, 0, 0: 0.25 on average
        config = OutlierConfig(kind="noise", ratio=1.0, scale=scale)
        outliers = Noise(config, CLASSES, FEATURES).sample(z, z[:, 0].long(), seeded())
        assert outliers.shape == z.shape
        assert outliers[:, 1:].std().item() == pytest.approx(0.25 * scale, rel=0.03)
        assert outliers[:, 0].mean().item() == pytest.approx(1.0, abs=0.1)


class TestBetween:
    CONFIG = OutlierConfig(kind="between", ratio=2.0)

    def test_mixes_different_classes_with_middling_shares(self) -> None:
        y = torch.tensor([0] * 20 + [1] * 3 + [2] * 9)
        z = torch.eye(32)  # every sample an axis, so that a mixture shows its parents
        outliers = Between(self.CONFIG, CLASSES, 32).sample(z, y, seeded())
        assert len(outliers) == 64
        shares, pairs = [], set()
        for outlier in outliers:
            parents = outlier.nonzero().squeeze(1)
            assert len(parents) == 2
            assert y[parents[0]] != y[parents[1]]
            assert outlier.sum().item() == pytest.approx(1.0)
            shares += outlier[parents].tolist()
            pairs.add(frozenset(y[parents].tolist()))
        assert min(shares) >= 0.3 - 1e-6
        assert max(shares) <= 0.7 + 1e-6
        assert min(shares) < 0.33  # and the whole range is used
        assert max(shares) > 0.67
        assert len(pairs) == 3

    def test_none_for_a_batch_of_one_class(self) -> None:
        z = torch.randn(30, FEATURES)
        found = Between(self.CONFIG, CLASSES, FEATURES)
        assert found.sample(z, torch.ones(30, dtype=torch.int64), seeded()) is None


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("kind", ["halo", "vos", "noise", "between"])
def test_the_generator_decides(kind: Any) -> None:
    z, y = features(50)
    found = synthesiser(OutlierConfig(kind=kind), CLASSES, FEATURES)
    found.observe(z, y)
    state = torch.get_rng_state()
    first, same, other = (found.sample(z, y, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)  # the global one is never touched
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert not found.sample(z.requires_grad_(), y, seeded()).requires_grad


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("halo", Halo),
        ("vos", Tails),
        ("noise", Noise),
        ("between", Between),
        ("none", None),
        ("auxiliary", None),
    ],
)
def test_synthesiser(kind: Any, expected: type[Synthesiser] | None) -> None:
    found = synthesiser(OutlierConfig(kind=kind), CLASSES, FEATURES)
    assert found is None if expected is None else type(found) is expected


@pytest.mark.parametrize(("ratio", "count", "wanted"), [(0.3, 128, 38), (0.3, 1, 1), (2.0, 5, 10)])
def test_wanted(ratio: float, count: int, wanted: int) -> None:
    found = Synthesiser(OutlierConfig(ratio=ratio), CLASSES, FEATURES)
    assert found.wanted(torch.zeros(count, FEATURES)) == wanted
