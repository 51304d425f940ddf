"""Augmentation in training: what is augmented and what never is, and that such runs resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi.data import as_split, two_moons
from gemfi.data.augmentation import AUGMENTATIONS, Augmentation
from gemfi.data.normalisation import Normalisation
from gemfi.errors import CheckpointError, InputError
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.randomness import derived_generator
from gemfi.training import TrainConfig, fit
from gemfi.training.run_data import permutation
from support.runs import Killed, kill_at

AUXILIARY = OutlierConfig(kind="auxiliary", ratio=0.3, scrambled=0.0, ramp=0.0)
ALL = Augmentation(crop=2, flip=0.5, rotation=15, jitter=0.4, erase=0.5)
CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3, augmentation=ALL)
BATCHES = 3  # an epoch of 96 images


def images(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)


TRAIN = as_split(images(96, 1), torch.arange(96) % 3, role="train", name="images")
VALIDATION = as_split(images(20, 2), torch.arange(20) % 3, role="validation")
FAR = as_split(images(40, 3), role="auxiliary", name="far")
NORMALISATION = Normalisation.of(TRAIN)


def build(name: str = "softmax", seed: int = 0, **more: Any) -> Model:
    torch.manual_seed(seed)
    backbone = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1)
    )
    return build_model(name, backbone, 3, num_features=27, **more)


def train(model: Model, config: TrainConfig = CONFIG, **more: Any) -> Any:
    return fit(model, TRAIN, VALIDATION, config, progress=False, **more)


def differing(one: nn.Module, other: nn.Module) -> list[str]:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    return [name for name in mine if not torch.equal(mine[name], theirs[name])]


def watch(model: Model) -> tuple[list[Tensor], list[Tensor]]:
    """What the backbone is given in training, and in evaluation."""
    training: list[Tensor] = []
    evaluation: list[Tensor] = []

    def note(module: nn.Module, given: tuple[Tensor]) -> None:
        (training if module.training else evaluation).append(given[0].detach().clone())

    model.backbone.register_forward_pre_hook(note)
    return training, evaluation


def rows(step: int, seed: int = 0) -> Tensor:
    epoch, index = divmod(step, BATCHES)
    return permutation(96, seed, epoch)[32 * index : 32 * (index + 1)]


# -- what is augmented --------------------------------------------------------------------------


def test_a_batch_is_augmented_as_bytes_before_it_is_scaled_and_normalised() -> None:
    """With a generator of the step's own."""
    model = build(normalisation=NORMALISATION)
    training, _ = watch(model)
    train(model, replace(CONFIG, seed=4))
    for step, given in enumerate(training):
        draws = derived_generator(f"4:{step}:0:augmentation")
        augmented = ALL(TRAIN.x[rows(step, seed=4)], draws)
        assert augmented.dtype == torch.uint8
        expected = (augmented.float() / 255 - model.input_mean) / model.input_std
        assert torch.equal(given, expected)
    assert len(training) == 3 * BATCHES


