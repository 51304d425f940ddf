"""What several processes are asked together: the answers of one, each of which has its share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed
from torch.multiprocessing.spawn import spawn
from torch.utils.data import DataLoader, TensorDataset

from gemfi.bundle import make_bundle
from gemfi.data import as_split, two_moons
from gemfi.detectors import DETECTORS, observe
from gemfi.errors import NoAnswerError
from gemfi.evaluation import evaluate, fit_detectors
from gemfi.model import Model, build_model
from gemfi.processes import together
from gemfi.randomness import forked_generator
from gemfi.scoring import score_files

TASK = two_moons(n=120)
OUTSIDE = as_split(5 + TASK.test.x[:33], role="ood-test", name="far")


class Counting(torch.nn.Linear):
    """Counts the inputs that it sees."""

    rows = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.rows += len(x)
        return super().forward(x)


def build() -> Model:
    with forked_generator(0):
        model = build_model("gem-fi", Counting(2, 8), 2, num_features=8)
        model.finish(TASK.train, TASK.validation)
        return model


def asked(model: Model, folder: Path) -> dict[str, Any]:
    """Everything that shares its work."""
    np.save(folder / "rows.npy", TASK.test.x.numpy())
    loader = DataLoader(TensorDataset(TASK.test.x, TASK.test.labels), batch_size=7)
    detectors = fit_detectors(model, list(DETECTORS), TASK.train, TASK.validation)
    evaluation = evaluate(model, TASK.test, {"far": OUTSIDE}, detectors)
    bundle = make_bundle("moons", model)
    Counting.rows = 0
    probs = model.predict(TASK.test, 4).probs()
    return {
        "rows": Counting.rows,
        "probs": probs,
        "stream": model.predict(loader).probs(),
        "few": model.predict(TASK.test.x[:3], 2).probs(),
        "features": observe(model, TASK.test, 7).features,
        "detectors": [detector.score(model, TASK.test, 7) for detector in detectors],
        "numbers": [evaluation.classification, evaluation.ood],
        "files": score_files(bundle, [folder / "rows.npy"] * 3, folder / "out.csv").first,
        "out": (folder / "out.csv").read_text(),
    }


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    model = build()
    own = Path(folder, str(rank))
    own.mkdir()
    with together():
        torch.save(asked(model, own), own / "asked.pt")
        x = torch.zeros(10, 2)
        x[9] = torch.inf  # in the share of the second process
        with pytest.raises(NoAnswerError, match="input 9 are not finite"):
            model.predict(x, 5)
    if rank == 0:  # alone, it waits for nobody
        assert len(model.predict(TASK.test)) == len(TASK.test)
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    folder = tmp_path_factory.mktemp("together")
    spawn(work, (str(folder),), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(folder / str(rank) / "asked.pt", weights_only=False) for rank in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return asked(build(), tmp_path_factory.mktemp("alone"))


def test_each_has_its_share(outcome: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    assert alone["rows"] == len(TASK.test) == 60
    assert [part["rows"] for part in outcome] == [32, 28]  # of fifteen batches eight and seven


@pytest.mark.parametrize("what", ["probs", "stream", "few", "features", "detectors"])
def test_each_has_every_answer_in_order(
    outcome: list[dict[str, Any]], alone: dict[str, Any], what: str
) -> None:
    for part in outcome:
        torch.testing.assert_close(part[what], alone[what], rtol=1e-6, atol=1e-8)


def test_numbers_and_files(outcome: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for part in outcome:
        for found, expected in zip(part["numbers"], alone["numbers"], strict=True):
            assert found == expected
        assert [row[1:] for row in part["files"]] == [row[1:] for row in alone["files"]]
        assert part["out"].count("\n") == 181
