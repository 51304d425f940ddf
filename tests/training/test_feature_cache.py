"""Frozen backbones: nothing in them moves, and their features are computed once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi.backbones import Frozen, Tokens
from gemfi.data import Split, as_split
from gemfi.data.augmentation import AUGMENTATIONS
from gemfi.data.normalisation import Normalisation
from gemfi.detectors.gradients import ODIN
from gemfi.errors import CheckpointError, InputError
from gemfi.methods import PRESETS
from gemfi.methods.softmax import EnsembleConfig
from gemfi.model import Model, build_model
from gemfi.outliers import OutlierConfig
from gemfi.spectral import SOFT, Linear
from gemfi.training import TrainConfig, features, fit
from gemfi.training.objective import Objective

CONFIG = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3)
HALO = OutlierConfig(scrambled=0.0)


class Network(nn.Module):
    """Batch norm, dropout and a spectral layer: all that could move. It counts its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.dropout = nn.Dropout(0.5)
        self.last = Linear(6, 8, spectral=SOFT)
        self.num_features = 8
        self.sizes: list[int] = []
        self.interrupted_at: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.interrupted_at is not None and len(self.sizes) == self.interrupted_at:
            os.kill(os.getpid(), signal.SIGINT)
        self.sizes.append(len(x))
        z = torch.relu(self.norm(self.conv(x))).mean(dim=(2, 3))
        out: Tensor = self.last(self.dropout(z))
        return out


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    made = Network()
    made(torch.rand(64, 1, 8, 8))  # statistics that are not those of the beginning
    made.sizes.clear()
    return made


def build(backbone: nn.Module, name: str = "gem-fi", **more: Any) -> Model:
    torch.manual_seed(1)
    return build_model(name, backbone, 3, **more)


def split(role: str = "train", count: int = 150) -> Split:
    generator = torch.Generator().manual_seed(len(role))
    y = torch.arange(count) % 3
    x = torch.rand(count, 1, 8, 8, generator=generator)
    x[:, :, :, ::2] *= (y + 1)[:, None, None, None] / 3
    return as_split(x, y, role=role, name=role, num_classes=3)


def train(model: Model, config: TrainConfig = CONFIG, **more: Any) -> Any:
    return fit(model, split(), split("validation", 60), config, progress=False, **more)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_state(module: nn.Module, expected: dict[str, Tensor]) -> None:
    found = module.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


# ---------------------------------------------------------------- nothing moves


@pytest.mark.parametrize("how", ["kept", "augmented", "no gradients"])
def test_nothing_in_a_frozen_backbone_moves(how: str) -> None:
    """Batch-norm statistics did, and the vectors of spectral layers."""
    backbone = network()
    model = build(backbone.requires_grad_(False) if how == "no gradients" else Frozen(backbone))
    before, head = state(backbone), state(model.head)
    config = CONFIG
    if how == "augmented":
        config = TrainConfig(epochs=1, batch_size=32, augmentation=AUGMENTATIONS["standard"])
    train(model, config)
    assert_state(backbone, before)
    assert any(not torch.equal(each, head[name]) for name, each in state(model.head).items())
    assert not any(each.requires_grad for each in backbone.parameters())


def test_a_frozen_backbone_stays_in_evaluation_mode() -> None:
    backbone = network()
    model = build(Frozen(backbone)).train()
    assert model.head.training
    assert not any(each.training for each in backbone.modules())
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model.features(x), model.features(x))  # no dropout
    assert not model.features(x).requires_grad
    learning = build(network()).train()
    assert learning.backbone.training
    assert not torch.equal(learning.features(x), learning.features(x))


def test_gradients_of_the_inputs_can_still_be_asked_for() -> None:
    model = build(Frozen(network()), "softmax")
    train(model)
    x = split("test", 6).x
    assert torch.isfinite(ODIN().score(model, x)).all()
    x = x.clone().requires_grad_()
    model.features(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().max()) > 0


