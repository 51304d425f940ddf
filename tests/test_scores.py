"""Scores against slow oracles, the identities of the decomposition, signs and missing fields."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gemfi import dirichlet, scores
from gemfi.belief import Belief
from gemfi.errors import InputError

mp.mp.dps = 40
F64 = torch.float64
OPTIONAL = (
    "log_evidence",
    "log_gate",
    "log_rho",
    "log_density",
    "log_familiarity",
    "energy",
    "logits",
    "log_prior",
)
# what moves with a field; everything else must not
FOLLOWS_GATE = {"max_prob", "entropy", "gated_mutual_information", "paper_mutual_information"}
FOLLOWS_TEMPERATURE = {"max_prob", "entropy", "paper_mutual_information"}
FOLLOWS_RHO = {"evidence", "max_alpha", "vacuity"}
FOLLOWS_PRIOR = {"vacuity", "dissonance"}

NEEDED = {"log_evidence", "log_density", "log_familiarity", "energy", "logits"}
WHY = (
    "the method that made it does not compute it, or not before its statistics are fitted: after a "
    "loop of your own, call model.finish(train, validation)"
)

quick = settings(max_examples=100)


def make_belief(
    seed=0,
    batch=6,
    heads=3,
    classes=5,
    spread=2.0,
    evidence=(0.0, 6.0),
    gate=True,
    impossible=False,
    prior=None,
    temperature=None,
):
    """A random belief with every field; `evidence` is the range of log α0, or None."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=F64)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=F64)

    logits = spread * normal(batch, heads, classes)
    if impossible:  # class 0 stays possible
        never = torch.rand(logits.shape, generator=generator) < 0.3
        logits = logits.masked_fill(never & (torch.arange(classes) > 0), -math.inf)
    log_p, log_evidence = torch.log_softmax(logits, -1), None
    if evidence is not None:
        log_evidence = uniform(*evidence, batch, heads)
    if prior is not None:  # α = e + prior
        e = uniform(*evidence, batch, heads, classes).exp()
        log_p, log_evidence = dirichlet.log_mean((e + prior).log())
    return Belief(
        log_p=log_p,
        log_weight=torch.log_softmax(normal(batch, heads), -1),
        log_evidence=log_evidence,
        log_gate=uniform(0.1, 0.9, batch, classes).log() if gate else None,
        log_rho=uniform(-6.0, 0.0, batch),
        log_density=normal(batch),
        energy=normal(batch),
        logits=logits,
        log_temperature=None if temperature is None else torch.tensor(temperature).double().log(),
        log_prior=None if prior is None else torch.tensor(prior).double().log(),
        log_familiarity=uniform(-9.0, 0.0, batch),
    )


@st.composite
def beliefs(draw, gate=st.booleans()):  # noqa: B008 - strategies are immutable
    """Beliefs from nearly uniform to log p of −300 and −∞, log α0 from −40 to 40."""
    low = draw(st.sampled_from([-40.0, -10.0, 0.0, 3.0, 20.0]))
    high = draw(st.sampled_from([low, 0.0, 3.0, 10.0, 40.0]).filter(lambda value: value >= low))
    return make_belief(
        seed=draw(st.integers(0, 10_000)),
        batch=draw(st.integers(1, 4)),
        heads=draw(st.integers(1, 5)),
        classes=draw(st.sampled_from([2, 3, 10, 100])),
        spread=draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0, 5.0, 30.0, 100.0])),
        evidence=(low, high) if draw(st.booleans()) else None,
        gate=draw(gate),
        impossible=draw(st.booleans()),
    )


# ---------------------------------------------------------------- a slow, obvious oracle


def numbers(tensor):
    return [mp.e ** mp.mpf(value) for value in tensor.tolist()]


def normalised(values):
    return [value / sum(values) for value in values]


def shannon(p):
    return -sum(each * mp.log(each) for each in p if each > 0)


def average(weights, values):
    return sum(w * value for w, value in zip(weights, values, strict=True))


def exact_expected_entropy(p, total):
    return sum(each * (mp.psi(0, total + 1) - mp.psi(0, each * total + 1)) for each in p)


def exact_dissonance(mass):
    value = mp.mpf(0)
    for c, here in enumerate(mass):
        against = rest = mp.mpf(0)
        for j, there in enumerate(mass):
            if j != c and here + there > 0:
                against += there * (1 - abs(there - here) / (there + here))
                rest += there
        value += here * against / rest if rest > 0 else 0
    return value


