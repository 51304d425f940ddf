"""Bundles from strangers: absurd claims, endless numbers, and paths to open."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gemfi
from gemfi import METHODS, Model, build_model
from gemfi.bundle import make_bundle
from gemfi.bundle.bundle import MODEL
from gemfi.cli import main
from gemfi.data import Role, Split
from gemfi.data.inputs import InputSpec
from gemfi.errors import CheckpointError, GemfiError
from support.commands import Capture, refused
from support.forged import STEERING, forge, golden_header

BACKBONES: dict[str, dict[str, Any]] = {
    "mlp": {"in_features": 2, "width": 4, "depth": 2},
    "convnet": {"size": 8, "channels": 2, "hidden": (3,)},
    "resnet18": {"size": 8, "width": 2},
    "vgg16": {"width": 2},
    "identity": {"in_features": 3},
}


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


ABSURD = (
    0, -1, 10**7, 2**40, 10**400, 1e300, float("nan"), float("inf"), STEERING, nested(900),
    nested(9), True, None,
)  # fmt: skip


def parts(model: Model) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a bundle."""
    header = make_bundle("m", model).info.to_plain()
    return header, {f"{MODEL}{name}": each for name, each in model.state_dict().items()}


def places(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The dotted names of everything in a header."""
    if place:
        yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))


def changed(header: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(header))
    inner = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return found


# -- what is not in the file is not built ----------------------------------------------------------


def claim(method: str, config: dict[str, Any], backbone: str, **options: Any) -> dict[str, Any]:
    """A header that describes something large."""
    return golden_header() | {
        "method": method,
        "config": config,
        "backbone": {"name": backbone, "options": options},
        "policy": None,
    }


HARD = {"kind": "hard", "bound": 1.0}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (claim("softmax", {}, "mlp", in_features=2, depth=2 * 10**6), "more tensors than the file"),
        (
            claim("ensemble", {"members": 10**7}, "mlp", in_features=2),
            "10,000,000 networks cannot be in 150 tensors",
        ),
        (
            claim("ensemble", {"members": 150}, "mlp", in_features=2, depth=150, spectral=HARD),
            "more tensors than the file",
        ),
        (claim("softmax", {}, "mlp", in_features=2, width=2**40), "cannot be built"),
        (claim("softmax", {}, "resnet18", width=2**40), "cannot be built"),
        (claim("softmax", {}, "resnet18", size=2**40, spectral=HARD), "cannot be built"),
        (claim("softmax", {}, "vgg16", size=2**25), "features, but the header says 12"),
        (claim("softmax", {}, "convnet", hidden=[8] * 3000), "more tensors than the file"),
        (claim("postnet", {"flow_length": 2**40}, "mlp", in_features=2, width=12), "is missing"),
        (claim("mc-dropout", {"passes": 2**33}, "mlp", in_features=2, width=12), "is missing"),
        (claim("gem-fi", {"num_components": 2**33}, "mlp", in_features=2, width=12), "is missing"),
    ],
)
def test_a_small_file_cannot_ask_for_a_large_model(
    header: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Counted in tensors that are made: each is on the meta device, and has no memory."""
    tensors = {f"{MODEL}{index}": torch.zeros(0) for index in range(150)}
    path = forge(tmp_path / "m.safetensors", header, tensors)
    assert path.stat().st_size < 30_000
    made = 0

    def count(_module: nn.Module, _name: str, value: Tensor | None) -> None:
        nonlocal made
        if value is not None:
            made += 1
            assert value.is_meta

    hooks = [
        nn.modules.module.register_module_parameter_registration_hook(count),
        nn.modules.module.register_module_buffer_registration_hook(count),
    ]
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(path)
    for hook in hooks:
        hook.remove()
    assert made < 400


def test_the_size_of_images_costs_nothing(tmp_path: Path) -> None:
    """ResNet's tensors do not depend on it, so that a file can state any."""
    header, tensors = parts(build_model("softmax", "resnet18", 2, width=2, size=8))
    header["backbone"]["options"]["size"] = 10**6
    found = gemfi.load(forge(tmp_path / "m.safetensors", header, tensors))
    assert {each.device.type for each in found.model.state_dict().values()} == {"cpu"}


def test_networks_of_other_threads_are_not_counted(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    path = forge(tmp_path / "m.safetensors", golden_header())
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(gemfi.load, path) for _ in range(3)]
        large = pool.submit(build_model, "softmax", "mlp", 2, in_features=2, depth=300)
    assert len({str(each.result()) for each in loads}) == 1
    assert len(list(large.result().parameters())) > 600


# -- numbers, depths and facts ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": {"n": 10**400}}, "an integer of 401 digits is beyond 64 bits"),
        ({"metrics": {"n": -(2**63) - 1}}, "beyond 64 bits"),
        ({"provenance": {"n": nested(900)}}, "nested deeper than 32"),
        ({"metrics": {"a": {"b": nested(40)}}}, "nested deeper than 32"),
        ({"metrics": {"accuracy": float("nan")}}, "NaN is no number of JSON"),
        ({"metrics": {"accuracy": float("-inf")}}, "-Infinity is no number of JSON"),
        ({"class_names": ["\ud800", "b"]}, "surrogates not allowed"),
        ({"method": "x" * 10**5}, r"unknown method 'x{300,600} \.\.\.$"),
    ],
)
def test_what_json_allows_and_nobody_can_use(
    changes: dict[str, Any], message: str, tmp_path: Path, capsys: Capture
) -> None:
    path = forge(tmp_path / "m.safetensors", golden_header() | changes)
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(path)
    refused(["show", str(path)], capsys)


