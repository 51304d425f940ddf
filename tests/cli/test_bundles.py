"""`gemfi bundle` and `gemfi show`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import gemfi
from gemfi.bundle import make_bundle
from gemfi.cli import main
from gemfi.data import TASKS
from gemfi.data.inputs import InputSpec
from gemfi.runs import make_spec, train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = TASKS["two-moons"]()
    spec = make_spec("two-moons", "gem-core", task, train={"epochs": 2}, options=["width=8"])
    folder = tmp_path_factory.mktemp("runs") / "moons"
    train_run(spec, folder, task=task, progress=False)
    return folder


def test_a_run_becomes_a_file(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    assert main(["bundle", str(run), str(out), "--policy", "false_alarm=0.1"]) == 0
    text = capsys.readouterr().out
    assert f"Wrote {out} (" in text
    assert "false_alarm=0.1" in text
    found = gemfi.load(out)
    assert found.policy is not None
    assert found.policy.level == 0.1
    assert main(["show", str(out)]) == 0
    shown = capsys.readouterr().out
    parts = [
        "gem-core",
        "mlp in_features=2 width=8",
        "rows of 2 numbers, float32",
        "upper moon",
        "p ≤ 0.1",
    ]
    for part in [*parts, "calibration samples inside", "accuracy", "two-moons, 2 epochs"]:
        assert part in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_run_without_a_policy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.safetensors"
    assert main(["bundle", str(run), str(out)]) == 0
    assert "none; it predicts, and does not decide" in capsys.readouterr().out
    assert gemfi.load(out).policy is None
    assert main(["show", str(run), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["method"] == "gem-core"
    assert plain["backbone"]["options"]["width"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bundle", "RUN", "model.pt"], "ends in .safetensors, got model.pt"),
        (["bundle", "RUN", "m.safetensors", "--policy", "magic=1"], "magic"),
        (
            ["bundle", "RUN", "m.safetensors", "--policy", "false_alarm=0.0001"],
            "needs 9999 or more",
        ),
        (["bundle", "nowhere", "m.safetensors"], "no run nowhere"),
        (["show", "nowhere"], "no model nowhere: give the folder of a run"),
        (["show", "nowhere.safetensors"], "does not exist"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], message: str, run: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([str(run) if each == "RUN" else each for each in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_what_a_file_says_does_not_steer_the_terminal() -> None:
    model = gemfi.build_model("softmax", "mlp", 2, in_features=2, width=4, depth=1)
    made = make_bundle(
        "hostile",
        model,
        class_names=("a\x1b[2J", "b\x9b"),
        provenance={"spec": {"task": "t\r", "train": "a text"}},
    )
    told = str(made)
    assert r"a\u001b[2J, b\u009b" in told
    assert r"t\u000d, None epochs" in told
    assert all(each.isprintable() or each == "\n" for each in told)


NETWORK = """
from torch import nn

WIDTH = 3


class Net(nn.Sequential):
    num_features = 4

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 4), nn.Tanh())


ready = Net()
"""


@pytest.mark.parametrize("name", ["Net", "ready"])
def test_a_network_of_ones_own_is_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"own_network_{name.lower()}"
    Path(f"{module}.py").write_text(NETWORK)
    network = nn.Sequential(nn.Linear(2, 4), nn.Tanh())
    model = gemfi.build_model("edl", network, 2, num_features=4)
    model.inputs = InputSpec(sample_shape=(2,))
    gemfi.save("model.safetensors", model)
    np.save("x.npy", np.zeros((3, 2), np.float32))
    assert main(["predict", "model.safetensors", "x.npy"]) == 2
    assert "--backbone package.module:name" in capsys.readouterr().err
    place = f"{module}:{name}"
    assert main(["predict", "model.safetensors", "x.npy", "--backbone", place]) == 0
    assert main(["show", "model.safetensors", "--backbone", place]) == 0
    assert "of your own" in capsys.readouterr().out
    for wrong, message in [
        (module, "is named package.module:name"),
        (f"{module}:Nothing", "no backbone at"),
        ("nowhere:Net", "no backbone at nowhere:Net"),
        (f"{module}:WIDTH", "is no torch.nn.Module"),
    ]:
        assert main(["show", "model.safetensors", "--backbone", wrong]) == 2
        assert message in capsys.readouterr().err
