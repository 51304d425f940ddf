"""Memory of a run on a stream does not grow with the data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import json, resource, sys
import torch
from torch.utils.data import DataLoader, Dataset
from gemfi import TrainConfig, as_split, build_model, fit

class Rows(Dataset):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, row):
        x = torch.randn(256)
        x[row % 4] += 4
        return x, row % 4

train = as_split(DataLoader(Rows(int(sys.argv[1])), batch_size=256), role="train")
held = as_split(DataLoader(Rows(2_000), batch_size=256), role="validation")
model = build_model("gem-fi", "mlp", 4, in_features=256, width=32, depth=1)
result = fit(model, train, held, TrainConfig(epochs=1), progress=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"peak": peak, "steps": result.steps, "fitted": model.head.density.fitted}))
"""


def peak_of(rows: int) -> int:
    command = [sys.executable, "-c", PROGRAM, str(rows)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    said = json.loads(ended.stdout.splitlines()[-1])
    assert said["steps"] == -(-rows // 256)
    assert said["fitted"]
    return int(said["peak"])


def test_ten_times_the_rows_take_the_same_memory() -> None:
    """Of 4,000 and 40,000 rows of 1 kB; 36 MB more would be seen."""
    assert peak_of(40_000) < 1.05 * peak_of(4_000)
