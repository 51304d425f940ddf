"""Memory of what reads a stream does not grow with the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DATA = """
import json, resource, sys
import torch
from torch.utils.data import DataLoader, Dataset
from gemfi import Monitor, Policy, TrainConfig, as_split, build_model, evaluate, fit, save
from gemfi.detectors import DETECTORS
from gemfi.evaluation import fit_detectors

class Rows(Dataset):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, row):
        x = torch.randn(2048)
        x[row % 20] += 4
        return x, row % 20

def stream(role, count): return as_split(DataLoader(Rows(count), batch_size=100), role=role)
def said(**facts):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"peak": peak, **facts}))

rows = int(sys.argv[1])
train, held = stream("train", rows), stream("validation", 600)
model = build_model("gem-fi", "mlp", 20, in_features=2048, width=32, depth=1)
"""

TRAINED = """
result = fit(model, train, held, TrainConfig(epochs=1), progress=False)
said(steps=result.steps, done=bool(model.head.density.fitted))
"""

ASKED = """
model.finish(stream("train", 600), held)
names = [name for name in DETECTORS if name != "knn"]  # which keeps every training feature
detectors = fit_detectors(model, names, train, stream("validation", rows // 10))
found = evaluate(model, stream("test", rows), {"more": stream("ood-test", rows)}, detectors)
calibration = stream("calibration", rows)
policy = Policy.fit(model, calibration, false_alarm=0.1)
monitor = Monitor.fit(model, calibration)
save(sys.argv[2], model, calibration=calibration, policy=policy)
for belief, _ in model.beliefs(DataLoader(Rows(rows), batch_size=100)):
    monitor.update(belief)
seen = {found.row("more")["n_ood_epistemic"], monitor.state.count}
said(steps=-(-rows // 100), done=seen == {rows})
"""


@pytest.mark.parametrize("program", [TRAINED, ASKED])
def test_ten_times_the_rows_take_the_same_memory(program: str, tmp_path: Path) -> None:
    """Inputs of 5,400 rows more take 44 MB, which would be seen.

    Kept is one number for each score and row, about 400 bytes a row in all.
    """

    def peak_of(rows: int) -> int:
        command = [
            sys.executable,
            "-c",
            DATA + program,
            str(rows),
            str(tmp_path / "it.safetensors"),
        ]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
        said = json.loads(ended.stdout.splitlines()[-1])
        assert said["steps"] == -(-rows // 100)
        assert said["done"]
        return int(said["peak"])

    assert peak_of(6_000) < 1.05 * peak_of(600)