def test_what_has_no_width_is_refused() -> None:
    with pytest.raises(InputError, match="Sequential has no `num_features`: give Frozen num_"):
        Frozen(nn.Sequential(nn.Flatten()))
    assert Frozen(nn.Flatten(), 64).num_features == 64


# ---------------------------------------------------------------- the features are computed once


@pytest.mark.parametrize("name", ["gem-fi", "softmax", "mc-dropout", "daedl"])
def test_the_outcome_is_that_of_a_backbone_in_the_loop(name: str) -> None:
    outliers = {"outliers": HALO} if name == "gem-fi" else {}
    kept, looped = build(Frozen(network()), name), build(network().requires_grad_(False), name)
    train(kept, **outliers)
    train(looped, **outliers)
    assert len(kept.backbone.backbone.sizes) == 1 + 3 + 1  # a trial, 150 and 60 inputs
    assert len(looped.backbone.sizes) > 15  # type: ignore[arg-type]
    theirs = looped.head.state_dict()
    for key, value in kept.head.state_dict().items():
        torch.testing.assert_close(value, theirs[key], rtol=2e-3, atol=2e-4, msg=key)
    x = split("test", 40).x
    torch.testing.assert_close(
        kept.predict(x).log_probs(), looped.predict(x).log_probs(), rtol=1e-3, atol=1e-3
    )
    assert not kept.training


def test_the_normalisation_is_part_of_the_features() -> None:
    normalisation = Normalisation((0.3,), (0.1,))
    kept, looped = (
        build(each, "softmax", normalisation=normalisation)
        for each in (Frozen(network()), network().requires_grad_(False))
    )
    for model in (kept, looped):
        train(model)
    x = split("test", 40).x
    torch.testing.assert_close(kept.embed(x), looped.embed(x))
    torch.testing.assert_close(
        kept.predict(x).log_probs(), looped.predict(x).log_probs(), rtol=1e-4, atol=1e-4
    )


def test_an_augmentation_runs_the_backbone_and_says_so() -> None:
    model = build(Frozen(network()))
    config = TrainConfig(epochs=2, batch_size=50, augmentation=AUGMENTATIONS["standard"])
    result = train(model, config)
    assert sum(model.backbone.backbone.sizes) >= 2 * 150
    assert any("ran in every step: images are augmented" in note for note in result.notes)
    assert not any("ran in every step" in note for note in train(build(Frozen(network()))).notes)


def test_an_ensemble_on_a_frozen_backbone(tmp_path: Path) -> None:
    config = EnsembleConfig(members=3)
    model = build(Frozen(network()), "ensemble", config=config)
    train(model, run_dir=tmp_path)
    assert model.predict(split("test", 5).x).log_weight.shape == (5, 3)
    files = list((tmp_path / "features").glob("*.safetensors"))
    assert len(files) == 2  # the members have the same backbone: train and validation, once
    weights = [each.linear.weight for each in model.head.heads]
    assert not torch.equal(weights[0], weights[1])


# ---------------------------------------------------------------- outliers


def test_scrambled_inputs_are_left_out_aloud() -> None:
    model = build(Frozen(network()))
    default = train(model)
    (note,) = [each for each in default.notes if "scrambled" in each]
    assert note == (
        "no scrambled inputs among the outliers: the backbone is frozen; those of kind halo stay"
    )
    told = build(Frozen(network()))
    result = train(told, outliers=HALO)
    assert not any("scrambled" in each for each in result.notes)
    assert_state(told.head, state(model.head))
    with pytest.raises(InputError, match=r"kind 'scrambled' .* the backbone is frozen: choose"):
        train(build(Frozen(network())), outliers=OutlierConfig(kind="scrambled"))
    without = build(Frozen(network()), config=PRESETS["gem-fi"])
    assert not any(
        "scrambled" in note for note in train(without, outliers=OutlierConfig(kind="none")).notes
    )


