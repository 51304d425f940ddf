"""Health: a healthy model, the same with one thing broken at a time, and slow oracles."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import entropy, spearmanr
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import nn

from gemfi import GEMConfig, Model, OutlierConfig, Split, TrainConfig, build_model, diagnose, fit
from gemfi._config import from_plain, to_plain, with_settings
from gemfi._files import to_json
from gemfi.data import Role
from gemfi.diagnosis import CHECKS, Finding, Health, checks
from gemfi.diagnosis.checks import Subject
from gemfi.errors import RoleError
from gemfi.finish import FeatureBatches
from gemfi.methods import DAEDLConfig, EDLConfig, PaperConfig

CLASSES, WIDTH = 3, 6
PLAIN = PaperConfig(sn=False, sizes="linear")
CONFIG = TrainConfig(epochs=25, batch_size=50, learning_rate=1e-2)


def blobs(role: str, n: int, seed: int) -> Split:
    """Three clusters that overlap a little, with a spread that differs by direction."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % CLASSES
    centres = 4 * torch.eye(CLASSES, WIDTH)
    x = centres[y] + torch.randn(n, WIDTH, generator=generator)
    return Split(x, y, Role(role), "blobs", CLASSES)


TRAIN, VALIDATION = blobs("train", 600, 0), blobs("validation", 240, 1)


def built(name: str = "gem-fi", config: Any = None) -> Model:
    torch.manual_seed(0)
    return build_model(name, nn.Identity(), CLASSES, num_features=WIDTH, config=config)


@pytest.fixture(scope="module")
def trained() -> tuple[Model, list[dict[str, Any]]]:
    model = built()
    return model, fit(model, TRAIN, VALIDATION, CONFIG, progress=False).history


@pytest.fixture
def model(trained: tuple[Model, list[dict[str, Any]]]) -> Model:
    """A healthy model, to break."""
    return copy.deepcopy(trained[0])


