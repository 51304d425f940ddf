"""The README tells the truth: its code runs, its table is the code's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gemfi.cli.methods import detector_table, method_table, preset_table
from support.scripts import benchmark_script

ROOT = Path(__file__).parents[1]
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
QUICK_START, OWN_NETWORK, DECISIONS, OWN_MODEL, DEPLOY = re.findall(
    r"(?ms)^```python\n(.*?)^```", README
)


def test_the_tables_of_methods_are_the_codes_own() -> None:
    assert method_table() in README
    docs = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for table in (method_table(), detector_table(), preset_table()):
        assert table in docs


def test_the_tables_of_results_are_those_of_the_records() -> None:
    script = benchmark_script("overview")
    assert script.overview() in README, "python benchmarks/overview.py prints it"
    assert script.ledgers() in README, "python benchmarks/overview.py prints it"


def test_the_quick_start_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len([line for line in QUICK_START.splitlines() if line.strip()]) <= 11
    names: dict[str, Any] = {}
    exec(compile(QUICK_START, "README.md", "exec"), names)  # noqa: S102 - our own text
    auroc = float(capsys.readouterr().out.splitlines()[-1])
    assert auroc > 80
    outside = names["task"].ood_test["digits-8-9"].x
    names |= {"new_x": outside, "stream_x": outside[:40]}
    exec(compile(DECISIONS, "README.md", "exec"), names)  # noqa: S102
    assert re.match(r"\w+: label \d, confidence 0\.\d+, p = ", capsys.readouterr().out)
    assert names["monitor"].state.fired
    monkeypatch.chdir(tmp_path)
    exec(compile(DEPLOY, "README.md", "exec"), names)  # noqa: S102
    assert (tmp_path / "model.safetensors").exists()


def test_models_and_tables_of_your_own() -> None:
    x, y = torch.randn(120, 4).numpy(), ["a", "b"] * 60
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    names: dict[str, Any] = {"your_network": network, "X": x, "y": y}
    exec(compile(OWN_MODEL, "README.md", "exec"), names)  # noqa: S102
    assert names["model"].head.num_classes == 3
    assert set(names["classifier"].classes_) == {"a", "b"}


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists(), target


def test_the_recipe_for_your_own_network_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = torch.randint(256, (60, 3, 8, 8), dtype=torch.uint8)
    names = {
        "x": x,
        "y": torch.arange(60) % 10,
        "backbone": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten()),
        "new_x": x[:3],
    }
    exec(compile(OWN_NETWORK.replace("epochs=20", "epochs=1"), "README.md", "exec"), names)  # noqa: S102
    assert names["belief"].probs().shape == (3, 10)
    assert (tmp_path / "runs" / "a" / "checkpoint.safetensors").exists()
