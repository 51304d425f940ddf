"""Energy, ODIN, Mahalanobis and LTS against pytorch-ood 0.4.0.

`import pytorch_ood` imports torchvision, which this project does without. Its detectors need none
of that: `theirs` loads their modules below empty parents. `make install` installs the package alone
(`tests/parity.txt`). `RECORDED` is what it gave, for those who do not have it; where it is
installed, the records are compared with the package itself too.

Their energies and LTS are ours. Their ODIN is −max p, ours 1 − max p. Their Mahalanobis score is
half the square, with the sum of the outer products in the place of the covariance: ours is 2N times
theirs, once the ridges agree.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gemfi import Model
from gemfi.data.normalisation import standardised
from gemfi.density import Statistics
from gemfi.detectors import (
    LTS,
    ODIN,
    Energy,
    EnergyConfig,
    LTSConfig,
    Mahalanobis,
    MahalanobisConfig,
    ODINConfig,
    observe,
)
from support.detectors import fit_observed
from support.pytorch_ood import empty_parents

from .conftest import CLASSES, STD, TEST, TRAIN, VALIDATION, WIDTH, make_model

COUNT = 6  # inputs
NOISE, EPSILON = 0.01, 0.02


def ridge(features: Tensor) -> float:
    """Theirs, 1e-6 on the sum of the outer products, in our units."""
    statistics = Statistics(CLASSES, WIDTH, tied=True)
    statistics.update(features, TRAIN.labels)
    return 1e-6 / (len(features) * float(statistics.tied_covariance().diagonal().mean()))


def ours() -> dict[str, Tensor]:
    model, x = make_model(), TEST.x[:COUNT]
    train, validation = observe(model, TRAIN), observe(model, VALIDATION)
    test = observe(model, TEST.subset(range(COUNT)))
    small = ridge(train.features)
    distance = Mahalanobis(MahalanobisConfig(ridge=small))
    noisy = Mahalanobis(MahalanobisConfig(ridge=small, noise=NOISE))
    for each in (distance, noisy):
        fit_observed(each, train, validation)
    scale = 2 * len(TRAIN)
    return {
        "energy": Energy().score_observed(test),
        "energy at 2.5": Energy(EnergyConfig(2.5)).score_observed(test),
        "odin": ODIN().score(model, x) - 1,
        "odin at 2": ODIN(ODINConfig(2.0, EPSILON)).score(model, x) - 1,
        "mahalanobis": distance.score_observed(test) / scale,
        "mahalanobis with noise": noisy.score(model, x) / scale,
        "lts": LTS(LTSConfig(50.0)).score_observed(test),
    }


@contextmanager
def stubbed() -> Iterator[None]:
    """Empty parents, so that modules below them can be imported, and float64."""
    with empty_parents("detector", "utils"):
        utils: Any = sys.modules["pytorch_ood.utils"]
        utils.contains_unknown = lambda labels: bool((labels < 0).any())
        utils.extract_features = None
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


class Normalised(nn.Module):
    """Normalised inputs to logits, or to features."""

    def __init__(self, model: Model, *, logits: bool) -> None:
        super().__init__()
        self.model, self.logits = model, logits

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.model.backbone(x)
        return self.model.head(z).logits[:, 0] if self.logits else z


def theirs() -> dict[str, Tensor]:
    model, std = make_model(), list(STD)
    mean, spread = model.input_mean, model.input_std
    assert mean is not None
    assert spread is not None
    x = standardised(TEST.x[:COUNT].double(), mean, spread)
    network, encoder = Normalised(model, logits=True), Normalised(model, logits=False)
    with stubbed():
        load = importlib.import_module
        energy = load("pytorch_ood.detector.energy").EnergyBased
        odin = load("pytorch_ood.detector.odin").ODIN
        distances = load("pytorch_ood.detector.mahalanobis")
        lts = load("pytorch_ood.detector.lts").LTS
        with torch.no_grad():
            logits, z = network(x), encoder(x)
            features = encoder(standardised(TRAIN.x.double(), mean, spread))
        distance = distances.Mahalanobis(encoder).fit_features(features, TRAIN.labels)
        noisy = distances.MahalanobisODIN(encoder, eps=NOISE, norm_std=std)
        noisy.fit_features(features, TRAIN.labels)
        scaled = lts(None, head=lambda h: model.head(h).logits[:, 0], p=0.5)
        return {
            "energy": energy(None).predict_logits(logits),
            "energy at 2.5": energy(None, t=2.5).predict_logits(logits),
            "odin": odin(network, norm_std=std).predict(x),
            "odin at 2": odin(network, temperature=2.0, eps=EPSILON, norm_std=std).predict(x),
            "mahalanobis": distance.predict_features(z),
            "mahalanobis with noise": noisy.predict(x),
            "lts": scaled.predict_features(z),
        }


RECORDED: dict[str, list[float]] = {
    "energy": [
        -3.35253396690818,
        -3.91422731877575,
        -7.57616069438312,
        -1.93013516617569,
        -17.5573921869536,
        -7.45489364051485,
    ],
    "energy at 2.5": [
        -4.73486345021852,
        -5.2617837085368,
        -7.68288946869454,
        -2.52803855700839,
        -17.5578922848593,
        -7.63835733533163,
    ],
    "odin": [
        -0.333760830696133,
        -0.333791727376192,
        -0.335633557104959,
        -0.334443046941185,
        -0.338941588107834,
        -0.335341898651378,
    ],
    "odin at 2": [
        -0.566104278225248,
        -0.583698475206848,
        -0.985192873145038,
        -0.860237811424857,
        -0.999980873402628,
        -0.970628171368518,
    ],
    "mahalanobis": [
        0.039834486628147,
        0.0534302743313019,
        0.052052405484351,
        0.0528021388597957,
        0.00169834175247057,
        0.0230010088596975,
    ],
    "mahalanobis with noise": [
        0.0381065542824383,
        0.0512829882806616,
        0.0508228231052516,
        0.0512225864574294,
        0.00164205482213488,
        0.021276222162662,
    ],
    "lts": [
        -4.5239976210746,
        -4.542458539464,
        -13.8236057064402,
        -3.91411575611687,
        -26.8341093161767,
        -9.34902562485612,
    ],
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_scores_are_those_of_pytorch_ood(name: str) -> None:
    wanted = torch.tensor(RECORDED[name], dtype=torch.float64)
    torch.testing.assert_close(ours()[name], wanted, rtol=1e-9, atol=1e-12)


def test_the_records_tell_inputs_and_settings_apart() -> None:
    """A constant, or a perturbation that does nothing, would be no evidence."""
    assert RECORDED.keys() == ours().keys()
    for values in RECORDED.values():
        assert len(set(values)) == COUNT
    assert RECORDED["mahalanobis"] != RECORDED["mahalanobis with noise"]
    still = ODIN(ODINConfig(2.0, 0.0)).score(make_model(), TEST.x[:COUNT]) - 1
    assert float((still - torch.tensor(RECORDED["odin at 2"])).abs().min()) > 1e-6


if importlib.util.find_spec("pytorch_ood") is not None:

    def test_the_records_are_what_the_package_gives() -> None:
        for name, found in theirs().items():
            wanted = torch.tensor(RECORDED[name], dtype=torch.float64)
            torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
