"""The examples run as they stand, and show what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

SHOWS = {  # example -> what its output must hold
    "own_cnn": (r"accuracy 9\d\.\d %", r"noise: AUROC (9\d|100)\.\d"),
    "own_loop": (r"epoch 10: nll 0\.0", r"test: (\d|1\d)% unf", r"digits-8-9: [4-9]\d% unf"),
    "lightning_loop": (
        r"test: .*'unfamiliar': (\d|[1-4]\d)}",
        r"digits-8-9: .*'unfamiliar': [12]\d\d}",
    ),
    "huggingface_trainer": (r"'train_loss'", r"new topic: AUROC (9\d|100)\.\d"),
    "accelerate_loop": (
        r"test .*'unfamiliar': (\d|[1-4]\d)}",
        r"digits-8-9 .*'unfamiliar': [12]\d\d}",
    ),
    "tabular_pipeline": (r"test accuracy (0\.9|1\.0)", r"aleatoric", r"first: \w+: label \w+"),
    "frozen_backbone": (r"accuracy 9\d\.\d %", r"noise: AUROC (9\d|100)\.\d"),
    "text": (r"accuracy (9\d|100)\.", r"new topic (9\d|100)\."),
    "choosing_a_threshold": (r"at most 5% of known inputs", r"one input: \w+: label \d"),
    "monitoring_a_stream": (r"alarm   none", r"FIRED at input"),
    "comparing_methods": (r"softmax", r"daedl", r"gem-fi .* by unfamiliarity"),
    "reading_the_decomposition": (r"total = aleatoric \+ within", r"one image of an 8 or 9"),
}


def test_every_example_is_known_and_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert {file.stem for file in files} == set(SHOWS)
    for file in files:
        assert len(file.read_text().splitlines()) < 40, file.name


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    for pattern in SHOWS[name]:
        assert re.search(pattern, found.stdout), found.stdout
