"""Texts of files that would steer a terminal: commands and errors show them as escapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import gemfi
from gemfi.bundle.bundle import MODEL
from gemfi.cli import main
from gemfi.errors import GemfiError
from support.commands import Capture
from support.forged import STEERING, forge, golden_header


def steering(value: Any) -> Any:
    """A header whose every text, and every name in metrics and provenance, steers a terminal."""
    if isinstance(value, dict):
        return {f"{key}{STEERING}": steering(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [steering(inner) for inner in value]
    return f"{value}{STEERING}" if isinstance(value, str) else value


def hostile_header() -> dict[str, Any]:
    """A header that can be loaded, with every text of free choice changed."""
    header = golden_header()
    for key in ("metrics", "class_names"):
        header[key] = steering(header[key])
    header["network"] += STEERING
    header["feature_names"] = [f"x{STEERING}\n", f"y{STEERING}\r"]
    header["policy"]["class_names"] = header["class_names"]
    header["provenance"] = {
        key: {name: steering(inner) for name, inner in value.items()}
        for key, value in header["provenance"].items()
        if isinstance(value, dict)
    } | {STEERING: STEERING}
    return header


def assert_safe(capsys: Capture) -> str:
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert all(each.isprintable() for each in set(text) - {"\n"})
    return text


def test_no_command_lets_a_file_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    path = forge(tmp_path / f"m{STEERING}.safetensors", hostile_header())
    inputs = tmp_path / f"in{STEERING}.csv"
    inputs.write_text(f"x{STEERING},y{STEERING}\n1,2\n3,{STEERING}\n", encoding="utf-8")
    for arguments, code in [
        (["show", str(path)], 0),
        (["show", str(path), "--json"], 0),
        (["predict", str(path), str(inputs)], 1),
        (["predict", str(path), str(inputs), "--policy", "youden"], 2),
        (["predict", str(path), str(tmp_path / STEERING)], 2),
        (["show", STEERING], 2),
    ]:
        assert main(arguments) == code, arguments
        assert "1b]0;x" in assert_safe(capsys)


def test_a_table_of_a_stranger_does_not_steer_either(tmp_path: Path, capsys: Capture) -> None:
    table = tmp_path / f"t{STEERING}.csv"
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 2, generator=generator).tolist()
    lines = [f"{a},{b},{'ab'[a > 0]}{STEERING}" for a, b in rows]
    table.write_text("\n".join([f"x{STEERING},y{STEERING},c{STEERING}", *lines]), encoding="utf-8")
    run, file = tmp_path / f"run{STEERING}", tmp_path / "m.safetensors"
    train = ["train", str(table), "--method", "softmax", "--epochs", "1", "--out", str(run)]
    for arguments in (
        train,
        ["evaluate", str(run)],
        ["bundle", str(run), str(file), "--policy", "false_alarm=0.2"],
        ["show", str(file)],
        ["predict", str(run), str(table), "--policy", "false_alarm=0.2"],  # a run's path is opened
    ):
        assert main(arguments) == 0
        assert "1b]0;x" in assert_safe(capsys)


@pytest.mark.parametrize(
    "place",
    [
        ("method",), ("backbone", "name"), ("dtype",), ("sample_dtype",), ("policy", "score"),
        ("backbone", "options", "spectral", "kind"), ("config", "gate"), ("config", STEERING),
        ("backbone", "options", STEERING), ("policy", "facts", STEERING), (STEERING,),
    ],
)  # fmt: skip
def test_no_error_lets_a_file_steer_the_terminal(
    place: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    header = golden_header()
    inner = header
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = f"{inner.get(place[-1])}{STEERING}\n"
    path = forge(tmp_path / "m.safetensors", header)
    if place == ("policy", "score"):  # may be that of a detector
        assert gemfi.load(path).policy is not None
    else:
        with pytest.raises(GemfiError) as caught:
            gemfi.load(path)
        assert str(caught.value).isprintable()
    main(["show", str(path)])
    assert_safe(capsys)


def test_tensors_with_names_that_steer(tmp_path: Path, capsys: Capture) -> None:
    tensors = {f"{MODEL}{STEERING}": torch.zeros(1), STEERING: torch.zeros(1)}
    path = forge(tmp_path / "m.safetensors", golden_header(), tensors)
    assert main(["show", str(path)]) == 2
    assert_safe(capsys)