def test_an_image_differs_from_epoch_to_epoch() -> None:
    model = build()
    training, _ = watch(model)
    train(model)
    by_epoch = torch.empty(3, 96, 1, 8, 8)
    for step, given in enumerate(training):
        by_epoch[step // BATCHES, rows(step)] = given
    for one, other in ((0, 1), (0, 2), (1, 2)):
        same = (by_epoch[one] == by_epoch[other]).flatten(1).all(dim=1)
        assert same.sum() == 0
    assert not (by_epoch == TRAIN.x / 255).flatten(2).all(dim=2).any()


def test_auxiliary_images_are_augmented_too() -> None:
    model = build("gem-fi")
    training, _ = watch(model)
    always = replace(CONFIG, augmentation=Augmentation(flip=1.0))
    train(model, always, auxiliary=FAR, outliers=AUXILIARY)
    known = {tuple(each.flatten().tolist()) for each in FAR.x}
    for step, given in enumerate(training):
        seen = (255 * given).round().byte().flip(3)
        assert torch.equal(seen[:32], TRAIN.x[rows(step)])
        assert len(seen) == 32 + 10
        assert all(tuple(each.flatten().tolist()) in known for each in seen[32:])


def test_validation_statistics_and_prediction_see_images_as_they_are() -> None:
    model = build("gem-fi")
    _, evaluation = watch(model)
    train(model)
    model.predict(TRAIN.x)
    plain, validation = TRAIN.x / 255, VALIDATION.x / 255
    trial, epochs, statistics, prediction = (
        [plain[:2]],
        [validation] * 3,
        [plain, validation],
        plain,
    )
    expected = [*trial, *epochs, *statistics, prediction]
    assert len(evaluation) == len(expected)
    for given, wanted in zip(evaluation, expected, strict=True):
        assert torch.equal(given, wanted)


def test_without_augmentation_images_stay_as_they_are() -> None:
    model = build()
    training, _ = watch(model)
    train(model, replace(CONFIG, augmentation=Augmentation()))
    for step, given in enumerate(training):
        assert torch.equal(given, TRAIN.x[rows(step)] / 255)


def test_the_splits_are_left_alone() -> None:
    before = [each.x.clone() for each in (TRAIN, VALIDATION, FAR)]
    train(build("gem-fi"), auxiliary=FAR, outliers=AUXILIARY)
    for split, x in zip((TRAIN, VALIDATION, FAR), before, strict=True):
        assert torch.equal(split.x, x)


# -- the same again -----------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    one, other, third, plain = build(), build(), build(), build()
    train(one)
    torch.manual_seed(99)  # the caller's generator must not matter
    train(other)
    assert differing(one, other) == []
    # Another seed shuffles otherwise too: the test of batches shows that augmentation follows it.
    train(third, replace(CONFIG, seed=1))
    assert differing(one, third)
    train(plain, replace(CONFIG, augmentation=Augmentation()))
    assert differing(one, plain)


@contextmanager
def killed_at(model: Model, step: int) -> Iterator[None]:
    """Die in the objective of a step, as a kill would, with nothing saved on the way out."""
    kill_at(model, step)
    with pytest.raises(Killed):
        yield


@pytest.mark.parametrize(
    ("every", "step", "resumed"),
    [(None, 3, 3), (None, 7, 6), (1, 4, 4), (2, 5, 4), (5, 8, 5)],
    ids=["at a boundary", "back to a boundary", "within", "back within", "within, late"],
)
@pytest.mark.parametrize("kind", ["softmax", "gem-fi", "auxiliary"])
def test_a_killed_run_resumes_bit_for_bit(
    tmp_path: Path, kind: str, every: int | None, step: int, resumed: int
) -> None:
    config = replace(CONFIG, checkpoint_steps=every)
    name = "softmax" if kind == "softmax" else "gem-fi"
    more = {"auxiliary": FAR, "outliers": AUXILIARY} if kind == "auxiliary" else {}
    whole, first, second = (build(name, s, normalisation=NORMALISATION) for s in (0, 0, 7))
    train(whole, config, **more)
    with killed_at(first, step):
        train(first, config, run_dir=tmp_path, **more)
    result = train(second, config, run_dir=tmp_path, **more)
    assert result.resumed_at == resumed
    assert differing(whole, second) == []


def test_a_run_with_another_augmentation_or_normalisation_is_refused(tmp_path: Path) -> None:
    train(build(normalisation=NORMALISATION), run_dir=tmp_path)
    other = replace(CONFIG, augmentation=replace(ALL, flip=0.25))
    with pytest.raises(
        CheckpointError,
        match=r"another run \(train.augmentation.flip: 0.5 there, 0.25 here\)",
    ):
        train(build(normalisation=NORMALISATION), other, run_dir=tmp_path)
    moved = Normalisation((0.25,), NORMALISATION.std)
    with pytest.raises(
        CheckpointError, match=r"another run \(normalisation.mean: \[[0-9.]+\] there, \[0.25\] here"
    ):
        train(build(normalisation=moved), run_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"normalisation.std: \[[0-9.]+\] there, null here"):
        train(build(), run_dir=tmp_path)
    train(build(normalisation=NORMALISATION), run_dir=tmp_path)


def test_a_long_normalisation_does_not_fill_the_screen(tmp_path: Path) -> None:
    x, y = torch.randn(40, 300), torch.arange(40) % 2
    split = as_split(x, y, role="train")

    def run(normalisation: Normalisation | None) -> None:
        model = build_model("softmax", "mlp", 2, in_features=300, normalisation=normalisation)
        fit(model, split, config=TrainConfig(epochs=1), run_dir=tmp_path, progress=False)

    run(Normalisation.of(split))
    with pytest.raises(
        CheckpointError, match=r"normalisation.mean: \[.*\.\.\. there, null here"
    ) as info:
        run(None)
    assert len(str(info.value)) < 500 + len(str(tmp_path))


# -- refused ------------------------------------------------------------------------------------


def test_what_cannot_be_augmented_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    moons = two_moons(n=20)
    rows_model = build_model("softmax", "mlp", 2, in_features=2)
    augmented = TrainConfig(augmentation=AUGMENTATIONS["standard"])
    with pytest.raises(
        InputError,
        match=r"\(train\) cannot be augmented: images must be .* of shape \(2, 2\); leave",
    ):
        fit(rows_model, moons.train, config=augmented, run_dir=folder)
    with pytest.raises(
        InputError, match=r"'images' \(train\) cannot be augmented: crop must be smaller .* crop=8"
    ):
        train(build(), replace(CONFIG, augmentation=Augmentation(crop=8)), run_dir=folder)
    assert not folder.exists()
    fit(rows_model, moons.train, config=TrainConfig(epochs=1), run_dir=folder, progress=False)