def exact_differential_entropy(alpha):
    total = sum(alpha)
    log_beta = sum(mp.loggamma(a) for a in alpha) - mp.loggamma(total)
    spread = sum((a - 1) * mp.psi(0, a) for a in alpha)
    return log_beta + (total - len(alpha)) * mp.psi(0, total) - spread


def oracle(belief, row):
    """Every score of one input, by definition, with 40 digits."""
    w = normalised(numbers(belief.log_weight[row]))
    p = [normalised(numbers(head)) for head in belief.log_p[row]]
    totals = numbers(belief.log_evidence[row])
    classes, rho = range(len(p[0])), mp.e ** mp.mpf(belief.log_rho[row].item())
    prior = mp.mpf(0) if belief.log_prior is None else mp.e ** mp.mpf(belief.log_prior.item())
    gate = [mp.mpf(1) for _ in classes]
    if belief.log_gate is not None:
        gate = numbers(belief.log_gate[row])
    temperature = mp.mpf(1)
    if belief.log_temperature is not None:
        temperature = mp.e ** mp.mpf(belief.log_temperature.item())

    mix = [average(w, [head[c] for head in p]) for c in classes]
    gated = normalised([s * m for s, m in zip(gate, mix, strict=True)])
    final = normalised([each ** (1 / temperature) for each in gated])
    gated_p = [normalised([s * m for s, m in zip(gate, head, strict=True)]) for head in p]
    gated_w = normalised([wk * average(gate, head) for wk, head in zip(w, p, strict=True)])
    alpha = [[each * total for each in head] for head, total in zip(p, totals, strict=True)]
    heads = list(zip(p, totals, strict=True))
    gated_heads = list(zip(gated_p, totals, strict=True))
    expected = average(w, [exact_expected_entropy(*head) for head in heads])
    gated_expected = average(gated_w, [exact_expected_entropy(*head) for head in gated_heads])
    spread = average(w, [exact_differential_entropy(a) for a in alpha])
    between = sum(average(w, [(head[c] - mix[c]) ** 2 for head in p]) for c in classes)
    within = average(w, [(1 - sum(x * x for x in head)) / (total + 1) for head, total in heads])
    mass = len(p[0]) * (prior or 1)
    evidence = average(w, totals) - (mass if prior else 0)
    strongest = max(average(w, [a[c] for a in alpha]) for c in classes)
    beliefs_ = [
        [max(a - prior, mp.mpf(0)) / total for a in head]
        for head, total in zip(alpha, totals, strict=True)
    ]
    logits = [sum(numbers(head)) for head in belief.logits[row]]
    return {
        "max_prob": 1 - max(final),
        "entropy": shannon(final),
        "expected_entropy": expected,
        "disagreement": shannon(mix) - average(w, [shannon(head) for head in p]),
        "mutual_information": shannon(mix) - expected,
        "gated_mutual_information": shannon(gated) - gated_expected,
        "paper_mutual_information": shannon(final) - average(w, [shannon(head) for head in p]),
        "evidence": -mp.log(average(w, totals) * rho),
        "bare_evidence": -mp.log(average(w, totals)),
        "max_alpha": -mp.log(strongest * rho),
        "vacuity": mass / (mass + rho * evidence),
        "dissonance": average(w, [exact_dissonance(each) for each in beliefs_]),
        "differential_entropy": spread,
        "differential_entropy_upper": spread + shannon(w),
        "conflict": (between + within) / 2,
        "energy": mp.mpf(belief.energy[row].item()),
        "logit_energy": -mp.log(average(w, logits)),
        "density": -mp.mpf(belief.log_density[row].item()),
        "unfamiliarity": -mp.mpf(belief.log_familiarity[row].item()),
    }


