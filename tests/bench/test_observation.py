"""What a run keeps of each set, against slow and obvious computations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gemfi.data import TASKS, Task
from gemfi.detectors import observe
from gemfi.errors import RoleError
from gemfi.methods import GEMConfig
from gemfi.methods.gem_paper import as_paper
from gemfi.model import Model, build_model
from gemfi_bench.observation import observed_arrays, parts, training_bank


@pytest.fixture(scope="module")
def task() -> Task:
    return TASKS["digits"]()


@pytest.fixture(scope="module")
def model(task: Task) -> Model:
    torch.manual_seed(0)
    config = replace(as_paper(GEMConfig()), gate="prob")
    built = build_model("gem-paper", "convnet", 7, config=config, size=8, channels=4).eval()
    z = built.embed(task.train.x, taps=True)
    built.head.fit_statistics([(z, task.train.labels)], [(z, task.train.labels)])
    return built


def test_distances_are_to_the_tenth_nearest_training_feature(model: Model, task: Task) -> None:
    bank = training_bank(model, task.train)
    found = parts(observe(model, task.test), bank)
    z = model.embed(task.test.x)
    for name, scale in (("distance", True), ("distance_raw", False)):
        for row in (0, 7):
            rows, one = bank, z[row]
            if scale:
                rows, one = rows / rows.norm(dim=1, keepdim=True), one / one.norm()
            nearest = sorted(float((each - one).norm()) for each in rows)[9]
            assert float(found[name][row]) == pytest.approx(nearest, rel=1e-3)


def test_heads_and_router_pair_by_pair(model: Model, task: Task) -> None:
    belief = model.predict(task.test.x[:20])
    bank = training_bank(model, task.train)
    found = parts(observe(model, task.test.subset(range(20))), bank)
    p = belief.log_p.exp().numpy()
    pairs = [(0, 1), (0, 2), (1, 2)]
    for row in range(20):
        cosine = [
            p[row, a] @ p[row, b] / np.linalg.norm(p[row, a]) / np.linalg.norm(p[row, b])
            for a, b in pairs
        ]
        differ = [p[row, a].argmax() != p[row, b].argmax() for a, b in pairs]
        weight = belief.log_weight[row].exp().numpy()
        assert float(found["cosine"][row]) == pytest.approx(np.mean(cosine))
        assert float(found["differ"][row]) == pytest.approx(np.mean(differ))
        assert float(found["router_max"][row]) == pytest.approx(weight.max())
        entropy = -(weight * np.log(weight)).sum()
        assert float(found["router_entropy"][row]) == pytest.approx(entropy)


def test_the_conflict_score_is_the_mixture_of_its_two_variances(model: Model, task: Task) -> None:
    observed = observe(model, task.test.subset(range(20)))
    found = parts(observed, training_bank(model, task.train))
    arrays = observed_arrays(model, task.test.subset(range(20)), training_bank(model, task.train))
    half = 0.5 * (found["between"] + found["within"])
    np.testing.assert_allclose(arrays["score/conflict"], half.numpy(), rtol=1e-5)


def test_arrays_are_compact_and_complete(model: Model, task: Task) -> None:
    bank = training_bank(model, task.train)
    arrays = observed_arrays(model, task.test, bank, log_probs=True, examples=True)
    count = len(task.test)
    assert arrays["label"].dtype == np.int16
    assert arrays["score/entropy"].dtype == np.float32
    assert arrays["router"].shape == (count, 3)
    assert arrays["log_probs"].shape == (count, 7)
    assert arrays["example/input"].shape == (16, 1, 8, 8)
    assert arrays["example/log_p"].shape == (16, 3, 7)
    assert "part/gate" in arrays
    unlabelled = observed_arrays(model, task.ood_test["noise"], bank)
    assert "label" not in unlabelled
    assert "log_probs" not in unlabelled


def test_one_component_has_no_pairs(task: Task) -> None:
    torch.manual_seed(0)
    softmax = build_model("softmax", "convnet", 7, size=8, channels=4).eval()
    found = parts(observe(softmax, task.test), training_bank(softmax, task.train))
    assert set(found) == {"distance", "distance_raw"}


def test_distances_are_to_training_data_only(model: Model, task: Task) -> None:
    with pytest.raises(RoleError, match="distances to training features"):
        training_bank(model, task.test)
