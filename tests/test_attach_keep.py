"""`attach(network, method="keep")`: a trained network that needs no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from gemfi import Monitor, Policy, Split, Task, as_split, attach, evaluate, load, save
from gemfi.bundle import make_bundle
from gemfi.calibration import fit_temperature
from gemfi.data import two_moons
from gemfi.detectors import DETECTORS
from gemfi.errors import InputError
from gemfi.export import Deployed, check_parity, onnx_runner, to_onnx
from gemfi.randomness import forked_generator
from gemfi.serve.app import create_app
from gemfi.serve.settings import Settings


class Mappings(Dataset[Any]):
    """Items as Hugging Face has them."""

    def __init__(self, split: Split, *, labelled: bool = True) -> None:
        self.split, self.labelled = split, labelled

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, row: int) -> dict[str, Any]:
        item: dict[str, Any] = {"inputs": self.split.x[row]}
        return item | ({"labels": int(self.split.labels[row])} if self.labelled else {})


def loader(split: Split) -> DataLoader[Any]:
    return DataLoader(Mappings(split), batch_size=32)


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

    def test_everything_works_from_streams(self, tmp_path: Path) -> None:
        """Loaders of mappings; labels only where a role needs them."""
        network, task = self.trained()
        model, whole = (attach(network, method="keep") for _ in range(2))
        model.finish(loader(task.train), loader(task.validation))
        whole.finish(task.train, task.validation)
        calibration = as_split(loader(task.calibration), role="calibration")
        inputs = DataLoader(Mappings(task.test, labelled=False), batch_size=30)
        belief, expected = model.predict(inputs), whole.predict(task.test)
        torch.testing.assert_close(belief.need("log_density"), expected.need("log_density"))
        held = model.predict(task.validation).log_probs()
        log_t = fit_temperature(held, task.validation.labels)
        for each in (model, whole):
            each.set_temperature(log_t)
        policy = Policy.fit(model, calibration, false_alarm=0.1)
        decided = policy(model.predict(inputs))
        same = Policy.fit(whole, task.calibration, false_alarm=0.1)(whole.predict(task.test))
        assert decided.names() == same.names()
        monitor = Monitor.fit(model, calibration)
        state = monitor.update(model.predict(inputs))
        assert (state.count, state.fired) == (len(task.test), False)
        for name, detector in DETECTORS.items():
            one, other = detector(), detector()
            one.fit(model, loader(task.train), loader(task.validation))
            other.fit(whole, task.train, task.validation)
            found, wanted = one.score(model, inputs), other.score(whole, task.test)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, msg=name)
        path = save(tmp_path / "it.safetensors", model, calibration=calibration, policy=policy)
        bundle = load(path, backbone=attach(network, method="keep"))
        assert bundle.decide(task.test).names() == decided.names()

    def test_it_is_exported_and_served(self) -> None:
        network, task = self.trained()
        model = attach(network, method="keep")
        model.finish(loader(task.train), loader(task.validation))
        policy = Policy.fit(model, task.calibration, false_alarm=0.1)
        deployed = Deployed(model, policy)
        graph = onnx_runner(to_onnx(deployed).SerializeToString())
        check_parity(deployed, graph, task.test.x[:60]).require("the graph")
        bundle = make_bundle("moons", model, calibration=task.calibration, policy=policy)
        with TestClient(create_app(bundle, Settings()), "http://localhost") as client:
            rows = task.test.x[:3].tolist()
            answer = client.post("/v1/predict", json={"inputs": rows}).json()
        wanted = policy(model.predict(task.test.x[:3]))
        assert [each["decision"] for each in answer["predictions"]] == wanted.names()

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
