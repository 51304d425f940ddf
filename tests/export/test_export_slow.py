"""Ten thousand inputs for every method, real images, and other networks: the counts are printed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import gemfi
from gemfi import Model, build_model
from gemfi.attachment import attach
from gemfi.bundle import bundled
from gemfi.cli import main
from gemfi.data import TASKS
from gemfi.data.inputs import InputSpec
from gemfi.errors import InputError
from gemfi.export import Deployed, check_parity, onnx_runner, program_runner, to_onnx, to_program
from gemfi.methods import METHODS
from gemfi.methods.base import DataFacts
from gemfi.scores import SCORES, available
from gemfi.spectral import SOFT
from support.exports import mixed, row_model, row_policy

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow
UNIFORM = {"daedl", "postnet"}  # far off p is uniform, so that any label is as good as another


@pytest.mark.parametrize("method", METHODS)
def test_the_flag_tells_the_truth_on_ten_thousand_inputs(method: str) -> None:
    """What is said to be exportable is, with equal decisions; and what is not, is not."""
    model = row_model(method)
    if not METHODS[method].info.exportable:
        with pytest.raises(InputError):
            Deployed(model)
        return
    deployed, x = Deployed(model, row_policy(model)), mixed(10_000)
    program = to_program(deployed)
    exact = check_parity(deployed, program_runner(program), x)
    parity = check_parity(deployed, onnx_runner(to_onnx(deployed, program).SerializeToString()), x)
    print(f"\n{method:12s} {parity.count:,} inputs: {parity}; {parity.verdicts}")
    assert exact.is_kept
    assert exact.log_prob < 1e-6
    assert parity.is_kept, parity
    if method not in UNIFORM:
        assert parity.near < 500


def test_the_bundled_model_on_real_images(data_dir: Path) -> None:
    bundle, task = bundled("mnist-gem-fi"), TASKS["mnist"]()
    deployed = Deployed(bundle.model, bundle.policy)
    run = onnx_runner(to_onnx(deployed).SerializeToString())
    sets = {"mnist": task.test.x, "fashion-mnist": task.ood_test["fashion-mnist"].x}
    for name, x in sets.items():
        parity = check_parity(deployed, run, x)
        print(f"\n{name}: {parity.count:,} inputs: {parity}; {parity.verdicts}")
        assert parity.count == 10_000
        assert parity.is_kept, parity
        assert parity.near < 100


def test_the_command_on_a_task(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / name) for name in ("a.onnx", "a8.onnx")]
    assert main(["export", "mnist-gem-fi", "--onnx", files[0], "--int8", files[1],
                 "--data", "mnist"]) == 0  # fmt: skip
    text = capsys.readouterr().out
    print(text)
    assert "accuracy 9" in text
    assert re.search(r"AUROC notmnist (9\d|100)\.\d\d → (9\d|100)", text)


def _ready(model: Model, shape: tuple[int, ...], seed: int = 0) -> tuple[Model, Tensor]:
    """A model with statistics of random inputs, as if trained, and inputs for it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(300, *shape, generator=generator)
    y = torch.arange(300) % model.head.num_classes
    model.inputs = InputSpec(sample_shape=shape, sample_dtype="float32")
    model.head.prepare(DataFacts(torch.bincount(y), 10))
    z = model.eval().embed(x, taps=True)
    with torch.no_grad():
        model.head.fit_statistics([(z, y)], [(z, y)])
    return model, torch.cat([x, 3 * torch.rand(100, *shape, generator=generator)])


NETWORKS: dict[str, Callable[[], tuple[Model, tuple[int, ...]]]] = {
    "convnet": lambda: (build_model("gem-fi", "convnet", 3, size=12, channels=6, spectral=SOFT),
                        (1, 12, 12)),
    "resnet18": lambda: (build_model("softmax", "resnet18", 3, size=16, width=4, spectral=SOFT),
                         (3, 16, 16)),
    "resnet18-project": lambda: (
        build_model("softmax", "resnet18", 3, size=15, width=4, shortcut="project"), (3, 15, 15)),
    "vgg16": lambda: (build_model("edl", "vgg16", 3, size=32, width=4), (3, 32, 32)),
    "identity": lambda: (build_model("gem-fi", "identity", 3, in_features=5), (5,)),
    "ensemble": lambda: (build_model("ensemble", "convnet", 3, size=8, channels=3), (1, 8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_networks(network: str) -> None:
    torch.manual_seed(0)
    model, shape = NETWORKS[network]()
    model, x = _ready(model, shape)
    deployed = Deployed(model)
    parity = check_parity(deployed, onnx_runner(to_onnx(deployed).SerializeToString()), x)
    print(f"\n{network}: {parity}")
    assert parity.is_kept, parity


def test_somebody_elses_network() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=8, num_channels=1, num_labels=4,
    )  # fmt: skip
    network = transformers.ViTForImageClassification(config)
    model, x = _ready(attach(network, "gem-fi", 3), (1, 16, 16))
    deployed = Deployed(model)
    parity = check_parity(deployed, onnx_runner(to_onnx(deployed).SerializeToString()), x)
    print(f"\nViT: {parity}")
    assert parity.is_kept, parity


def test_a_policy_by_any_score_but_the_one_that_is_refused() -> None:
    """Every score stands in a graph, and its order is that of the model."""
    model = copy.deepcopy(row_model("gem-fi"))
    deployed, x = Deployed(model), mixed(400)
    belief = model.predict(x)
    deployed.scores = [name for name in available(belief) if name != "dissonance"]
    found = onnx_runner(to_onnx(deployed).SerializeToString())(x)
    for name in deployed.scores:
        expected = SCORES[name](belief).numpy()
        apart = abs(found[name] - expected) / abs(expected).clip(1e-3)
        assert apart.max() < 1e-3, name


def test_wide_features_in_a_density() -> None:
    """Whitening of many features, tied and not, within the tolerance of scores."""
    torch.manual_seed(0)
    for covariance in ("class", "tied"):
        config = replace(gemfi.methods.PRESETS["gem-fi"], density_covariance=covariance)
        model = build_model("gem-fi", "identity", 4, config=config, in_features=128)
        model, x = _ready(model, (128,))
        deployed = Deployed(model)
        found = onnx_runner(to_onnx(deployed).SerializeToString())(x)
        expected = model.predict(x)
        assert expected.log_familiarity is not None
        apart = found["unfamiliarity"] + expected.log_familiarity.numpy()
        size = expected.log_familiarity.abs().numpy().clip(1)
        assert (abs(apart) / size).max() < 1e-3, covariance
