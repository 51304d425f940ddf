"""Measures against scikit-learn, scipy and plain loops over inputs and heads."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, spearmanr
from torch import Tensor

from gemfi.belief import Belief
from gemfi.diagnosis import heads, rank_correlation
from gemfi.errors import InputError
from gemfi_bench.trials import support


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def make_belief(batch: int = 40, count: int = 3, classes: int = 4, **fields: Any) -> Belief:
    return Belief(
        log_p=torch.log_softmax(2 * normal(batch, count, classes), dim=-1),
        log_weight=torch.log_softmax(normal(batch, count, seed=1), dim=-1),
        **fields,
    )


# ---------------------------------------------------------------- correlation


class TestRankCorrelation:
    @pytest.mark.parametrize("length", [2, 3, 10, 500])
    @pytest.mark.parametrize("ties", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_is_spearmans(self, length: int, ties: bool, dtype: torch.dtype) -> None:
        first = normal(length).to(dtype)
        second = first + normal(length, seed=1).to(dtype)
        if ties:
            first, second = (2 * first).round(), second.round()
        expected = spearmanr(first.numpy(), second.numpy()).statistic
        assert -1 < expected < 1 or length < 4
        assert rank_correlation(first, second) == pytest.approx(expected, abs=1e-12)

    def test_is_one_for_any_rising_function(self) -> None:
        values = normal(50)
        assert rank_correlation(values, values.exp() + values**3) == pytest.approx(1)
        assert rank_correlation(values, -values.exp()) == pytest.approx(-1)
        ends = torch.tensor([math.inf, 0.0, -math.inf])
        assert rank_correlation(ends, torch.tensor([3, 2, 1])) == pytest.approx(1)

    def test_nan_where_one_is_constant(self) -> None:
        flat, values = torch.full((5,), 2.0), torch.arange(5.0)
        assert math.isnan(rank_correlation(flat, values))
        assert math.isnan(rank_correlation(values, flat))
        assert math.isnan(rank_correlation(flat, flat))

    @pytest.mark.parametrize(
        ("first", "second"), [((5,), (4,)), ((1,), (1,)), ((0,), (0,)), ((3, 2), (3, 2)), ((), ())]
    )
    def test_errors(self, first: tuple[int, ...], second: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="same length, at least 2, got") as caught:
            rank_correlation(torch.ones(first), torch.ones(second))
        assert str(caught.value).endswith(f"{first} and {second}")


# ---------------------------------------------------------------- heads


def cosine(p: np.ndarray, q: np.ndarray) -> float:
    return float(p @ q / math.sqrt(p @ p) / math.sqrt(q @ q))


def heads_by_hand(belief: Belief) -> dict[str, float]:
    """Input by input, pair of heads by pair of heads."""
    p, weight = belief.log_p.exp().numpy(), belief.log_weight.exp().numpy()
    batch, count, _ = p.shape
    cosines = [
        cosine(p[i, a], p[i, b]) for i in range(batch) for a, b in combinations(range(count), 2)
    ]
    between = [
        entropy(weight[i] @ p[i]) - sum(weight[i, k] * entropy(p[i, k]) for k in range(count))
        for i in range(batch)
    ]
    labels = [{int(p[i, k].argmax()) for k in range(count)} for i in range(batch)]
    return {
        "used": math.exp(entropy(weight.mean(axis=0))),
        "used_each": sum(math.exp(entropy(row)) for row in weight) / batch,
        "differ": sum(len(each) > 1 for each in labels) / batch,
        "cosine": sum(cosines) / len(cosines) if cosines else 1.0,
        "disagreement": sum(between) / batch,
    }


class TestHeads:
    @pytest.mark.parametrize("count", [1, 2, 3, 6])
    def test_is_the_loop(self, count: int) -> None:
        belief = make_belief(count=count)
        found = heads(belief)
        assert vars(found) == pytest.approx(heads_by_hand(belief), abs=1e-12)
        assert 1 <= found.used_each <= count + 1e-12

    def test_disagreement_of_two_equal_heads_is_scipys(self) -> None:
        belief = make_belief(count=2)
        even = torch.full_like(belief.log_weight, -math.log(2))
        p = belief.log_p.exp().numpy()
        expected = np.mean(jensenshannon(p[:, 0], p[:, 1], axis=1) ** 2)
        found = heads(replace(belief, log_weight=even))
        assert found.disagreement == pytest.approx(expected)
        assert (found.used, found.used_each) == pytest.approx((2, 2))

    def test_heads_that_are_the_same(self) -> None:
        one = make_belief(count=1)
        same = replace(
            one,
            log_p=one.log_p.expand(-1, 3, -1),
            log_weight=torch.log_softmax(normal(40, 3), dim=-1),
        )
        found = heads(same)
        assert (found.differ, found.cosine) == pytest.approx((0, 1))
        assert found.disagreement == pytest.approx(0, abs=1e-12)

    def test_a_router_that_gives_each_input_one_head(self) -> None:
        """All are used, and only one at a time."""
        weight = torch.eye(3, dtype=torch.float64)[torch.arange(39) % 3].log()
        belief = make_belief(batch=39)
        found = heads(replace(belief, log_weight=weight))
        assert (found.used, found.used_each) == pytest.approx((3, 1))
        always = heads(replace(belief, log_weight=weight[:1].expand(39, -1)))
        assert (always.used, always.used_each) == pytest.approx((1, 1))

    def test_heads_that_share_nothing(self) -> None:
        log_p = torch.eye(3, dtype=torch.float64).log().expand(5, 3, 3)
        found = heads(Belief(log_p, torch.full((5, 3), -math.log(3), dtype=torch.float64)))
        assert (found.differ, found.cosine) == pytest.approx((1, 0))
        assert found.disagreement == pytest.approx(math.log(3))


# ---------------------------------------------------------------- support


def full_belief(**fields: Any) -> Belief:
    values = {
        "log_evidence": normal(40, 3, seed=2),
        "log_rho": -normal(40, seed=3).abs(),
        "energy": normal(40, seed=4),
        "log_gate": -2 * normal(40, 4, seed=5).abs(),
    }
    return make_belief(**(values | fields))


class TestSupport:
    DISTANCE = normal(40, seed=9).abs()

    def rho(self, first: np.ndarray, second: np.ndarray | None = None) -> float:
        other = self.DISTANCE.numpy() if second is None else second
        return float(spearmanr(first, other).statistic)

    def test_is_spearmans_of_each_part(self) -> None:
        belief = full_belief()
        found = support(belief, self.DISTANCE)
        weight, total = belief.log_weight.exp().numpy(), belief.log_evidence.exp().numpy()
        evidence = (weight * total).sum(axis=1) * belief.log_rho.exp().numpy()
        gate, energy = belief.log_gate.exp().numpy().mean(axis=1), belief.energy.numpy()
        assert found.energy == pytest.approx(self.rho(energy))
        assert found.evidence == pytest.approx(self.rho(evidence))
        assert found.gate == pytest.approx(self.rho(gate))
        assert found.gate_energy == pytest.approx(self.rho(gate, energy))

    def test_the_signs_of_a_model_that_does_as_it_says(self) -> None:
        belief = full_belief(
            energy=self.DISTANCE**2,
            log_evidence=-self.DISTANCE[:, None].expand(-1, 3),
            log_rho=None,
            log_gate=-self.DISTANCE[:, None].expand(-1, 4),
        )
        found = support(belief, self.DISTANCE)
        parts = (found.energy, found.evidence, found.gate, found.gate_energy)
        assert parts == pytest.approx((1, -1, -1, -1))
        assert found.label_changes == 0  # the gate is the same for every class

    def test_counts_the_labels_that_the_gate_changes(self) -> None:
        belief = full_belief(log_temperature=torch.tensor(0.7).double())
        p, weight = belief.log_p.exp().numpy(), belief.log_weight.exp().numpy()
        changed = 0
        for row in range(40):
            mixed = weight[row] @ p[row]
            changed += mixed.argmax() != (mixed * belief.log_gate[row].exp().numpy()).argmax()
        assert 0 < changed < 40
        assert support(belief, self.DISTANCE).label_changes == pytest.approx(changed / 40)

    def test_a_gate_inside_the_evidence_is_looked_at_too(self) -> None:
        inner = -2 * normal(40, 1, seed=6).abs()
        found = support(full_belief(log_gate=inner), self.DISTANCE)
        assert found.gate == pytest.approx(self.rho(inner.exp().numpy()[:, 0]))
        assert found.label_changes == 0

    @pytest.mark.parametrize(
        ("missing", "silent"),
        [
            ("energy", {"energy", "gate_energy"}),
            ("log_evidence", {"evidence"}),
            ("log_gate", {"gate", "gate_energy"}),
            ("log_rho", set()),
        ],
    )
    def test_none_for_a_part_that_is_absent(self, missing: str, silent: set[str]) -> None:
        found = vars(support(full_belief(**{missing: None}), self.DISTANCE))
        assert {name for name, value in found.items() if value is None} == silent

    def test_without_a_gate_no_label_changes(self) -> None:
        assert support(full_belief(log_gate=None), self.DISTANCE).label_changes == 0

    def test_errors(self) -> None:
        with pytest.raises(InputError, match=r"got \(40,\) and \(39,\)"):
            support(full_belief(), self.DISTANCE[1:])
