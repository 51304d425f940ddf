"""`gemfi export`: what it writes, what it prints, and what it refuses."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemfi.bundle import save
from gemfi.cli import main
from gemfi.export import graphs
from support.exports import Made, images

pytest.importorskip("onnxruntime")


@pytest.fixture
def model(bars: Made, tmp_path: Path) -> Path:
    path = tmp_path / "bars.safetensors"
    save(path, bars.model, policy=bars.deployed.policy)
    return path


@pytest.fixture
def quick(bars: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs of the fixture, which take seconds to make."""
    monkeypatch.setattr(graphs, "to_program", lambda _: bars.program)
    monkeypatch.setattr(graphs, "to_onnx", lambda *_: bars.proto)


@pytest.mark.usefixtures("quick")
class TestWritten:
    def test_all_three(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [tmp_path / name for name in ("a.onnx", "a8.onnx", "a.pt2")]
        options = ["--onnx", files[0], "--int8", files[1], "--program", files[2]]
        assert main(["export", str(model), *map(str, options), "--inputs", "200"]) == 0
        text = capsys.readouterr().out
        assert "compared  on 200 random inputs; --data takes real ones" in text
        assert "outputs   probs, label, max_prob" in text
        assert text.count("decisions that differ: 0 of") == 2
        assert "3 convolutions and 1 matrix product of the network in int8" in text
        assert "same labels " in text
        assert "import onnxruntime" in text
        assert re.search(r"decisions accept \d+, abstain \d+, unfamiliar \d+", text)
        assert all(path.stat().st_size > 1000 for path in files)
        assert sorted(tmp_path.glob("*.tmp")) == []

    def test_files_of_inputs(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        np.save(tmp_path / "x.npy", images(30, "validation", 4).x.numpy())
        options = ["--onnx", str(tmp_path / "a.onnx"), "--data", str(tmp_path / "x.npy")]
        assert main(["export", str(model), *options]) == 0
        assert "compared  on 30 " in capsys.readouterr().out

    def test_nothing_is_left_of_a_graph_that_says_something_else(
        self,
        bars: Made,
        model: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wrong: Any = type(bars.proto)()
        wrong.CopyFrom(bars.proto)
        first = next(node for node in wrong.graph.node if node.op_type == "Relu")
        first.op_type = "Abs"
        monkeypatch.setattr(graphs, "to_onnx", lambda *_: wrong)
        options = ["--onnx", tmp_path / "a.onnx", "--program", tmp_path / "a.pt2"]
        assert main(["export", str(model), *map(str, options), "--inputs", "100"]) == 1
        error = capsys.readouterr().err
        assert "a.onnx does not say what the model says on 100 inputs" in error
        assert "Nothing was written" in error
        assert [each.name for each in tmp_path.iterdir()] == ["bars.safetensors"]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ([], "give at least one file to write"),
            (["--onnx", "a.pt2"], "it must end in .onnx"),
            (["--program", "a.onnx"], "it must end in .pt2"),
            (["--int8", "none/a.onnx"], "its folder does not exist"),
            (["--onnx", "a.onnx", "--int8", "a.onnx"], "a file of its own"),
            (["--onnx", "a.onnx", "--inputs", "0"], "--inputs must be an integer of at least 1"),
            (["--onnx", "a.onnx", "--data", "nowhere.npy"], "nowhere.npy does not exist"),
            (["--onnx", "a.onnx", "--data", "digits"], "--data digits: its inputs (1, 8, 8)"),
        ],
    )
    def test_before_any_work(
        self,
        model: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        options: list[str],
        words: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["export", str(model), *options]) == 2
        assert words in capsys.readouterr().err

    def test_without_the_packages(
        self,
        model: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            monkeypatch.setitem(sys.modules, name, None)
        assert main(["export", str(model), "--onnx", str(tmp_path / "a.onnx")]) == 2
        assert "pip install '.[onnx]' in the clone" in capsys.readouterr().err

    def test_a_folder_that_cannot_be_written_to(
        self, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        module = importlib.import_module("gemfi.cli.options")
        monkeypatch.setattr(module.os, "access", lambda *_: False)
        assert main(["export", str(model), "--onnx", str(tmp_path / "a.onnx")]) == 2
        assert "its folder cannot be written to" in capsys.readouterr().err
