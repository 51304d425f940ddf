"""Texts as token ids: splits that say so, and backbones that take them; nobody else does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi.backbones import Frozen, Stack, Tokens, tokens_of
from gemfi.data import Role, Split, as_split
from gemfi.errors import InputError
from gemfi.model import build_model
from gemfi.training import TrainConfig, fit

IDS = torch.tensor([[3, 4, 0], [5, 0, 0], [1, 2, 3], [4, 4, 0]])


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(6, 4, padding_idx=0)
        self.tokens = Tokens(6, pad=0)
        self.num_features = 4

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.table(x)
        return z


def texts(x: Tensor = IDS, role: str = "train", **more: Any) -> Split:
    return Split(x, torch.arange(len(x)) % 2, Role(role), "texts", 2, **{"tokens": True, **more})


def test_a_split_of_texts_keeps_its_ids() -> None:
    split = texts(IDS.to(torch.int32))
    assert split.x.dtype is torch.int64
    assert torch.equal(split.x, IDS)
    assert split.subset([1, 2]).tokens
    kept, carved = split.carve(2)
    assert kept.tokens
    assert carved.tokens
    assert carved.role is Role.VALIDATION


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (IDS.float(), r"token ids must be integers \(N, L\), got torch.float32"),
        (IDS > 2, "token ids must be integers"),
        (IDS[:, :, None], r"got torch.int64 of shape \(4, 3, 1\)"),
        (IDS - 1, "token ids must not be negative, found -1"),
    ],
)
def test_what_is_no_text_is_refused(x: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        texts(x)


def test_integers_that_are_not_said_to_be_tokens_stay_refused() -> None:
    message = r"x must be floating point or uint8, got torch.int64; convert it to float32 \(token"
    with pytest.raises(InputError, match=message):
        texts(tokens=False)
    with pytest.raises(InputError, match=message):
        as_split(IDS, torch.arange(4) % 2, role="train")
    model = build_model("softmax", "mlp", 2, in_features=3)
    with pytest.raises(InputError, match=r"must be floating point, or uint8 images, got torch"):
        model.predict(IDS)
    with pytest.raises(InputError, match="holds token ids, but this backbone takes numbers"):
        fit(model, texts(), progress=False)


def test_a_backbone_of_texts_takes_nothing_else() -> None:
    model = build_model("softmax", Words(), 2)
    with pytest.raises(
        InputError, match=r"holds torch.float32 samples, but this backbone takes to"
    ):
        fit(model, as_split(IDS.float(), torch.arange(4) % 2, role="train"), progress=False)
    with pytest.raises(InputError, match=r"takes token ids, which are integers, got torch.float"):
        model.predict(IDS.float())
    with pytest.raises(InputError, match=r"of shape \(N, L\), got \(3,\); a single text needs"):
        model.predict(IDS[0])
    with pytest.raises(InputError, match=r"'texts' \(train\): token ids must be in 0..5, but inp"):
        fit(model, texts(IDS + 2), progress=False)


def test_ids_are_within_the_vocabulary() -> None:
    tokens = Tokens(6, pad=0)
    with pytest.raises(InputError, match=r"in 0\.\.5, but input 2 has 1\.\.6: were the texts made"):
        tokens.checked(torch.tensor([[1, 2], [5, 0], [1, 6]]))
    with pytest.raises(InputError, match=r"but input 0 has -1\.\.2"):
        tokens.checked(torch.tensor([[-1, 2]]))
    with pytest.raises(InputError, match=r"input 1 holds nothing but padding \(id 0\)"):
        tokens.checked(torch.tensor([[1, 0], [0, 0]]))
    assert tokens.mask(IDS).sum(dim=1).tolist() == [2, 1, 3, 2]
    assert bool(Tokens(6).mask(IDS).all())
    with pytest.raises(InputError, match="pad must be below vocabulary=6, got 6"):
        Tokens(6, pad=6)
    with pytest.raises(InputError, match="vocabulary must be an integer of at least 1"):
        Tokens(0)


def test_wrapped_backbones_say_what_they_take() -> None:
    assert tokens_of(Words()) == Tokens(6, 0)
    assert tokens_of(Frozen(Words())) == Tokens(6, 0)
    assert tokens_of(Stack([Words(), Words()])) == Tokens(6, 0)
    assert tokens_of(nn.Linear(2, 2)) is None


@pytest.mark.parametrize("name", ["gem-fi", "ensemble", "i-edl", "rkl-pn"])
def test_methods_learn_from_texts(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    x = 1 + 2 * y[:, None] + torch.randint(2, (60, 5), generator=generator)
    train = Split(x, y, Role.TRAIN, "texts", 2, tokens=True)
    torch.manual_seed(0)
    model = build_model(name, Words(), 2)
    config = TrainConfig(epochs=15, batch_size=10, learning_rate=3e-2)
    fit(model, train, None, config, progress=False)
    assert torch.equal(model.predict(train).labels(), y)
