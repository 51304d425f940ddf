"""`attach` to real models of timm and torchvision (random weights), in an environment of their own.

Neither is among the packages that the tests need: a torchvision that was built for another torch
does not import, and timm imports it. So they are installed here, apart, without their dependencies
(which would bring another torch), and operators that such a torchvision lacks are declared first.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STUBS = """
import torch

library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

BEGIN = """
import json

import timm
import torch
import torchvision

from gemfi.attachment import attach
from gemfi.data import as_split
from gemfi.errors import InputError
from gemfi.training import TrainConfig, fit

torch.set_num_threads(1)
torch.manual_seed(0)
y = torch.arange(24) % 3
x = 0.3 * torch.rand(24, 3, 64, 64)
x[torch.arange(24), y] += 0.5
train = as_split(x, y, role="train")
"""

ATTACHED = """
networks = {
    "convolutions of timm": timm.create_model("resnet10t", num_classes=3),
    "transformer of timm": timm.create_model(
        "vit_tiny_patch16_224", num_classes=3, img_size=64, depth=2
    ),
    "resnet of torchvision": torchvision.models.resnet18(num_classes=3),
}
found = {}
for name, network in networks.items():
    is_timm = hasattr(network, "get_classifier")
    classifier = network.get_classifier() if is_timm else network.fc
    rows = {}
    for freeze in (False, True):
        model = attach(network, freeze=freeze)
        z = model.embed(x)
        with torch.no_grad():
            network.eval()
            logits = classifier(z)
            rows["logits"] = float((logits - network(x)).abs().max())
            if is_timm:
                seen = network.forward_head(network.forward_features(x), pre_logits=True)
                rows["features"] = float((z - seen).abs().max())
        before = {key: value.clone() for key, value in model.backbone.state_dict().items()}
        config = TrainConfig(epochs=30 if freeze else 4, batch_size=12, learning_rate=3e-3)
        result = fit(model, train, None, config, progress=False)
        after = model.backbone.state_dict()
        rows[f"learnt, frozen {freeze}"] = [
            result.history[0]["terms"]["nll"], result.history[-1]["terms"]["nll"]
        ]
        rows[f"moved, frozen {freeze}"] = any(
            not torch.equal(after[key], before[key]) for key in before
        )
        rows["probs"] = list(model.predict(x).probs().shape)
    found[name] = rows
print(json.dumps(found))
"""

HEADLESS = """
found = {}
bare = timm.create_model("resnet10t", num_classes=0)
model = attach(bare, num_classes=4)
with torch.no_grad():
    found["difference"] = float((model.embed(x) - bare.eval()(x)).abs().max())
found["width"] = model.head.num_features
for name, network in {
    "two heads": timm.create_model("deit_tiny_distilled_patch16_224", img_size=64, depth=1),
    "a convolution": torchvision.models.squeezenet1_0(num_classes=3),
}.items():
    try:
        attach(network)
    except InputError as error:
        found[name] = str(error)
model = attach(
    torchvision.models.squeezenet1_0(num_classes=3), num_classes=3, features="features", example=x
)
found["squeezenet"] = list(model.embed(x).shape)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what this one has, and timm and torchvision."""
    folder = tmp_path_factory.mktemp("timm") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    made = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    places = subprocess.run(
        [str(made), "-c", "import site; print(site.getsitepackages()[-1])"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    lines = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
    (Path(places) / "parent.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [str(made), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    installed = subprocess.run(
        [*command, "timm", "torchvision"], capture_output=True, text=True, check=False
    )
    if installed.returncode:
        said = installed.stderr.strip().splitlines() or ["pip said nothing"]
        pytest.skip(f"timm and torchvision cannot be installed, is there a network? {said[-1]}")
    return made


def run(python: Path, script: str) -> dict[str, Any]:
    """What a script prints last, in that environment."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    whole = subprocess.run(
        [str(python), "-c", "import torchvision"], env=environment, capture_output=True, check=False
    )
    text = BEGIN + script if whole.returncode == 0 else STUBS + BEGIN + script
    done = subprocess.run(
        [str(python), "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_networks_of_timm_and_torchvision(python: Path) -> None:
    found = run(python, ATTACHED)
    assert len(found) == 3
    for name, rows in found.items():
        assert rows["logits"] < 1e-4, name
        assert rows.get("features", 0.0) < 1e-5, name
        assert rows["probs"] == [24, 3], name
        assert rows["moved, frozen False"], name
        assert not rows["moved, frozen True"], name
        for frozen in (False, True):
            first, last = rows[f"learnt, frozen {frozen}"]
            assert last < first, (name, frozen)


def test_networks_without_one_linear_classifier(python: Path) -> None:
    found = run(python, HEADLESS)
    assert found["difference"] < 1e-5
    assert found["width"] == 512
    assert "returns from get_classifier() no layer that is the classifier" in found["two heads"]
    assert "head, head_dist; say where the features are" in found["two heads"]
    assert "SqueezeNet does not end in a linear layer" in found["a convolution"]
    assert found["squeezenet"] == [24, 512]
