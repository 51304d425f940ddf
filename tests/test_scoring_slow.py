"""A million rows in a bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gemfi.data import TASKS
from gemfi.runs import make_spec, train_run

pytestmark = pytest.mark.slow

_CODE = """
import resource, sys
from pathlib import Path
from gemfi.runs import open_model
from gemfi.scoring import score_files
scored = score_files(open_model(sys.argv[1]), [sys.argv[2]], Path(sys.argv[3]), batch_size=4096)
print(scored.count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_a_million_rows_take_as_much_memory_as_a_few(tmp_path: Path) -> None:
    torch.manual_seed(0)
    task = TASKS["two-moons"]()
    spec = make_spec("two-moons", "gem-fi", task, options=("width=8",), train={"epochs": 1})
    train_run(spec, tmp_path / "run", progress=False, task=task)
    rng = np.random.default_rng(0)
    used = {}
    for count in (20_000, 1_000_000):
        np.save(tmp_path / "x.npy", rng.normal(size=(count, 2)).astype(np.float32))
        arguments = [tmp_path / "run", tmp_path / "x.npy", tmp_path / "out.csv"]
        found = subprocess.run(
            [sys.executable, "-c", _CODE, *map(str, arguments)],
            check=True,
            capture_output=True,
            text=True,
        )
        done, megabytes = map(int, found.stdout.split())
        assert done == count
        used[count] = megabytes
    with (tmp_path / "out.csv").open() as file:
        assert sum(1 for _ in file) == 1_000_001
    assert used[1_000_000] - used[20_000] < 60, used
