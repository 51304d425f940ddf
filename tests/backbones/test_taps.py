"""What the stages of an image network say, and that the density of GEM sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import gemfi
from gemfi import GEMConfig, Model, build_model, scores
from gemfi.backbones import BACKBONES, Frozen, resnet18
from gemfi.backbones.networks import ImageNetwork, summary
from gemfi.data import digits
from gemfi.errors import InputError
from gemfi.interop import OutlierDetector
from gemfi.training import TrainConfig, fit

SMALL = {
    "convnet": ({"size": 9, "channels": 3}, (1, 9, 9)),
    "resnet18": ({"size": 9, "width": 2}, (3, 9, 9)),
    "vgg16": ({"size": 33, "width": 2}, (3, 33, 33)),
    "whitenet": ({"size": 17, "widths": (3, 2, 4)}, (3, 17, 17)),
}


def test_every_image_network_has_taps() -> None:
    networks = {name for name, kind in BACKBONES.items() if issubclass(kind, ImageNetwork)}  # type: ignore[arg-type]
    assert networks == SMALL.keys()


@pytest.mark.parametrize("name", SMALL)
def test_features_come_first_and_taps_are_those_of_the_maps(name: str) -> None:
    options, shape = SMALL[name]
    torch.manual_seed(0)
    network = BACKBONES[name](**options).eval()
    x = torch.rand(3, *shape)
    both = network(x, taps=True)
    assert both.shape == (3, network.num_features + network.num_taps)
    torch.testing.assert_close(both[:, : network.num_features], network(x))
    maps = list(network.maps(x.to(memory_format=torch.channels_last)))
    assert network.num_taps == 2 * sum(stage.shape[1] for stage in maps)
    expected = []
    for stage in maps:  # by numpy, channel by channel
        values = stage.detach().numpy().reshape(3, stage.shape[1], -1)
        said = np.concatenate([values.mean(axis=2), values.std(axis=2)], axis=1)
        expected.append(said / np.maximum(np.linalg.norm(said, axis=1, keepdims=True), 1e-12))
    found = both[:, network.num_features :].detach().numpy()
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), atol=1e-4)


def test_a_stage_without_any_signal_says_nothing() -> None:
    maps = torch.zeros(2, 3, 4, 4, requires_grad=True)
    said = summary(maps)
    assert float(said.abs().max().detach()) < 1e-3
    said.sum().backward()
    assert maps.grad is not None
    assert torch.isfinite(maps.grad).all()


def trained(config: GEMConfig | None = None) -> tuple[Model, gemfi.Task]:
    task = digits()
    torch.manual_seed(0)
    model = build_model("gem-fi", "convnet", 7, config=config, size=8, channels=8)
    fit(model, task.train, task.validation, TrainConfig(epochs=2, learning_rate=5e-3))
    return model, task


def test_the_density_is_one_of_the_taps(tmp_path: Path) -> None:
    model, task = trained()
    head, x = model.head, task.validation.x
    assert head.num_taps == 2 * 3 * 8
    seen = model.embed(x, taps=True)
    assert seen.shape == (len(x), head.num_features + head.num_taps)
    assert torch.equal(seen[:, : head.num_features], model.embed(x))
    belief = model.predict(x)
    expected = head.density(seen[:, head.num_features :]).double()
    torch.testing.assert_close(belief.log_density, expected)
    again = gemfi.load(gemfi.save(tmp_path / "m.safetensors", model))
    assert torch.equal(scores.unfamiliarity(again.predict(x)), scores.unfamiliarity(belief))


def test_the_taps_change_nothing_but_the_density() -> None:
    (tapped, task), (plain, _) = trained(), trained(GEMConfig(density_space="unit"))
    assert plain.head.num_taps == 0
    one, other = tapped.predict(task.validation), plain.predict(task.validation)
    assert torch.equal(one.probs(), other.probs())
    assert not torch.equal(one.log_density, other.log_density)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "backbone"),
    [
        ("softmax", resnet18(width=1)),
        ("gem-paper", resnet18(width=1)),
        ("gem-fi", Frozen(resnet18(width=1))),
    ],
)
def test_who_has_none(method: str, backbone: torch.nn.Module) -> None:
    model = build_model(method, backbone, 3)
    assert model.head.num_taps == 0
    assert model.eval().features(torch.rand(2, 3, 32, 32)).shape == (2, 8)


def test_features_alone_have_no_score() -> None:
    model, task = trained()
    x, detector = task.validation.x, OutlierDetector(model)
    with pytest.raises(InputError, match=r"model.embed\(x, taps=True\)"):
        detector.predict_features(model.embed(x))
    found = detector.predict_features(model.embed(x, taps=True))
    torch.testing.assert_close(found, detector.predict(x))
    with pytest.raises(InputError, match="48 taps"):
        model.head(model.embed(x))