CASES = {
    "gated": make_belief(seed=1),
    "ungated": make_belief(seed=2, gate=False),
    "edl": make_belief(seed=3, heads=1, gate=False, prior=1.0, evidence=(-4.0, 4.0)),
    "r-edl, tempered": make_belief(seed=4, prior=0.1, evidence=(-8.0, 4.0), temperature=1.7),
    "two classes": make_belief(seed=5, classes=2, heads=2, temperature=0.6),
    "confident": make_belief(seed=6, spread=12.0, evidence=(9.0, 12.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_score_equals_its_oracle(case):
    belief = CASES[case]
    expected = [oracle(belief, row) for row in range(len(belief))]
    assert set(expected[0]) == set(scores.SCORES)
    for name, score in scores.SCORES.items():
        found = score(belief)
        assert found.shape == (len(belief),)
        assert found.dtype == F64
        wanted = [float(row[name]) for row in expected]
        assert found.tolist() == pytest.approx(wanted, rel=1e-10, abs=1e-14), name


@pytest.mark.parametrize("name", scores.SCORES)
def test_higher_is_more_uncertain(name):
    """One input is familiar and clear; the other splits the heads, the classes and the evidence."""
    clear = torch.tensor([[0.96, 0.02, 0.02]] * 2)
    unclear = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    belief = Belief(
        log_p=torch.stack([clear, unclear]).double().log(),
        log_weight=torch.full((2, 2), 0.5, dtype=F64).log(),
        log_evidence=torch.tensor([[150.0, 150.0], [4.0, 4.0]], dtype=F64).log(),
        log_rho=torch.tensor([-0.1, -3.0], dtype=F64),
        log_density=torch.tensor([10.0, -50.0], dtype=F64),
        log_familiarity=torch.tensor([-0.1, -4.0], dtype=F64),
        energy=torch.tensor([-2.0, 3.0], dtype=F64),
        logits=torch.stack([clear, unclear]).double().log() * 3
        + torch.tensor([5.0, 0, 0]).double(),
    )
    sure, unsure = scores.SCORES[name](belief).tolist()
    assert unsure > sure + 0.01


# ---------------------------------------------------------------- properties


@quick
@given(beliefs())
def test_mutual_information_is_disagreement_plus_what_each_head_holds(belief):
    total = scores.mutual_information(belief)
    within = torch.zeros_like(total)
    if belief.log_evidence is not None:
        each = dirichlet.mutual_information(belief.log_p, belief.log_evidence)
        assert (each >= 0).all()
        within = (belief.log_weight.exp() * each).sum(-1)
    between = scores.disagreement(belief)
    assert (between >= 0).all()
    assert torch.allclose(total, between + within, rtol=1e-14, atol=0)
    mix = dirichlet.entropy(dirichlet.log_mixture(belief.log_p, belief.log_weight))
    assert torch.allclose(total, mix - scores.expected_entropy(belief), rtol=0, atol=1e-12)
    assert (scores.gated_mutual_information(belief) >= 0).all()


@quick
@given(beliefs())
def test_uncertainty_splits_the_entropy_into_parts_that_are_not_negative(belief):
    split = scores.uncertainty(belief)
    parts = (split.aleatoric, split.within, split.between)
    for part in (*parts, split.total):
        assert part.shape == (len(belief),)
        assert part.isfinite().all()
        assert (part >= 0).all()
    assert (sum(parts) - split.total).abs().max() <= 1e-12
    assert torch.allclose(split.total, scores.entropy(belief), rtol=0, atol=1e-12)
    assert torch.equal(split.epistemic, split.within + split.between)
    assert torch.allclose(split.epistemic, scores.gated_mutual_information(belief), rtol=1e-14)
    if belief.log_evidence is None:
        assert (split.within == 0).all()
    if belief.log_p.shape[1] == 1:
        assert (split.between == 0).all()


@pytest.mark.parametrize("log_evidence", [-40.0, 40.0])
def test_uncertainty_of_extreme_evidence_is_all_within_or_all_aleatoric(log_evidence):
    belief = make_belief(heads=1, evidence=(log_evidence, log_evidence))
    split = scores.uncertainty(belief)
    nearly_all, nearly_none = split.within, split.aleatoric
    if log_evidence > 0:
        nearly_all, nearly_none = nearly_none, nearly_all
    assert torch.allclose(nearly_all, split.total, rtol=1e-12)
    assert ((nearly_none > 0) | (log_evidence < 0)).all()
    assert (nearly_none < 1e-15).all()


@quick
@given(beliefs())
def test_a_gated_mixture_is_the_mixture_of_its_gated_components(belief):
    gated = belief.gated()
    assert gated.log_gate is None
    assert (gated.probs() - belief.probs()).abs().max() <= 1e-14
    assert torch.allclose(gated.log_weight.exp().sum(-1), torch.ones(len(belief), dtype=F64))
    assert (gated.log_p.exp().sum(-1) - 1).abs().max() <= 1e-13


@quick
@given(beliefs(gate=st.just(value=True)), st.floats(-50, 50))
def test_a_common_scale_of_the_gate_changes_nothing(belief, log_scale):
    scaled = replace(belief, log_gate=belief.log_gate + log_scale)
    assert (scaled.probs() - belief.probs()).abs().max() <= 1e-13
    for name in FOLLOWS_GATE:
        score = scores.SCORES[name]
        assert torch.allclose(score(scaled), score(belief), rtol=1e-11, atol=1e-12), name


@quick
@given(beliefs(), st.randoms(use_true_random=False))
def test_the_order_of_the_heads_changes_nothing(belief, random):
    order = list(range(belief.log_p.shape[1]))
    random.shuffle(order)
    shuffled = replace(
        belief,
        log_p=belief.log_p[:, order],
        log_weight=belief.log_weight[:, order],
        logits=belief.logits[:, order],
        log_evidence=None if belief.log_evidence is None else belief.log_evidence[:, order],
    )
    for name in scores.available(belief):
        score = scores.SCORES[name]
        assert torch.allclose(score(shuffled), score(belief), rtol=1e-11, atol=1e-12), name


@quick
@given(beliefs(), st.integers(0, 3))
def test_a_score_of_a_row_is_the_row_of_the_score(belief, row):
    row %= len(belief)
    for name in scores.available(belief):
        score = scores.SCORES[name]
        assert torch.allclose(score(belief[row])[0], score(belief)[row], rtol=1e-12), name


# ---------------------------------------------------------------- which field moves which score


@pytest.mark.parametrize(
    ("changed", "followers"),
    [
        ({"log_gate": torch.linspace(-2, 0, 30, dtype=F64).reshape(6, 5)}, FOLLOWS_GATE),
        ({"log_rho": torch.full((6,), -1.0, dtype=F64)}, FOLLOWS_RHO),
        ({"log_temperature": torch.tensor(0.5, dtype=F64)}, FOLLOWS_TEMPERATURE),
        ({"log_prior": torch.tensor(-3.0, dtype=F64)}, FOLLOWS_PRIOR),
        ({"energy": torch.ones(6, dtype=F64)}, {"energy"}),
        ({"log_density": torch.ones(6, dtype=F64)}, {"density"}),
        ({"log_familiarity": torch.full((6,), -1.0, dtype=F64)}, {"unfamiliarity"}),
        ({"logits": torch.ones(6, 3, 5, dtype=F64)}, {"logit_energy"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_field_moves_its_scores_and_no_other(changed, followers):
    belief = make_belief(evidence=(3.0, 6.0))
    other = replace(belief, **changed)
    moved = {
        name
        for name, score in scores.SCORES.items()
        if not torch.equal(score(belief), score(other))
    }
    assert moved == followers


def complaint(name, belief):
    """What a score says when it cannot be computed, else None."""
    try:
        assert scores.SCORES[name](belief).isfinite().all()
    except InputError as error:
        return str(error)
    return None


def test_available_agrees_with_which_scores_raise_and_each_names_what_is_missing():
    full = make_belief(prior=1.0)
    assert scores.available(full) == list(scores.SCORES)
    for number in range(len(OPTIONAL) + 1):
        for missing in combinations(OPTIONAL, number):
            belief = replace(full, **dict.fromkeys(missing))
            complaints = {name: complaint(name, belief) for name in scores.SCORES}
            works = [name for name, message in complaints.items() if message is None]
            assert scores.available(belief) == works
            named = {message for message in complaints.values() if message is not None}
            needed = NEEDED & set(missing)
            assert named == {f"this belief has no `{field}`: {WHY}" for field in needed}


# ---------------------------------------------------------------- known values and pitfalls


def test_without_evidence_the_components_are_points():
    belief = make_belief(evidence=None)
    entropy = dirichlet.entropy(belief.log_p)
    expected = (belief.log_weight.exp() * entropy).sum(-1)
    assert torch.equal(scores.expected_entropy(belief), expected)
    assert torch.equal(scores.mutual_information(belief), scores.disagreement(belief))


def test_paper_mutual_information_can_be_negative_and_ours_cannot():
    belief = make_belief(batch=2000, classes=10, evidence=None)
    paper = scores.paper_mutual_information(belief)
    assert 0.02 < (paper < 0).double().mean() < 0.5
    assert paper.min() < -0.1
    assert (scores.gated_mutual_information(belief) >= 0).all()
    ungated = replace(belief, log_gate=None)
    assert torch.allclose(
        scores.paper_mutual_information(ungated), scores.disagreement(ungated), atol=1e-14
    )


def test_max_prob_separates_confident_inputs_in_float32():
    rest = torch.linspace(-40, -16, 200)
    logits = torch.zeros(200, 1, 10)
    logits[:, 0, 1:] = rest.unsqueeze(-1)
    belief = Belief(torch.log_softmax(logits, -1), torch.zeros(200, 1))
    assert belief.log_p.dtype == torch.float32
    score = scores.max_prob(belief)
    assert (score.diff() > 0).all()
    assert torch.allclose(score.double(), 9 * rest.double().exp(), rtol=1e-5)
    assert (1 - belief.probs().amax(-1)).unique().numel() < 10  # the obvious form ties


@pytest.mark.parametrize("gap", [15.0, 20.0, 36.0])
def test_dissonance_of_a_confident_head_is_small_and_not_noise(gap):
    logits = -gap + torch.linspace(0, 1, 10, dtype=F64)
    logits[3] = 0.0
    belief = Belief(
        torch.log_softmax(logits, -1).reshape(1, 1, 10),
        torch.zeros(1, 1, dtype=F64),
        log_evidence=torch.full((1, 1), 8.0, dtype=F64),
    )
    exact = float(exact_dissonance(normalised(numbers(logits))))
    assert scores.dissonance(belief).item() == pytest.approx(exact, rel=1e-12, abs=0)
    assert scores.dissonance(belief.to(torch.float32)).item() == pytest.approx(
        exact, rel=1e-4, abs=0
    )


@pytest.mark.parametrize("block", [1, 50, 700, 1 << 16])
@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_dissonance_by_blocks_visits_every_pair_once(monkeypatch, block, dtype):
    """Against the sum over all pairs as it is defined, with zeros and ties among the masses."""
    monkeypatch.setattr(scores, "_BLOCK", block)
    p = torch.rand(4, 2, 37, generator=torch.Generator().manual_seed(0), dtype=F64) ** 4
    p[0, 0, :30] = 0.0
    p[1, 1, 5:25] = p[1, 1, 5]
    p[2, 0] = 0.0
    p[2, 0, 3] = 1.0
    p = p / p.sum(dim=-1, keepdim=True)
    one, other = p.unsqueeze(-1), p.unsqueeze(-2)
    balance = torch.nan_to_num(1 - (one - other).abs() / (one + other))
    against = (balance * other).masked_fill(torch.eye(37, dtype=torch.bool), 0.0).sum(dim=-1)
    rest = p.sum(dim=-1, keepdim=True) - p
    expected = torch.where(rest > 1e-15, p * against / rest, 0.0).sum(dim=-1).mean(dim=1)
    weight = torch.full((4, 2), 0.5, dtype=F64).log()
    belief = Belief(p.log(), weight, log_evidence=torch.zeros(4, 2, dtype=F64)).to(dtype)
    tolerance = {F64: 1e-12, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(
        scores.dissonance(belief).double(), expected, rtol=tolerance, atol=tolerance
    )


def test_dissonance_has_a_finite_gradient():
    log_p = torch.tensor([[[0.0, -math.inf, -math.inf], [-1.0, -1.0, -1.0]]], dtype=F64)
    log_p.requires_grad_()
    weight = torch.zeros(1, 2, dtype=F64)
    scores.dissonance(Belief(log_p, weight, log_evidence=weight)).sum().backward()
    assert torch.isfinite(log_p.grad).all()


def test_dissonance_known_values():
    even = torch.full((1, 1, 4), 0.25, dtype=F64).log()
    one = torch.zeros(1, 1, dtype=F64)
    assert scores.dissonance(Belief(even, one, one)).item() == pytest.approx(1.0)
    certain = torch.tensor([[[0.0, -math.inf, -math.inf]]], dtype=F64)
    assert scores.dissonance(Belief(certain, one, one)).item() == 0.0
    empty = Belief(even, one, one + math.log(4), log_prior=torch.tensor(0.0, dtype=F64))
    assert scores.dissonance(empty).item() == pytest.approx(0.0, abs=1e-15)  # no evidence at all


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("classes", [2, 3, 7, 10, 100])
def test_vacuity_without_evidence_is_one_and_never_above(classes, dtype):
    rng = torch.Generator().manual_seed(0)
    for log_prior in (0.0, math.log(0.1), math.log(0.8)):
        small = torch.cat([torch.zeros(1), 1e-9 * torch.rand(20, generator=rng)]).to(F64)
        log_total = torch.log(classes * math.exp(log_prior) + small).to(dtype).unsqueeze(1)
        belief = Belief(
            torch.full((21, 1, classes), -math.log(classes), dtype=dtype),
            torch.zeros(21, 1, dtype=dtype),
            log_evidence=log_total,
            log_prior=torch.tensor(log_prior, dtype=dtype),
        )
        value = scores.vacuity(belief)
        assert (value <= 1).all()
        assert torch.allclose(value, torch.ones_like(value), atol=1e-6)


def test_vacuity_of_edl_is_classes_over_total_and_rho_scales_the_evidence_alone():
    belief = make_belief(heads=1, prior=1.0)
    bare = replace(belief, log_rho=None)
    total = belief.log_evidence.exp()[:, 0]
    assert torch.allclose(scores.vacuity(bare), 5 / total, rtol=1e-12)
    gone = replace(belief, log_rho=torch.full((6,), -80.0, dtype=F64))
    assert torch.allclose(scores.vacuity(gone), torch.ones(6, dtype=F64))
    without = replace(bare, log_prior=None)
    assert torch.allclose(scores.vacuity(without), 5 / (5 + total), rtol=1e-12)


@pytest.mark.parametrize("name", ["differential_entropy", "differential_entropy_upper"])
def test_differential_entropy_is_inverted_where_evidence_vanishes(name):
    """Most uncertain at α = 1; with less evidence it falls, and every other score rises."""
    log_p = torch.full((6, 1, 10), 0.1).log()
    counts = torch.tensor([1000.0, 10.0, 1.0, 0.1, 1e-3, 1e-6])  # α of each class
    log_evidence = (10 * counts).log()[:, None]
    belief = Belief(log_p, log_evidence=log_evidence, log_weight=torch.zeros(6, 1))
    found = scores.SCORES[name](belief)
    assert (found[:3].diff() > 0).all()
    assert (found[2:].diff() < 0).all()
    assert found[-1] < -1e6
    assert (scores.vacuity(belief).diff() > 0).all()
    assert "inverted" in (scores.SCORES[name].__doc__ or "")


def test_conflict_mixes_between_and_within():
    belief = make_belief()
    between, within = dirichlet.class_variance(belief.log_p, belief.log_weight, belief.log_evidence)
    assert torch.allclose(scores.conflict(belief, mix=0.0), between.sum(-1), rtol=1e-14)
    assert torch.allclose(scores.conflict(belief, mix=1.0), within.sum(-1), rtol=1e-14)


def test_dissonance_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    log_p = torch.log_softmax(torch.randn(7, 2, 4, dtype=torch.float64), dim=-1)
    weight = torch.log_softmax(torch.randn(7, 2, dtype=torch.float64), dim=-1)
    belief = Belief(log_p, weight, torch.rand(7, 2, dtype=torch.float64))
    whole = scores.dissonance(belief)
    monkeypatch.setattr(scores, "_BLOCK", 3 * 2 * 4 * 4)  # three rows at a time
    torch.testing.assert_close(scores.dissonance(belief), whole)


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-12])
def test_dissonance_of_many_classes_is_the_sum_over_pairs(spread, size):
    noise = torch.randn(3, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mass = (size * torch.softmax(spread * noise, dim=-1)).sort(dim=-1).values
    expected = scores._conflicting(mass)
    found = scores._conflicting_of_many(mass)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(
        scores._conflicting_of_many(mass.float()).double(), expected, rtol=1e-4, atol=0
    )


def test_dissonance_of_many_classes_without_evidence_or_of_one_class_is_none():
    mass = torch.zeros(2, 500, dtype=torch.float64)
    mass[1, -1] = 0.7
    assert scores._conflicting_of_many(mass).tolist() == [0, 0]


def test_dissonance_takes_sums_beyond_a_number_of_classes(monkeypatch):
    log_p = torch.log_softmax(torch.randn(40, 2, 60, dtype=torch.float64), dim=-1)
    weight = torch.full((40, 2), 0.5, dtype=torch.float64).log()
    belief = Belief(log_p, weight, log_evidence=torch.full((40, 2), 3.0, dtype=torch.float64))
    expected = scores.dissonance(belief)
    monkeypatch.setattr(scores, "_PAIRED", 59)
    found = scores.dissonance(belief)
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