def test_a_number_of_five_thousand_digits(tmp_path: Path) -> None:
    """Python itself refuses to read it, with another error."""
    inner = json.dumps(golden_header() | {"metrics": {"n": 77}})[1:-1]
    path = forge(tmp_path / "m.safetensors", inner.replace("77", "7" * 5000))
    with pytest.raises(CheckpointError, match="an integer of 5000 digits is beyond 64 bits"):
        gemfi.load(path)
    path = forge(tmp_path / "n.safetensors", inner.replace("77", "1e999"))
    with pytest.raises(CheckpointError, match="the number 1e999 is too large"):
        gemfi.load(path)


FACTS = golden_header()["policy"]["facts"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"calibration": "inf"}, "facts.calibration: expected a number from 0 to 1e.15, got inf"),
        ({"judged": "inf"}, "facts.judged"),
        ({"false_alarm_low": "nan"}, "facts.false_alarm_low"),
        ({"false_alarm_high": -1.0}, "facts.false_alarm_high"),
        ({"coverage": 1e300}, "facts.coverage"),
        ({"coverage": 0.5, "error": None}, "facts"),
        ({"error": "nan"}, None),
    ],
)
def test_facts_of_a_policy_can_be_told(
    facts: dict[str, Any], message: str | None, tmp_path: Path, capsys: Capture
) -> None:
    told = {name: value for name, value in (FACTS | facts).items() if value is not None}
    header = golden_header()
    header["policy"]["facts"] = told
    path = forge(tmp_path / "m.safetensors", header)
    if message is None:
        assert main(["show", str(path)]) == 0
        return
    with pytest.raises(CheckpointError, match=message):
        gemfi.load(path)
    refused(["show", str(path)], capsys)


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("value", [-0.5, 10**400, 1.5, "0.1"])
def test_a_rate_of_dropout_that_cannot_be(backbone: str, value: Any, tmp_path: Path) -> None:
    header, tensors = parts(build_model("softmax", backbone, 2, **BACKBONES[backbone]))
    header["backbone"]["options"]["dropout"] = value
    with pytest.raises(CheckpointError):
        gemfi.load(forge(tmp_path / "m.safetensors", header, tensors))


