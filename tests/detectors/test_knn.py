"""The distance to the k-th neighbour against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import Tensor

from gemfi.detectors import knn_distance, single_pass
from gemfi.errors import InputError


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class TestKnnDistance:
    @pytest.mark.parametrize("k", [1, 10, 60])
    @pytest.mark.parametrize("block", [1, 150, 1 << 24])
    def test_is_scikit_learns(self, k: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """In blocks of one row, of two, and of all."""
        monkeypatch.setattr(single_pass, "_BLOCK", block)
        z, reference = normal(25, 6), normal(60, 6, seed=1)
        nearest = NearestNeighbors(n_neighbors=k).fit(normalize(reference.numpy()))
        expected = nearest.kneighbors(normalize(z.numpy()))[0][:, -1]
        np.testing.assert_allclose(knn_distance(z, reference, k), expected, atol=1e-7)

    def test_ten_neighbours_unless_told(self) -> None:
        z, reference = normal(25, 6), normal(60, 6, seed=1)
        assert torch.equal(knn_distance(z, reference), knn_distance(z, reference, 10))
        assert not torch.equal(knn_distance(z, reference), knn_distance(z, reference, 9))

    @pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-6), (torch.float32, 2e-3)])
    def test_a_feature_of_the_reference_is_its_own_neighbour(
        self, dtype: torch.dtype, error: float
    ) -> None:
        z = normal(60, 6).to(dtype)
        own = knn_distance(z, z, 1)
        assert own.dtype == dtype
        assert own.max() < error
        assert knn_distance(z, z, 2).min() > 0.01

    def test_length_says_nothing(self) -> None:
        z, reference = normal(25, 6), normal(60, 6, seed=1)
        found = knn_distance(1000 * z, reference * torch.rand(60, 1).double(), 3)
        torch.testing.assert_close(found, knn_distance(z, reference, 3))

    @pytest.mark.parametrize("k", [-1, 0, 8])
    def test_errors(self, k: int) -> None:
        with pytest.raises(InputError, match=rf"k must lie in 1 to 7 .*, got {k}"):
            knn_distance(normal(3, 2), normal(7, 2), k)