def test_auxiliary_outliers_are_features_too() -> None:
    generator = torch.Generator().manual_seed(9)
    outside = as_split(torch.rand(70, 1, 8, 8, generator=generator) * 3, role="auxiliary")
    outliers = OutlierConfig(kind="auxiliary", scrambled=0.0)
    kept, looped = build(Frozen(network())), build(network().requires_grad_(False))
    for model in (kept, looped):
        train(model, auxiliary=outside, outliers=outliers)
    assert sum(kept.backbone.backbone.sizes) == 2 + 150 + 60 + 70
    x = split("test", 40).x
    torch.testing.assert_close(
        kept.predict(x).log_probs(), looped.predict(x).log_probs(), rtol=1e-3, atol=1e-3
    )


# ---------------------------------------------------------------- files


def test_with_a_folder_features_are_files(tmp_path: Path) -> None:
    memory, run, shared, again = (build(Frozen(network())) for _ in range(4))
    train(memory)
    train(run, run_dir=tmp_path / "run")
    train(shared, cache=tmp_path / "cache")
    train(again, cache=tmp_path / "cache", run_dir=tmp_path / "other")
    for model in (run, shared, again):
        assert_state(model, state(memory))
    assert len(list((tmp_path / "run" / "features").glob("*.safetensors"))) == 2
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2
    assert not (tmp_path / "other" / "features").exists()
    # a trial pass, and one batch each to see that they are still the same
    assert again.backbone.backbone.sizes == [2, 64, 60]


def test_other_weights_inputs_and_normalisations_have_files_of_their_own(tmp_path: Path) -> None:
    def files() -> int:
        return len(list(tmp_path.glob("*.safetensors")))

    def once(model: Model, given: Split) -> None:
        fit(model, given, None, TrainConfig(epochs=1), cache=tmp_path, progress=False)

    once(build(Frozen(network()), "softmax"), split())
    assert files() == 1
    once(build(Frozen(network()), "edl"), split())  # another head, the same features
    assert files() == 1
    moved = network()
    moved.norm.running_mean += 0.1  # type: ignore[operator]
    once(build(Frozen(moved), "softmax"), split())
    assert files() == 2
    other = split()
    other.x[7, 0, 0, 0] += 0.1
    once(build(Frozen(network()), "softmax"), other)
    assert files() == 3
    normalisation = Normalisation((0.3,), (0.1,))
    once(build(Frozen(network()), "softmax", normalisation=normalisation), split())
    assert files() == 4


def test_features_of_other_code_are_not_used(tmp_path: Path) -> None:
    """Weights and inputs are the same, and so is the name of the file."""

    class Changed(Network):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    Changed.__name__ = "Network"
    changed = network()
    changed.__class__ = Changed
    train(build(Frozen(network())), cache=tmp_path)
    expected = build(Frozen(changed))
    train(expected)
    found = build(Frozen(changed))
    train(found, cache=tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    assert_state(found, state(expected))


@pytest.mark.parametrize("interrupted_at", [1, 2, 3])
def test_ctrl_c_while_features_are_computed_costs_nothing(
    tmp_path: Path, interrupted_at: int
) -> None:
    whole = build(Frozen(network()))
    train(whole, run_dir=tmp_path / "whole")
    broken = build(Frozen(network()))
    broken.backbone.backbone.interrupted_at = interrupted_at  # in that batch; the trial was one
    with pytest.raises(KeyboardInterrupt):
        train(broken, run_dir=tmp_path / "run")
    resumed = build(Frozen(network()))
    result = train(resumed, run_dir=tmp_path / "run")
    assert result.resumed_at == 0
    assert_state(resumed, state(whole))
    # that batch was finished and kept; the trial, what is left, and a look at the first of each
    left = 150 - min(64 * interrupted_at, 150) + 60
    assert sum(resumed.backbone.backbone.sizes) == 2 + left + 64 + 60


def test_a_failure_between_writings_loses_no_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "SAVE_SECONDS", 0.0)
    whole = build(Frozen(network()))
    train(whole, run_dir=tmp_path / "whole")
    broken = build(Frozen(network()))
    forward = Network.forward

    def failing(self: Network, x: Tensor) -> Tensor:
        if len(self.sizes) == 3:
            raise MemoryError
        return forward(self, x)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "forward", failing)
        with pytest.raises(MemoryError):
            train(broken, run_dir=tmp_path / "run")
    resumed = build(Frozen(network()))
    train(resumed, run_dir=tmp_path / "run")
    assert resumed.backbone.backbone.sizes == [2, 22, 64, 60, 60]
    assert_state(resumed, state(whole))


