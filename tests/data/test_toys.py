"""The geometry that the toys' docstrings promise, in numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from gemfi.data import TASKS, Role, Split, Task, line, line_probability, two_moons
from gemfi.data.toys import CLUSTER_CENTRE, CLUSTER_SD, MOONS_CENTRE, RING_RADII
from gemfi.errors import InputError

SEEDS = [0, 1, 2, 3, 42]


def moon_distance(x: Tensor, which: int) -> Tensor:
    """Distance of (N, 2) points to one noiseless moon, by brute force on a fine grid."""
    t = torch.linspace(0, torch.pi, 20_001, dtype=torch.float64)
    upper = torch.stack([t.cos(), t.sin()], 1)
    moon = upper if which == 0 else torch.tensor([1.0, 0.5]) - upper
    return torch.cdist(x.double(), moon).amin(1)


def between(x: Tensor, low: float, high: float) -> Tensor:
    return (x >= low) & (x <= high)


@pytest.mark.parametrize("make", [two_moons, line])
class TestBoth:
    def test_sizes_roles_and_types(self, make: Callable[..., Task]) -> None:
        task = make(n=101)
        assert len(task.train) == 101
        assert task.num_classes == len(task.class_names) == 2
        for split in list(task.splits())[1:]:
            assert len(split) == 50
        for split in task.splits():
            assert split.x.dtype is torch.float32
        assert {split.role for split in task.splits()} == set(Role) - {Role.AUXILIARY}

    def test_is_in_the_registry(self, make: Callable[..., Task]) -> None:
        assert TASKS[make().name] is make

    def test_same_seed_same_data(self, make: Callable[..., Task]) -> None:
        for first, again in zip(make(seed=3).splits(), make(seed=3).splits(), strict=True):
            assert torch.equal(first.x, again.x)
            assert (first.y is None) == (again.y is None)
            assert first.y is None or torch.equal(first.y, again.labels)

    def test_another_seed_other_data_everywhere(self, make: Callable[..., Task]) -> None:
        for first, other in zip(make(seed=3).splits(), make(seed=4).splits(), strict=True):
            assert torch.isin(first.x, other.x).float().mean() < 0.01

    def test_splits_are_drawn_apart(self, make: Callable[..., Task]) -> None:
        splits = list(make().splits())
        for index, first in enumerate(splits):
            for second in splits[index + 1 :]:  # on a line two float32 may coincide by chance
                shared = torch.isin(first.x, second.x).all(1).float().mean()
                assert shared <= (0.0 if first.x.shape[1] == 2 else 0.005)

    def test_leaves_the_global_generators_alone(self, make: Callable[..., Task]) -> None:
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        make()
        assert torch.equal(before[0], torch.get_rng_state())
        assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002

    def test_refuses_too_few_samples(self, make: Callable[..., Task]) -> None:
        with pytest.raises(InputError, match="n must be at least 20, got 19"):
            make(n=19)


class TestTwoMoons:
    def test_without_noise_samples_lie_on_their_moon(self) -> None:
        for split in list(two_moons(noise=0).splits())[:4]:
            for label in (0, 1):
                assert moon_distance(split.x[split.labels == label], label).max() < 2e-4
                assert moon_distance(split.x[split.labels == label], 1 - label).max() > 0.5

    def test_classes_are_balanced(self) -> None:
        assert two_moons(n=301).train.class_counts.tolist() == [151, 150]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_noise_has_its_standard_deviation(self, seed: int) -> None:
        clean, noisy = two_moons(noise=0, seed=seed).train.x, two_moons(seed=seed).train.x
        assert abs(float((noisy - clean).std()) - 0.1) < 0.01

    @pytest.mark.parametrize("seed", SEEDS)
    def test_ood_sets_are_far_and_test_data_near(self, seed: int) -> None:
        task = two_moons(seed=seed)
        cluster, ring = task.ood_test["cluster"].x, task.ood_validation["ring"].x
        assert torch.cdist(cluster, task.train.x).min() > 0.6
        assert torch.cdist(ring, task.train.x).min() > 0.1
        assert torch.cdist(task.test.x, task.train.x).amin(1).median() < 0.1
        assert torch.cdist(task.test.x, task.train.x).min(1).values.max() < 0.6

    def test_distances_in_the_docstring(self) -> None:
        centre = torch.tensor([CLUSTER_CENTRE])
        upper, lower = moon_distance(centre, 0), moon_distance(centre, 1)
        assert float(lower) == pytest.approx(1.66, abs=0.005)
        assert float(upper - lower) == pytest.approx(0.70, abs=0.005)
        angle = torch.linspace(0, 2 * torch.pi, 361)
        circle = torch.tensor(MOONS_CENTRE) + 2 * torch.stack([angle.cos(), angle.sin()], 1)
        nearest = min(moon_distance(circle, 0).min(), moon_distance(circle, 1).min())
        assert float(nearest) == pytest.approx(0.48, abs=0.005)
        apart = torch.dist(centre[0], torch.tensor(MOONS_CENTRE)) - RING_RADII[1]
        assert float(apart) / CLUSTER_SD > 4

    def test_cluster_and_ring_have_their_shapes(self) -> None:
        task = two_moons(n=10_000)
        cluster = task.ood_test["cluster"].x
        assert torch.allclose(cluster.mean(0), torch.tensor(CLUSTER_CENTRE), atol=0.01)
        assert torch.allclose(cluster.std(0), torch.full((2,), CLUSTER_SD), atol=0.01)
        offset = task.ood_validation["ring"].x - torch.tensor(MOONS_CENTRE)
        radius = offset.norm(dim=1)
        assert bool(between(radius, 2.0 - 1e-6, 2.4 + 1e-6).all())
        # uniform in area: the share inside radius 2.2 is (2.2² − 2²) / (2.4² − 2²)
        assert float((radius < 2.2).float().mean()) == pytest.approx(0.477, abs=0.02)
        assert offset.mean(0).abs().max() < 0.1

    @pytest.mark.parametrize("noise", [-0.1, 0.3, float("nan")])
    def test_refuses_noise_that_reaches_the_ring(self, noise: float) -> None:
        with pytest.raises(InputError, match=r"noise must be between 0 and 0\.2"):
            two_moons(noise=noise)


class TestLine:
    @staticmethod
    def id_splits(seed: int = 0) -> list[Split]:
        return list(line(n=4000, seed=seed).splits())[:4]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_no_data_in_the_gap_and_the_tails(self, seed: int) -> None:
        for split in self.id_splits(seed):
            assert bool((between(split.x, -4, -1) | between(split.x, 1, 4)).all())

    def test_fills_its_support_evenly(self) -> None:
        x = self.id_splits()[0].x[:, 0]
        edges = [-4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0]
        shares = torch.histogram(x, torch.tensor(edges)).hist / len(x)
        assert shares[3] == 0
        assert torch.allclose(shares[[0, 1, 2, 4, 5, 6]], torch.tensor(1 / 6), atol=0.03)

    def test_labels_alternate_and_overlap(self) -> None:
        for split in self.id_splits():
            x, y = split.x[:, 0], split.labels
            ones = between(x, -3, -2) & (x < -2) | between(x, 1, 2) & (x < 2)
            mixed = between(x, 2, 3)
            assert torch.equal(y[~mixed], ones[~mixed].long())
            assert float(y[mixed].float().mean()) == pytest.approx(0.5, abs=0.1)

    def test_probability_is_the_truth_where_there_is_one(self) -> None:
        x = torch.tensor([-5, -3.5, -3, -2.5, -2, -1.5, -1, 0, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.1])
        nan = float("nan")
        p = [nan, 0, 1, 1, 0, 0, 0, nan, 1, 1, 0.5, 0.5, 0.5, 0, 0, nan]
        assert torch.equal(line_probability(x).nan_to_num(-1), torch.tensor(p).nan_to_num(-1))

    def test_best_accuracy_is_eleven_twelfths(self) -> None:
        test = line(n=100_000).test
        guess = (line_probability(test.x[:, 0]) > 0.75).long()
        accuracy = (guess == test.labels).float().mean()
        assert float(accuracy) == pytest.approx(11 / 12, abs=0.005)

    def test_ood_sets_keep_their_places(self) -> None:
        task = line()
        places = {"left-tail": (-6.0, -4.5), "gap": (-0.75, 0.75), "right-tail": (4.5, 6.0)}
        found = {**task.ood_validation, **task.ood_test}
        assert set(task.ood_validation) == {"left-tail"}
        assert set(found) == set(places)
        for name, (low, high) in places.items():
            x = found[name].x
            assert low <= x.min() < low + 0.1
            assert high - 0.1 < x.max() <= high
            assert torch.cdist(x, task.train.x).min() > 0.24
