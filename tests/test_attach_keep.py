"""`attach(network, method="keep")`: a trained network that needs no training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from gemfi import Policy, Task, attach, evaluate, load, save
from gemfi.data import two_moons
from gemfi.detectors import DETECTORS
from gemfi.errors import InputError
from gemfi.randomness import forked_generator


class TestKeep:
    """`method="keep"`: the network answers as before, and can be asked about what it knows."""

    @staticmethod
    def trained() -> tuple[nn.Module, Task]:
        task = two_moons(n=300)
        with forked_generator(0):
            network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(150):
            loss = functional.cross_entropy(network(task.train.x), task.train.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return network, task

    def test_everything_works_without_training(self, tmp_path: Path) -> None:
        network, task = self.trained()
        model = attach(network, method="keep")
        expected = torch.softmax(network(task.test.x), dim=1).detach()
        torch.testing.assert_close(model.predict(task.test).probs().float(), expected)
        loader = DataLoader(TensorDataset(task.train.x, task.train.labels), batch_size=32)
        model.finish(loader, task.validation)
        torch.testing.assert_close(model.predict(task.test).probs().float(), expected)
        outside = evaluate(model, task.test, dict(task.ood_test)).row("cluster")
        assert outside["auroc_epistemic"] > 90
        policy = Policy.fit(model, task.calibration, false_alarm=0.1)
        path = save(
            tmp_path / "kept.safetensors", model, calibration=task.calibration, policy=policy
        )
        again = load(path, backbone=attach(network, method="keep"))
        assert torch.equal(
            again.predict(task.test.x).log_probs(), model.predict(task.test).log_probs()
        )
        detector = DETECTORS["knn"]()
        detector.fit(model, task.train, task.validation)
        far = detector.score(model, task.ood_test["cluster"]).mean()
        assert far > detector.score(model, task.test).mean()

    def test_before_it_is_finished_it_names_the_call(self) -> None:
        network, task = self.trained()
        model = attach(network, method="keep")
        with pytest.raises(InputError, match=r"call model.finish\(train, validation\)"):
            Policy.fit(model, task.calibration, false_alarm=0.1)

    def test_what_cannot_be_kept(self) -> None:
        network, _ = self.trained()
        with pytest.raises(InputError, match="leave features= out"):
            attach(network, method="keep", features="0", num_features=16)
        with pytest.raises(InputError, match="tells 2 classes apart, not 5"):
            attach(network, method="keep", num_classes=5)
