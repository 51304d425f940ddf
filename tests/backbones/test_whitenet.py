"""The network for CIFAR: its size, its whitening, and that it comes back from a file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import distributed
from torch.nn import functional

from gemfi.backbones import whitenet
from gemfi.backbones.whitenet import Whitening
from gemfi.errors import InputError


def correlated(count: int = 64, size: int = 9) -> torch.Tensor:
    """Images whose channels and neighbours go together."""
    generator = torch.Generator().manual_seed(0)
    rough = torch.randn(count, 3, size + 2, size + 2, generator=generator)
    smooth = functional.avg_pool2d(rough, 3, stride=1)
    return smooth + smooth.mean(dim=1, keepdim=True)


def test_two_million_weights() -> None:
    network = whitenet()
    assert sum(weight.numel() for weight in network.parameters()) == 1_969_944
    assert (network.num_features, network.num_taps) == (256, 2 * (64 + 256 + 256))
    assert all("whitening.weight" not in name for name, _ in network.named_parameters())


def test_patches_are_white() -> None:
    """By numpy: the second moments of the outputs, patch by patch, are the identity."""
    layer, x = Whitening(3), correlated()
    layer.train()
    out = layer(x).detach().numpy()
    half = out[:, :12].transpose(1, 0, 2, 3).reshape(12, -1)
    assert np.abs(half @ half.T / half.shape[1] - np.eye(12)).max() < 0.05  # the floor's share
    np.testing.assert_allclose(out[:, 12:], -out[:, :12], atol=1e-5)
    patches = [x[:, :, i : i + 2, j : j + 2].flatten(1) for i in range(8) for j in range(8)]
    raw = torch.cat(patches).numpy()
    assert np.abs(raw.T @ raw / len(raw) - np.eye(12)).max() > 0.2  # they were not before


def test_only_the_first_batch_of_training_counts() -> None:
    layer, x = Whitening(3), correlated()
    before = layer.weight.clone()
    layer.eval()
    layer(x)
    assert torch.equal(layer.weight, before)
    layer.train()
    layer(x)
    fitted = layer.weight.clone()
    assert not torch.equal(fitted, before)
    layer(3 * x)
    assert torch.equal(layer.weight, fitted)
    again = Whitening(3)
    again.load_state_dict(layer.state_dict())
    again.train()
    again(3 * x)
    assert torch.equal(again.weight, fitted)


def test_processes_whiten_what_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two uneven shares of a batch; what the other process sends is what it would have sent."""
    x, sent = correlated(), []
    alone = Whitening(3)
    alone.fit(x)
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "all_reduce", lambda sums: sent.append(sums.clone()))
    Whitening(3).fit(x[:50])
    monkeypatch.setattr(distributed, "all_reduce", lambda sums: sums.add_(sent[0]))
    second = Whitening(3)
    second.fit(x[50:])
    torch.testing.assert_close(second.weight.abs(), alone.weight.abs(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("wrong", [{"size": 15}, {"widths": (4, 4)}, {"widths": (4, 0, 4)}])
def test_impossible_sizes(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="whitenet"):
        whitenet(**wrong)  # type: ignore[arg-type]
