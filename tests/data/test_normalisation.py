"""Normalisation: against numpy, in the model, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gemfi.data import Split, as_split, normalisation, two_moons
from gemfi.data.normalisation import Normalisation
from gemfi.errors import InputError, RoleError
from gemfi.model import Model, build_model
from gemfi.training import TrainConfig, fit

EXACT = {"rel": 5.01e-9, "abs": 0.0}  # nine digits


def train_split(x: Tensor, role: str = "train") -> Split:
    return as_split(x, torch.arange(len(x)) % 2, role=role, name="mine")


def pixels(count: int = 50, channels: int = 3) -> Tensor:
    """Bytes whose channels differ in mean and spread."""
    values = torch.randn(count, channels, 6, 5) * (10 + 5 * torch.arange(channels))[:, None, None]
    return (values + 90 + 20 * torch.arange(channels)[:, None, None]).clamp(0, 255).byte()


# -- the numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 400, 1 << 22])  # one, four and all images at a time
def test_images_agree_with_numpy(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(normalisation, "CHUNK", chunk)
    x = pixels()
    for given, units in (
        (x, x.numpy() / 255),
        (x.float() / 255, (x.float() / 255).double().numpy()),
    ):
        found = Normalisation.of(train_split(given))
        assert found.mean == pytest.approx(units.mean(axis=(0, 2, 3)).tolist(), **EXACT)
        assert found.std == pytest.approx(units.std(axis=(0, 2, 3)).tolist(), **EXACT)


@pytest.mark.parametrize("chunk", [1, 70, 1 << 22])
def test_rows_agree_with_numpy_under_a_large_mean(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(normalisation, "CHUNK", chunk)
    x = torch.randn(101, 7) * torch.logspace(-3, 3, 7) + torch.tensor([1e4, 0, 0, -1e6, 0, 3, 1])
    found = Normalisation.of(train_split(x))
    rows = x.double().numpy()
    assert found.mean == pytest.approx(rows.mean(axis=0).tolist(), **EXACT)
    assert found.std == pytest.approx(rows.std(axis=0).tolist(), **EXACT)


@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_what_does_not_vary_gets_a_std_of_one(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(normalisation, "CHUNK", chunk)
    rows = torch.randn(77, 4)
    rows[:, 1], rows[:, 2], rows[:, 3] = 0.1, 1e30, 0.0
    rows[0, 3] = 1e-44  # it does vary, but no float32 can be divided by that
    found = Normalisation.of(train_split(rows))
    assert found.std[0] != 1
    assert found.std[1:] == (1.0, 1.0, 1.0)
    assert found.mean[1:3] == pytest.approx([np.float32(0.1), np.float32(1e30)], rel=1e-8)
    images = pixels()
    images[:, 1] = 77
    found = Normalisation.of(train_split(images))
    assert found.std[1] == 1
    assert 1 not in (found.std[0], found.std[2])


def test_a_set_is_never_held_as_floats_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalisation, "CHUNK", 900)
    largest = 0
    original = torch.Tensor.to

    def spy(self: Tensor, *arguments: Any, **more: Any) -> Tensor:
        nonlocal largest
        largest = max(largest, self.numel())
        return original(self, *arguments, **more)

    x = train_split(pixels(200))
    monkeypatch.setattr(torch.Tensor, "to", spy)
    Normalisation.of(x)
    assert largest == 900


def test_the_digits_that_threads_may_change_are_left_out() -> None:
    found = Normalisation.of(train_split(torch.rand(300, 5)))
    assert all(value == float(f"{value:.9g}") for value in (*found.mean, *found.std))


@pytest.mark.parametrize("role", ["validation", "calibration", "test", "ood-test", "auxiliary"])
def test_other_roles_are_refused(role: str) -> None:
    with pytest.raises(RoleError, match=f"role {role}, which statistics refuses"):
        Normalisation.of(train_split(torch.rand(4, 2), role))


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"'mine': expected images .* got samples \(3, 2\)"):
        Normalisation.of(train_split(torch.rand(4, 3, 2)))
    with pytest.raises(InputError, match="statistics needs a Split with a role"):
        Normalisation.of(torch.rand(4, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.0,), (1.0, 1.0), "one mean and one std .* got 1 and 2"),
        ((), (), "got 0 and 0"),
        ((0.0, math.nan), (1.0, 1.0), "mean must be finite in float32, got nan at index 1"),
        ((0.0,), (math.inf,), "std must be finite in float32, got inf at index 0"),
        ((1e39,), (1.0,), "mean must be finite in float32"),
        ((0.0, 0.0), (1.0, 0.0), "std must be above zero, got 0.0 at index 1"),
        ((0.0,), (-1.0,), "std must be above zero"),
        ((0.0,), (1e-60,), "std must be above zero"),
        (0.5, 0.2, "mean must be a sequence of numbers, got 0.5"),
        (("a",), (1.0,), "mean must be a sequence of numbers"),
    ],
)
def test_bad_numbers_are_named(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Normalisation(mean, std)


def test_any_sequence_becomes_a_tuple() -> None:
    expected = Normalisation((0.5, 1.0), (2.0, 3.0))
    assert Normalisation([0.5, 1], np.array([2.0, 3.0])) == expected  # type: ignore[arg-type]
    assert hash(expected) == hash(Normalisation((0.5, 1.0), (2.0, 3.0)))


# -- in a model ---------------------------------------------------------------------------------


def images_model(normalised: Normalisation | None, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(90, 4))
    return build_model("softmax", backbone, 2, num_features=4, normalisation=normalised)


def test_a_model_takes_raw_images_and_gives_what_normalised_ones_give() -> None:
    x = pixels()
    found = Normalisation.of(train_split(x))
    mean, std = (torch.tensor(each)[:, None, None] for each in (found.mean, found.std))
    plain, model = images_model(None), images_model(found)
    by_hand = (x.float() / 255 - mean) / std
    assert by_hand.mean().abs() < 1e-6
    assert torch.equal(model.embed(x), plain.embed(by_hand))
    assert torch.equal(model.predict(x).log_probs(), plain.predict(by_hand).log_probs())
    assert torch.equal(model(x).log_probs(), plain(by_hand).log_probs())


def test_rows_are_normalised_feature_by_feature() -> None:
    x = torch.randn(9, 3)
    model = build_model(
        "softmax",
        nn.Identity(),
        2,
        num_features=3,
        normalisation=Normalisation((1.0, 2.0, 3.0), (1.0, 2.0, 4.0)),
    )
    expected = (x - torch.tensor([1.0, 2.0, 3.0])) / torch.tensor([1.0, 2.0, 4.0])
    assert torch.equal(model.embed(x), expected)


def test_the_weights_carry_it_and_no_optimiser_sees_it() -> None:
    given = Normalisation((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    model, other = images_model(given), images_model(Normalisation((0.0,) * 3, (1.0,) * 3), seed=1)
    names = {name for name in model.state_dict() if name.startswith("input_")}
    assert names == {"input_mean", "input_std"}
    assert not [name for name, _ in model.named_parameters() if name.startswith("input_")]
    assert not [name for name in images_model(None).state_dict() if name.startswith("input_")]
    x = pixels()
    assert not torch.equal(model.embed(x), other.embed(x))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model.embed(x), other.embed(x))
    assert model.double().embed(x).dtype == torch.float64


def test_the_trial_pass_is_normalised_too() -> None:
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return x.flatten(1)

    x = pixels(2)
    given = Normalisation((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    model = build_model("softmax", Spy(), 2, example=x, normalisation=given)
    model.embed(x)
    assert model.head.num_features == 90
    assert torch.equal(*seen)
    with pytest.raises(InputError, match="normalises inputs of 1 channels"):
        build_model("softmax", Spy(), 2, example=x, normalisation=Normalisation((0.0,), (1.0,)))


def test_a_normalised_model_exports() -> None:
    x = pixels()
    model = images_model(Normalisation.of(train_split(x))).eval()
    batch = torch.export.Dim("batch", min=2, max=512)
    program = torch.export.export(model, (x[:9],), dynamic_shapes=({0: batch},)).module()
    torch.testing.assert_close(program(x).log_probs(), model(x).log_probs())


def test_training_learns_on_normalised_rows_and_keeps_the_numbers() -> None:
    """Rows far from zero in units of their own: without a normalisation nothing is learnt."""
    task = two_moons(n=120)
    far = as_split(task.train.x * 1e-3 + 5, task.train.labels, role="train")
    losses = {}
    for name, given in (("plain", None), ("normalised", Normalisation.of(far))):
        torch.manual_seed(0)
        model = build_model("softmax", "mlp", 2, in_features=2, width=16, normalisation=given)
        config = TrainConfig(epochs=20, batch_size=32, learning_rate=1e-2)
        losses[name] = fit(model, far, config=config, progress=False).history[-1]["loss"]
        if given is not None:
            assert model.input_mean.tolist() == torch.tensor(given.mean).tolist()
    assert losses["normalised"] < 0.5 * losses["plain"]


def test_inputs_of_other_channels_are_refused_before_anything_is_written(tmp_path: Any) -> None:
    grey = pixels(20, channels=1)
    model = images_model(Normalisation((0.0,) * 3, (1.0,) * 3))
    message = r"normalises inputs of 3 channels or features, .* got shape \((2|20), 1, 6, 5\)"
    for act in (model.predict, model.embed, model):
        with pytest.raises(InputError, match=message):
            act(grey)
    with pytest.raises(InputError, match=r"got shape \(3, 6, 5\); a single input needs a batch"):
        model.predict(pixels()[0])
    with pytest.raises(InputError, match=message):
        fit(model, train_split(grey), run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_anything_but_a_normalisation_is_refused() -> None:
    for given in ((0.5, 0.2), {"mean": (0.5,)}):
        with pytest.raises(InputError, match="normalisation must be a Normalisation, got"):
            images_model(given)  # type: ignore[arg-type]