@pytest.fixture
def history(trained: tuple[Model, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return trained[1]


def flagged(health: Health) -> set[str]:
    return {finding.name for finding in health.warnings}


def diagnosed(model: Model, **more: Any) -> Health:
    return diagnose(model, **{"split": VALIDATION, "reference": TRAIN, **more})


def oscillating(size: float, epochs: int = 10) -> list[dict[str, Any]]:
    swings = [size if epoch % 2 else 0.0 for epoch in range(epochs)]
    return [{"loss": 1.0, "router": [0.3 + swing, 0.7 - swing, 0.0]} for swing in swings]


# ---------------------------------------------------------------- each failure, on purpose


def one_head(head: Any) -> None:
    head.router.layers[-1].weight.zero_()
    head.router.layers[-1].bias.copy_(torch.tensor([20.0, 0.0, 0.0]))


def same_heads(head: Any) -> None:
    for tensor in (head.heads.layers[0].weight, head.heads.layers[0].bias):
        tensor.copy_(tensor[:1].expand_as(tensor))


def closed_gate(head: Any) -> None:
    """σ((a − E)/b) with another a: from 0.9 at the median to some 0.006."""
    head.familiarity.location[1] += 7.3 * head.familiarity.scale[1]


def low_energy(head: Any) -> None:
    head.energy.layers[-1].bias -= 100.0


def turned_energy(head: Any) -> None:
    """Low off the support; then fitted again, as after training."""
    head.energy.layers[-1].weight.neg_()
    head.energy.layers[-1].bias.neg_()
    head.fit_statistics(FeatureBatches(Model(nn.Identity(), head), TRAIN), None)


def large_norm(head: Any) -> None:
    """A direction in which the features hardly lie, so that no prediction moves by much."""
    weight = head.router.layers[0].weight
    weight.copy_(weight * (10.5 / torch.linalg.matrix_norm(weight, 2)))
    head.router.layers[1].weight.mul_(0.05)


def cold_energy(head: Any) -> None:
    """E is as before, but its temperature is not."""
    for tensor in (head.energy.layers[-1].weight, head.energy.layers[-1].bias):
        tensor.mul_(0.005 / head.log_energy_temperature.exp())
    head.log_energy_temperature.fill_(math.log(0.005))


BROKEN: dict[str, tuple[Callable[[Any], None], set[str]]] = {
    "collapse": (one_head, {"heads used"}),
    "redundancy": (same_heads, {"head disagreement"}),
    "closed gate": (closed_gate, {"gate saturation"}),
    "saturated energy": (low_energy, {"energy saturation"}),
    "turned energy": (turned_energy, {"energy and support"}),
    "large norm": (large_norm, {"head norm"}),
    "cold energy": (cold_energy, {"energy temperature"}),
}


class TestFailures:
    def test_a_healthy_model_has_no_warning(self, model: Model, history: Any) -> None:
        health = diagnosed(model, history=history)
        assert health.healthy, health.text()
        assert set(health.skipped) == {"norm over bound", "backbone norm"}
        assert {each.name for each in health.findings} | set(health.skipped) == set(CHECKS)

    @pytest.mark.parametrize("failure", BROKEN)
    def test_what_is_broken_and_nothing_else_is_flagged(self, model: Model, failure: str) -> None:
        spoil, expected = BROKEN[failure]
        with torch.no_grad():
            spoil(model.head)
        health = diagnosed(model)
        assert flagged(health) == expected, health.text()

    def test_confident_errors(self, model: Model) -> None:
        """Wrong labels in the place of a model that learnt the wrong thing."""
        wrong = replace(VALIDATION, y=(VALIDATION.labels + 1) % CLASSES)
        health = diagnosed(model, split=wrong)
        assert flagged(health) == {"confident errors"}
        assert health["confident errors"].value > 0.5

    def test_few_errors_are_told_and_not_judged(self, model: Model) -> None:
        """Nine confident errors, then ten."""
        belief = model.predict(VALIDATION)
        sure = (belief.probs().amax(dim=1) > 0.95) & (belief.labels() == VALIDATION.labels)
        rows = sure.nonzero()[:40, 0]
        for count, healthy in ((9, True), (10, False)):
            labels = VALIDATION.labels[rows].clone()
            labels[:count] = (labels[:count] + 1) % CLASSES
            found = diagnosed(
                model, split=Split(VALIDATION.x[rows], labels, "validation", "few", 3)
            )
            assert found["confident errors"].value == 1.0
            assert found["confident errors"].healthy == healthy
            assert found["confident errors"].mark == ("·" if healthy else "!")
            assert f"of {count} errors" in found["confident errors"].meaning

    def test_an_oscillating_router(self, model: Model) -> None:
        health = diagnosed(model, history=oscillating(0.2))
        assert flagged(health) == {"router oscillation"}
        assert "learning_rate" in health["router oscillation"].remedy
        assert not flagged(diagnosed(model, history=oscillating(0.02)))

    def test_zero_evidence(self) -> None:
        model = built("edl", EDLConfig(evidence="relu"))
        with torch.no_grad():
            model.head.linear.bias.fill_(-100.0)
        health = diagnosed(model)
        assert flagged(health) == {"zero evidence"}
        assert health["zero evidence"].value == 1.0
        assert "evidence=exp" in health["zero evidence"].remedy
        assert "kl_weight below 1" in health["zero evidence"].remedy

    def test_zero_evidence_without_a_prior(self) -> None:
        """GEM-MIX without gate: α = exp u, so that C/100 is the limit."""
        model = built("gem-paper", replace(PLAIN, core=False, ebm_weight=0.0, temperature=1.0))
        bias = model.head.heads.layers[0].bias
        with torch.no_grad():
            model.head.heads.layers[0].weight.zero_()
            for value, expected in ((math.log(0.0099), 1.0), (math.log(0.0101), 0.0)):
                bias.fill_(value)
                assert diagnosed(model)["zero evidence"].value == expected

    def test_zero_evidence_at_one_in_every_class(self) -> None:
        """DAEDL has no prior, and a KL that is too strong pulls α to one."""
        model = built("daedl", DAEDLConfig())
        with torch.no_grad():
            model.head.linear.weight.zero_()
            model.head.linear.bias.zero_()
            assert diagnosed(model)["zero evidence"].value == 1.0
            model.head.linear.bias.copy_(torch.tensor([0.1, -0.1, 0.0]))
            assert diagnosed(model)["zero evidence"].value == 0.0

    @pytest.mark.parametrize("bound", ["sigmoid", "clamp"])
    def test_a_learned_gate_at_its_bounds(self, bound: Any) -> None:
        model = built("gem-paper", replace(PLAIN, gate_bound=bound))
        before = flagged(diagnosed(model))
        with torch.no_grad():
            model.head.gate.layers[-1].bias.copy_(torch.tensor([30.0, -30.0, 30.0]))
            model.head.gate.layers[-1].weight.mul_(1e-3)
        health = diagnosed(model)
        assert flagged(health) - before == {"gate saturation"}
        assert health["gate saturation"].value == 1.0
        assert ("gate_bound=sigmoid" in health["gate saturation"].remedy) == (bound == "clamp")

    def test_a_normalised_layer_above_its_bound(self) -> None:
        model = built("gem-paper", replace(PLAIN, sn=True)).eval()
        health = diagnosed(model)
        assert health["norm over bound"].healthy
        assert health.skipped["head norm"] == "the head has no layer that is not normalised"
        layer = model.head.heads.layers[0]
        with torch.no_grad():  # σ is as it was: evaluation divides by the old one
            layer.weight.copy_(10 * layer.weight / torch.linalg.matrix_norm(layer.weight[0], 2))
        found = diagnosed(model)["norm over bound"]
        expected = torch.linalg.matrix_norm(layer.normalised_weight().detach(), 2).max()
        assert not found.healthy
        assert found.value == pytest.approx(float(expected), rel=0.01)
        assert "head.heads.layers.0" in found.meaning
        assert "refresh" in found.remedy

    @pytest.mark.parametrize(("value", "healthy"), [(0.009, False), (0.011, True), (11.0, False)])
    def test_temperature(self, model: Model, value: float, healthy: bool) -> None:
        with torch.no_grad():
            model.head.log_temperature.fill_(math.log(value))
        found = diagnosed(model)["temperature"]
        assert found.value == pytest.approx(value)
        assert found.healthy == healthy

    def test_a_head_that_does_not_follow_the_data(self, model: Model) -> None:
        """Evidence that grows with the distance, and one that falls."""
        subject = subject_of(model)
        assert subject.distance is not None
        for sign, healthy in ((1.0, False), (-1.0, True)):
            log_evidence = (sign * subject.distance).unsqueeze(1).expand(-1, 3)
            belief = replace(subject.belief, log_evidence=log_evidence)
            found = CHECKS["evidence and support"](replace(subject, belief=belief))
            assert isinstance(found, Finding)
            assert found.value == pytest.approx(sign)
            assert found.healthy == healthy

    def test_a_learned_gate_that_opens_with_the_energy(self, model: Model) -> None:
        subject = subject_of(model)
        assert subject.energy is not None
        spoilt = built("gem-paper", PLAIN)
        rising = torch.nn.functional.logsigmoid(subject.energy).unsqueeze(1).expand(-1, CLASSES)
        belief = replace(subject.belief, log_gate=rising)
        subject = replace(subject, belief=belief, model=spoilt)
        for name in ("gate and energy", "gate and support"):
            found = CHECKS[name](subject)
            assert isinstance(found, Finding)
            assert not found.healthy
            assert found.remedy.startswith("gate=energy")


def subject_of(model: Model) -> Subject:
    z, reference = model.embed(VALIDATION).numpy(), model.embed(TRAIN).numpy()
    distance = torch.from_numpy(distances(z, reference))
    return Subject(model, model.predict(VALIDATION), VALIDATION.labels, distance, {}, None)


def distances(z: Any, reference: Any) -> Any:
    nearest = NearestNeighbors(n_neighbors=10).fit(normalize(reference.astype(np.float64)))
    return nearest.kneighbors(normalize(z.astype(np.float64)))[0][:, -1]


# ---------------------------------------------------------------- oracles


class TestNumbers:
    """Plain loops over inputs and heads."""

    def test_evidence_and_errors(self, model: Model) -> None:
        with torch.no_grad():
            model.head.heads.layers[0].bias -= 8  # little evidence, none for some
            closed_gate(model.head)  # which is another finding
        health, belief = diagnosed(model), model.predict(VALIDATION)
        assert belief.logits is not None
        none, errors, sure = 0, 0, 0
        for row, label in enumerate(VALIDATION.labels):
            weights, logits = belief.log_weight[row].exp().tolist(), belief.logits[row].tolist()
            total = 0.0
            for weight, head in zip(weights, logits, strict=True):
                total += weight * sum(math.exp(max(-10, min(10, u))) + 1e-8 for u in head)
            none += total <= 0.03
            p = [float(each) for each in belief.probs()[row]]
            if p.index(max(p)) != int(label):
                errors += 1
                sure += max(p) >= 0.9
        assert 0 < none < len(VALIDATION)
        assert health["zero evidence"].value == pytest.approx(none / len(VALIDATION))
        assert errors > 0
        assert health["confident errors"].value == pytest.approx(sure / errors)

    def test_evidence_over_a_prior(self) -> None:
        """Some inputs within 1 % of the prior's mass of three, and some not."""
        model = built("edl", EDLConfig(evidence="relu"))
        with torch.no_grad():
            model.head.linear.bias.fill_(-2.0)
            model.head.linear.weight.mul_(2.0)
        alpha0 = model.predict(VALIDATION).log_total_evidence().exp().tolist()
        expected = sum(each <= 3.03 for each in alpha0) / len(alpha0)
        assert 0.05 < expected < 0.95
        assert diagnosed(model)["zero evidence"].value == pytest.approx(expected)

    def test_heads(self, model: Model) -> None:
        health, belief = diagnosed(model), model.predict(VALIDATION)
        weight, p = belief.log_weight.exp().numpy(), belief.log_p.exp().numpy()
        assert health["heads used"].value == pytest.approx(math.exp(entropy(weight.mean(axis=0))))
        each = np.mean([entropy(row) / math.log(3) for row in weight])
        assert health["router entropy"].value == pytest.approx(each)
        cosines = [
            np.dot(row[i], row[j]) / np.linalg.norm(row[i]) / np.linalg.norm(row[j])
            for row in p
            for i, j in combinations(range(3), 2)
        ]
        assert health["head cosine"].value == pytest.approx(np.mean(cosines))
        differ = [len({int(np.argmax(head)) for head in row}) > 1 for row in p]
        assert health["heads differ"].value == pytest.approx(np.mean(differ))
        total = np.mean([entropy(row.mean(axis=0)) for row in p])
        within = np.mean([np.mean([entropy(head) for head in row]) for row in p])
        assert health["head disagreement"].value == pytest.approx((total - within) / total)

    def test_oscillation(self, model: Model) -> None:
        """Of ten epochs the last five count: 0.1 there and back four times, 0 in the end."""
        assert diagnosed(model, history=oscillating(0.1))["router oscillation"].value == (
            pytest.approx(0.1)
        )
        drift = [{"router": [step / 10, 1 - step / 10, 0.0]} for step in range(10)]
        found = diagnosed(model, history=drift)["router oscillation"]
        assert found.value == pytest.approx(0.0, abs=1e-12)
        mixed = [0.5, 0.9, 0.1, 0.2, 0.4, 0.3, 0.6]  # later half: 0.2 0.4 0.3 0.6
        found = diagnosed(model, history=[{"router": [w, 1 - w, 0]} for w in mixed])
        assert found["router oscillation"].value == pytest.approx((0.6 - 0.4) / 3)

    def test_gate_and_energy(self, model: Model) -> None:
        with torch.no_grad():
            model.head.energy.layers[-1].weight.mul_(6)  # part of the energies are saturated
            closed_gate(model.head)
        health, subject = diagnosed(model), subject_of(model)
        assert subject.energy is not None
        energy = [float(each) for each in subject.energy]
        flat = [1 / (1 + math.exp(-e)) for e in energy]
        saturated = np.mean([s <= 1e-4 or 1 - s <= 1e-4 for s in flat])
        assert 0 < saturated < 1
        assert health["energy saturation"].value == pytest.approx(saturated)
        a, b = (float(getattr(model.head.familiarity, each)[1]) for each in ("location", "scale"))
        closed = np.mean([1 / (1 + math.exp((e + a) / b)) < 0.01 for e in energy])
        assert 0 < closed < 1
        assert health["gate saturation"].value == pytest.approx(closed)

    def test_learned_gate(self) -> None:
        """Of range 0.2 to 0.6, so that 1 % of it is 0.004."""
        model = built("gem-paper", replace(PLAIN, gate_low=0.2, gate_high=0.6))
        with torch.no_grad():
            model.head.gate.layers[-1].weight.mul_(100)
        gate = model.predict(VALIDATION).log_gate
        assert gate is not None
        values = [float(each) for each in gate.exp().flatten()]
        expected = np.mean([v <= 0.204 or v >= 0.596 for v in values])
        assert 0.1 < expected < 0.9
        assert diagnosed(model)["gate saturation"].value == pytest.approx(expected)

    def test_support(self, model: Model) -> None:
        health, subject = diagnosed(model), subject_of(model)
        assert subject.energy is not None
        assert subject.gate is not None
        distance, energy = subject.distance, subject.energy.numpy()
        gate = subject.gate.mean(dim=1).numpy()
        evidence = subject.belief.log_total_evidence().numpy()
        for name, one, other in (
            ("energy and support", energy, distance),
            ("gate and energy", gate, energy),
            ("gate and support", gate, distance),
            ("evidence and support", evidence, distance),
        ):
            expected = spearmanr(one, other).statistic
            assert health[name].value == pytest.approx(expected, abs=1e-3), name

    def test_norms(self, model: Model) -> None:
        health = diagnosed(model)
        expected = {
            name: float(torch.linalg.matrix_norm(layer.weight.detach(), 2).max())
            for name, layer in model.named_modules()
            if hasattr(layer, "normalised_weight")
        }
        assert health.spectral_norms == pytest.approx(expected, rel=0.01)
        assert health["head norm"].value == max(health.spectral_norms.values())


# ---------------------------------------------------------------- what does not apply


class TestSkipped:
    def test_softmax_has_little_to_be_ill_with(self) -> None:
        health = diagnosed(built("softmax"))
        assert [each.name for each in health.findings] == ["confident errors", "head norm"]
        assert health.skipped["zero evidence"] == "the method has no evidence"
        assert health.skipped["gate saturation"] == "the method has no gate"
        assert health.skipped["heads used"] == "one component"

    def test_without_a_reference(self, model: Model) -> None:
        health = diagnose(model, VALIDATION)
        lacking = {"energy and support", "gate and support", "evidence and support"}
        why = "no reference given: it needs a split of training data"
        assert {name for name, reason in health.skipped.items() if reason == why} == lacking

    def test_without_a_history(self, model: Model) -> None:
        why = diagnosed(model).skipped["router oscillation"]
        assert why.startswith("not recorded")
        assert diagnosed(model, history=[{"loss": 1.0}]).skipped["router oscillation"] == why
        short = diagnosed(model, history=oscillating(0.2, epochs=5))
        assert short.skipped["router oscillation"] == "5 epochs were recorded, and it needs 6"

    def test_a_constant_has_no_rank(self, model: Model) -> None:
        with torch.no_grad():
            model.head.energy.layers[-1].weight.zero_()
        why = "one of the two is the same for all inputs"
        assert diagnosed(model).skipped["energy and support"] == why

    @pytest.mark.parametrize("count", [1, 2, 19])
    def test_few_inputs_and_a_small_reference(self, model: Model, count: int) -> None:
        few = VALIDATION.subset(range(count))
        health = diagnosed(model, split=few, reference=TRAIN.subset([0, 1, 2]))
        assert health.skipped["energy and support"].startswith(f"{count} inputs")
        assert health.n == count

    def test_without_errors(self, model: Model) -> None:
        right = replace(VALIDATION, y=model.predict(VALIDATION).labels())
        assert diagnosed(model, split=right).skipped["confident errors"] == (
            "no input is misclassified"
        )

    def test_roles(self, model: Model) -> None:
        with pytest.raises(RoleError, match="role train, which a diagnosis as ID data refuses"):
            diagnose(model, TRAIN)
        with pytest.raises(RoleError, match="validation, which a diagnosis as reference refuses"):
            diagnose(model, VALIDATION, VALIDATION)


def test_the_model_is_left_as_it_was(model: Model) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    first = diagnosed(model)
    assert model.training
    assert model.head.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert diagnosed(model.eval()) == first


def test_training_records_the_router(model: Model, history: Any) -> None:
    """The mean weights on validation data, the last of them those of the trained model."""
    assert [len(record["router"]) for record in history] == [3] * CONFIG.epochs
    mean = model.predict(VALIDATION).log_weight.exp().mean(dim=0)
    torch.testing.assert_close(torch.tensor(history[-1]["router"]), mean, check_dtype=False)
    single = fit(built("edl"), TRAIN, VALIDATION, replace(CONFIG, epochs=1), progress=False)
    assert "router" not in single.history[0]


# ---------------------------------------------------------------- remedies


def ailing() -> Iterator[tuple[Model, Health]]:
    """Models with warnings of every kind."""
    configs: list[tuple[str, Any]] = [
        ("gem-fi", GEMConfig(pi_entropy=0.0)),
        ("gem-paper", replace(PLAIN, gate_bound="clamp")),
        ("gem-paper", replace(PLAIN, ebm_weight=0.0)),
        ("gem-paper", replace(PLAIN, gate="energy", energy_scaled=True, pi_entropy=0.1)),
        ("gem-fi", GEMConfig(outliers=OutlierConfig(kind="vos"))),
        ("edl", EDLConfig(evidence="relu")),
        ("softmax", None),
    ]
    wrong = replace(VALIDATION, y=(VALIDATION.labels + 1) % CLASSES)
    for name, config in configs:
        model = built(name, config)
        head: Any = model.head
        yield model, diagnosed(model, history=oscillating(0.3))
        with torch.no_grad():
            if name.startswith("gem"):
                one_head(head)
                same_heads(head)
                low_energy(head)
                if getattr(head, "gate", None) is not None:
                    head.gate.layers[-1].bias.fill_(100.0)
                yield model, diagnosed(model)
                head.energy.layers[-1].bias += 200.0  # high, so that its gate closes
                yield model, diagnosed(model)
                head.log_temperature.fill_(5.0)
                if hasattr(head, "log_energy_temperature"):
                    head.log_energy_temperature.fill_(5.0)
            else:
                head.linear.weight.mul_(100)
                yield model, diagnosed(model, split=wrong)
                head.linear.bias.fill_(-1000.0)
        yield model, diagnosed(model, split=wrong, history=oscillating(0.3))


def test_remedies_name_settings_that_exist() -> None:
    told: dict[str, str] = {}
    for model, health in ailing():
        for warning in health.warnings:
            told[warning.name] = warning.remedy
            for name, value in re.findall(r"([\w.]+)=([\w.]+)", warning.remedy):
                owner = TrainConfig() if name == "select" else model.head.config
                assert with_settings(owner, [f"{name}={value}"], "--set") != owner, warning
            known = {each.name for each in (*fields(model.head.config), *fields(TrainConfig))}
            for name in re.findall(r"(\w+) (?:above|below)", warning.remedy):
                assert name in known, warning
            for name in re.findall(r"(?:smaller|larger|more) (\w+_\w+)", warning.remedy):
                assert name in known, warning
            assert warning.remedy
    judged = {name for name in CHECKS if name not in told}
    assert judged <= {  # those without a limit, and those that are broken elsewhere in this file
        *("router entropy", "head cosine", "heads differ", "backbone norm", "norm over bound"),
        *("gate and energy", "gate and support", "evidence and support", "energy and support"),
    }, judged


# ---------------------------------------------------------------- in words


def finding(name: str, value: float, *, healthy: bool = True, **more: Any) -> Finding:
    return Finding(name, value, healthy, f"means {name}", **more)


HEALTH = Health(
    "gem-fi",
    "digits",
    1234,
    (
        finding("short", 0.0312, limit="at most 5 %", unit="share"),
        finding("a longer name", 1.018, healthy=False, remedy="x=1", limit="at least 1.5"),
        finding("told", -0.5),
    ),
    {"this": "no gate", "that": "no gate", "other": "no energy"},
)


class TestWords:
    def test_text(self) -> None:
        assert str(HEALTH).splitlines() == [
            "Health of gem-fi on digits (1,234 inputs): 1 warning",
            "  ✓ short          3.1 %  at most 5 %   means short",
            "  ! a longer name   1.02  at least 1.5  means a longer name",
            "      remedy: x=1",
            "  · told           -0.50                means told",
            "  Not measured",
            "    no gate: this, that",
            "    no energy: other",
        ]

    def test_brief(self) -> None:
        assert HEALTH.brief().splitlines() == [
            "Health of gem-fi on digits (1,234 inputs): 1 warning",
            "  ! a longer name  1.02  at least 1.5  means a longer name",
            "      remedy: x=1",
            "  ✓ short",
        ]

    def test_titles(self) -> None:
        assert replace(HEALTH, findings=()).title().endswith("(1,234 inputs): no warning")
        twice = replace(HEALTH, findings=HEALTH.findings[1:2] * 2, n=1)
        assert twice.title().endswith("(1 input): 2 warnings")
        assert replace(HEALTH, findings=(), skipped={}).text() == (
            "Health of gem-fi on digits (1,234 inputs): no warning"
        )

    def test_lines_fit_a_terminal(self, model: Model, history: Any) -> None:
        for health in (diagnosed(model, history=history), diagnosed(built("softmax"))):
            assert max(map(len, [*health.text().splitlines(), *health.brief().splitlines()])) <= 100
            for name in CHECKS:
                assert name in health.text()

    def test_a_finding_by_name(self) -> None:
        assert HEALTH["told"].value == -0.5
        with pytest.raises(KeyError, match="no gate"):
            _ = HEALTH["this"]
        assert not HEALTH.healthy

    def test_there_and_back_as_json(self, model: Model, history: Any) -> None:
        health = diagnosed(model, history=history)
        assert from_plain(Health, json.loads(to_json(to_plain(health))), "health") == health


def test_limits_are_those_that_are_written_down() -> None:
    """The words of a finding and the limit that judges it do not drift apart."""
    assert checks.CONFIDENT == 0.9
    assert (checks.GATE_CLOSED, checks.NO_EVIDENCE, checks.GATE_EDGE) == (0.01, 0.01, 0.01)
    assert checks.ENERGY_EDGE == 1e-4
