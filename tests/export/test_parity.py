"""What counts as equal, and what as near."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gemfi.decisions import threshold_of
from gemfi.errors import CheckFailedError
from gemfi.export import Deployed, Parity, check_parity
from gemfi.export.parity import TOLERANCE, Arrays, random_inputs, within_margin
from support.exports import mixed, row_model, row_policy

GOOD = Parity(count=100, log_prob=1e-5, near=3, differ_near=1, differ_far=0)


@pytest.fixture(scope="module")
def deployed() -> Deployed:
    model = row_model("gem-fi")
    return Deployed(model, row_policy(model))


class TestVerdict:
    def test_good(self) -> None:
        GOOD.require("model.onnx")
        assert str(GOOD) == (
            "log p within 1.0e-05; decisions that differ: 0 of 97, within the margin 1 of 3"
        )

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"log_prob": 2e-4}, r"log-probabilities differ by up to 2\.0e-04"),
            ({"log_prob": float("nan")}, "differ by up to nan"),
            ({"differ_far": 2}, "2 of 97 decisions outside the margin"),
            ({"lost": ("energy",)}, "NaN in energy"),
        ],
    )
    def test_bad(self, changes: dict[str, object], words: str) -> None:
        with pytest.raises(CheckFailedError, match=words):
            replace(GOOD, **changes).require("model.onnx")  # type: ignore[arg-type]


class TestComparison:
    def altered(self, deployed: Deployed, **changes: object) -> Parity:
        def run(x: torch.Tensor) -> Arrays:
            found = {name: each.numpy().copy() for name, each in deployed.predict(x).items()}
            for name, change in changes.items():
                found[name] = change(found[name])  # type: ignore[operator]
            return found

        return check_parity(deployed, run, mixed(200))

    def test_equal(self, deployed: Deployed) -> None:
        parity = self.altered(deployed)
        assert parity.is_kept
        assert (parity.log_prob, parity.p_value, parity.differ_near) == (0, 0, 0)
        assert sum((parity.verdicts or {}).values()) == parity.count == 200

    def test_probabilities(self, deployed: Deployed) -> None:
        parity = self.altered(deployed, probs=lambda p: p * np.exp(3e-4))
        assert parity.log_prob == pytest.approx(3e-4, rel=1e-3)
        assert not parity.is_kept

    def test_a_turned_decision(self, deployed: Deployed) -> None:
        parity = self.altered(deployed, decision=lambda d: (d + 1) % 3)
        assert parity.differ_far == parity.count - parity.near
        assert parity.differ_near == parity.near

    def test_a_lost_number(self, deployed: Deployed) -> None:
        assert self.altered(deployed, energy=lambda e: e * np.nan).lost == ("energy",)


class TestMargin:
    def test_the_edge_is_where_the_p_value_passes_the_level(self) -> None:
        generator = np.random.default_rng(0)
        group = np.sort(generator.normal(size=57))
        for level in (0.02, 0.1, 0.5, 0.99):
            edge = threshold_of(group, level).value
            for score in (edge, np.nextafter(edge, 99)):
                p = (1 + (group >= score).sum()) / 58
                assert (p <= level) == (score > edge), level
        assert threshold_of(group, 0.01).value == np.inf

    def test_inputs_at_a_boundary_are_within_it(self, deployed: Deployed) -> None:
        policy = deployed.policy
        assert policy is not None
        belief = deployed.model.predict(mixed(200))
        doubt = policy.doubt
        values = np.sort(deployed.predict(mixed(200))[doubt].numpy())
        at = replace(policy, threshold=float(values[50]) * (1 + 0.5 * TOLERANCE))
        off = replace(policy, threshold=float(values[50] + values[51]) / 2)
        assert within_margin(belief, at).sum() == within_margin(belief, off).sum() + 1


class TestRandomInputs:
    def test_rows_are_on_the_scale_of_the_data(self, deployed: Deployed) -> None:
        x = random_inputs(deployed, 500)
        assert x.shape == (500, 4)
        assert x.dtype == torch.float32
        mean = deployed.model.input_mean
        assert mean is not None
        assert (x.mean(dim=0) - mean).abs().max() < 0.5
        assert torch.equal(x, random_inputs(deployed, 500))
        assert not torch.equal(x, random_inputs(deployed, 500, seed=1))

    @pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 7), (5,)])
    def test_bytes_fill_their_range(
        self, deployed: Deployed, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
    ) -> None:
        inputs = replace(deployed.model.inputs, sample_shape=shape, sample_dtype="uint8")
        monkeypatch.setattr(deployed.model, "inputs", inputs)
        x = random_inputs(deployed, 401)
        assert x.shape == (401, *shape)
        assert x.dtype == torch.uint8
        assert int(x.min()) == 0
        assert int(x.max()) > 200
