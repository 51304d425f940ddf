"""Identity: the head sits on the inputs themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gemfi.backbones import BACKBONES, Identity
from gemfi.errors import InputError
from gemfi.methods import METHODS
from gemfi.model import build_model
from gemfi.spectral import SOFT


def test_features_are_the_inputs() -> None:
    x = torch.randn(4, 6)
    module = BACKBONES["identity"](in_features=6)
    assert isinstance(module, Identity)
    assert module.num_features == 6
    assert torch.equal(module(x), x)
    assert torch.equal(module(x.view(4, 2, 3)), x)
    assert list(module.parameters()) == []
    assert module.state_dict() == {}


def test_dropout_acts_in_training_only() -> None:
    x = torch.ones(50, 40)
    module = Identity(40, dropout=0.25)
    dropped = module(x)
    torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 4 / 3]))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)
    assert torch.equal(module.eval()(x), x)


def test_it_can_be_exported_with_any_batch() -> None:
    batch = torch.export.Dim("batch", min=1, max=64)
    module = nn.Sequential(Identity(3, spectral=SOFT)).eval()
    program = torch.export.export(module, (torch.randn(4, 3),), dynamic_shapes=({0: batch},))
    x = torch.randn(7, 3)
    assert torch.equal(program.module()(x), x)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_sit_on_it(name: str) -> None:
    model = build_model(name, "identity", 3, in_features=5)
    assert model.embed(torch.randn(4, 5)).shape[1] == model.head.num_features


def test_errors() -> None:
    with pytest.raises(
        InputError, match="identity: in_features must be an integer of at least 1, got 0"
    ):
        Identity(0)
    with pytest.raises(InputError, match="identity was built for 3 numbers a sample"):
        Identity(3)(torch.zeros(2, 4))