def test_a_killed_training_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build(Frozen(network()))
    train(whole, run_dir=tmp_path / "whole")
    forward, steps = Objective.forward, []

    def killed(self: Objective, *given: Any) -> Any:
        steps.append(1)
        if len(steps) == 8:
            raise MemoryError
        return forward(self, *given)

    config = TrainConfig(epochs=3, batch_size=32, learning_rate=5e-3, checkpoint_steps=3)
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "forward", killed)
        with pytest.raises(MemoryError):
            train(build(Frozen(network())), config, run_dir=tmp_path / "run")
    resumed = build(Frozen(network()))
    result = train(resumed, config, run_dir=tmp_path / "run")
    assert result.resumed_at == 6
    assert_state(resumed, state(whole))


def test_a_finished_run_is_returned_at_once_and_needs_no_features(tmp_path: Path) -> None:
    first = build(Frozen(network()))
    done = train(first, run_dir=tmp_path)
    for file in (tmp_path / "features").iterdir():
        file.unlink()
    again = build(Frozen(network()))
    result = train(again, run_dir=tmp_path)
    assert result.resumed_at == done.steps
    assert again.backbone.backbone.sizes == [2]  # the trial pass
    assert_state(again, state(first))


def test_other_weights_of_a_frozen_backbone_are_another_run(tmp_path: Path) -> None:
    train(build(Frozen(network())), run_dir=tmp_path)
    with pytest.raises(CheckpointError, match=r"belongs to another run .*frozen"):
        train(build(Frozen(network(seed=7))), run_dir=tmp_path)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        train(build(network()), run_dir=tmp_path)


def test_features_that_are_not_finite_name_the_input(tmp_path: Path) -> None:
    backbone = network()
    given = split()
    given.x[101] = 3e38
    model = build(Frozen(backbone))
    with pytest.raises(InputError, match=r"the features of input 37 are not finite"):
        fit(model, given, None, CONFIG, progress=False)


# ---------------------------------------------------------------- tokens


class Bag(nn.Module):
    """The mean of the words: a backbone of one's own that takes texts."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 8, padding_idx=0)
        self.tokens = Tokens(20, pad=0)
        self.num_features = 8

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.words(x)
        return z


def texts(role: str = "train", count: int = 90) -> Split:
    """Class 0 has the words 1 to 6, class 1 7 to 12, class 2 13 to 18; 19 is never used."""
    generator = torch.Generator().manual_seed(len(role))
    y = torch.arange(count) % 3
    x = 1 + 6 * y[:, None] + torch.randint(6, (count, 7), generator=generator)
    x[::4, 5:] = 0
    return Split(x, y, role, f"texts/{role}", 3, tokens=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_backbone_of_ones_own_takes_texts(frozen: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = build(Frozen(Bag()) if frozen else Bag())
    config = TrainConfig(epochs=15, batch_size=16, learning_rate=2e-2)
    result = fit(model, texts(), texts("validation"), config, run_dir=tmp_path, progress=False)
    assert any("scrambled" in note for note in result.notes)
    found = model.predict(texts("test"))
    accuracy = (found.labels() == texts("test").labels).double().mean()
    assert accuracy > 0.9
    torch.testing.assert_close(
        model.predict(texts("test").x[:, :5]).log_probs(),  # of any length
        model.predict(
            torch.cat([texts("test").x[:, :5], torch.zeros(90, 3, dtype=int)], 1)
        ).log_probs(),
    )