def judged(header: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> None:
    """Loaded and shown, or refused with an error of gemfi both times; nothing else."""
    forge(path, header, tensors)
    try:
        gemfi.load(path)
        expected = 0
    except GemfiError:
        expected = 2
    assert main(["show", str(path)]) == expected


def absurd_values(folder: Path) -> int:
    """Put each absurd value at each place of each backbone and each method; returns how many."""
    count, path = 0, folder / "m.safetensors"
    models = [build_model("softmax", name, 2, **options) for name, options in BACKBONES.items()]
    rows = Split(torch.randn(40, 2), torch.arange(40) % 2, Role.TRAIN, "rows", 2)
    for name in METHODS:
        models.append(build_model(name, "mlp", 2, in_features=2, width=4, depth=1))
        models[-1].finish(rows)
    for index, model in enumerate(models):
        header, tensors = parts(model)
        for place in places(header):
            if index > 0 and place[0] not in {"config", "backbone"}:
                continue  # alike in all of them
            for value in ABSURD:
                judged(changed(header, place, value), tensors, path)
                count += 1
    return count


FUZZ = """
import resource, sys
from pathlib import Path

limit = 3 << 30  # bytes of address space; torch itself takes about one third of it
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sys.path[:0] = sys.argv[2:]
from test_strangers import absurd_values
print("judged", absurd_values(Path(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_absurd_values_are_judged_in_little_memory(tmp_path: Path) -> None:
    """In a process of its own with little memory, whose standard output is what `show` prints."""
    folders = [str(Path(__file__).parents[depth]) for depth in (0, 1)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FUZZ, str(tmp_path), *folders],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.rpartition("judged ")[2]) > 5000
    assert all(each.isprintable() for each in set(done.stdout + done.stderr) - {"\n"})


# -- a screen --------------------------------------------------------------------------------------


def test_a_bundle_is_printed_on_one_screen() -> None:
    text = str(gemfi.load("mnist-gem-fi"))
    lines = text.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert text == repr(gemfi.load("mnist-gem-fi"))
    names = ["model", "method", "backbone", "inputs", "classes", "policy", "monitor", "validation"]
    for name in [*names, "trained on", "made with"]:
        assert any(line.startswith(name) for line in lines)
    assert "5,000 calibration samples inside" in text


def test_the_longest_bundle_is_printed_on_one_screen() -> None:
    model = build_model("softmax", "mlp", 900, in_features=700, width=4, depth=1)
    model.inputs = InputSpec(sample_shape=(700,))
    made = make_bundle(
        "n" * 999,
        model,
        class_names=["word " * 99] * 900,
        feature_names=[f"column\n{index}" for index in range(700)],
        metrics={f"set {index}": "x" * 999 for index in range(99)},
        provenance={"spec": {"task": "t" * 999}, "environment": {"gemfi": "g" * 999}},
    )
    lines = str(made).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("classes     900: word word") for line in lines)
    assert any(line.startswith(r"columns     700: column\u000a0, column") for line in lines)


# -- the file system -------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["youden", "error=1,abstain=0.1"])
@pytest.mark.parametrize("command", ["predict", "serve", "export"])
def test_a_bundle_names_no_path_to_open(
    command: str, goal: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private.csv"
    private.write_text("a,b,label\n1,2,x\n")
    header = golden_header()
    header["provenance"]["spec"]["task"] = str(private)
    path = forge(tmp_path / "m.safetensors", header)
    inputs = tmp_path / "x.csv"
    inputs.write_text("1,2\n")
    opened: list[str] = []
    before = Path.open

    def spy(self: Path, *given: Any, **named: Any) -> Any:
        opened.append(self.name)
        return before(self, *given, **named)

    monkeypatch.setattr(Path, "open", spy)
    monkeypatch.setattr(Path, "exists", lambda self: self.name != "private.csv" or 1 / 0)
    more = {
        "predict": [str(inputs)],
        "serve": ["--port", "0"],
        "export": ["--program", str(tmp_path / "m.pt2")],
    }
    line = refused([command, str(path), *more[command], "--policy", goal], capsys)
    assert "a path that a file names is not opened: give the folder of the run" in line
    assert "private.csv" not in opened
