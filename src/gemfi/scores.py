"""Scores: pure functions `Belief -> Tensor (B,)` with one sign, **higher is more uncertain**.

To add one, write a function and list it in `_NEEDS` with the field of a belief that it cannot do
without. Call them on a float64 belief, as `predict` returns it: the ranking of confident inputs
lives in the last digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet
from gemfi._text import printable
from gemfi.belief import Belief
from gemfi.errors import InputError

Score = Callable[[Belief], Tensor]
DIFFERENTIAL_ENTROPY_NOTE = (
    "Differential entropy can be inverted for the GEM methods: it falls without bound as α goes to "
    "0, as theirs does far from the data, so that those inputs rank as certain."
)
"""Stands below every table and figure that shows the score."""

_BLOCK = 1 << 16  # pairs of classes held at a time: what a processor's cache holds
_PAIRED = 2_000  # classes up to which every pair of them is visited


def _average(belief: Belief, values: Tensor) -> Tensor:
    """Σ_k π_k of values (B, K)."""
    return (belief.log_weight.exp() * values).sum(dim=-1)


def _with_rho(belief: Belief, log_evidence: Tensor) -> Tensor:
    return log_evidence if belief.log_rho is None else log_evidence + belief.log_rho


# -- the predictive distribution ----------------------------------------------------------------


def max_prob(belief: Belief) -> Tensor:
    """1 − max_c p̂_c, summed from the other classes so that confident inputs stay apart."""
    log_p = belief.log_probs()
    top = log_p.argmax(dim=-1, keepdim=True)
    return log_p.exp().scatter(-1, top, 0.0).sum(dim=-1)


def entropy(belief: Belief) -> Tensor:
    """H(p̂), the total uncertainty."""
    return dirichlet.entropy(belief.log_probs())


# -- the components -----------------------------------------------------------------------------


def expected_entropy(belief: Belief) -> Tensor:
    """Σ π_k E_k[H]: the entropy that more data would not remove; the gate is left out."""
    if belief.log_evidence is None:
        return _average(belief, dirichlet.entropy(belief.log_p))
    return _average(belief, dirichlet.expected_entropy(belief.log_p, belief.log_evidence))


def disagreement(belief: Belief) -> Tensor:
    """Jensen-Shannon divergence between the components (ungated)."""
    return dirichlet.disagreement(belief.log_p, belief.log_weight)


def _within(belief: Belief) -> Tensor:
    inner = dirichlet.mutual_information(belief.log_p, belief.need("log_evidence"))
    return _average(belief, inner)


def mutual_information(belief: Belief) -> Tensor:
    """Total mutual information: disagreement + Σ π_k MI_k (C4); ungated, ρ left out."""
    between = disagreement(belief)
    return between if belief.log_evidence is None else between + _within(belief)


def gated_mutual_information(belief: Belief) -> Tensor:
    """Total mutual information of the gated mixture (C5): within + between of `uncertainty`."""
    return mutual_information(belief.gated())


def paper_mutual_information(belief: Belief) -> Tensor:
    """H(p̂) − Σ π_k H(p_k) as the paper prints it: gated minus ungated, so it can be negative."""
    return entropy(belief) - _average(belief, dirichlet.entropy(belief.log_p))


# -- evidence -----------------------------------------------------------------------------------


def evidence(belief: Belief) -> Tensor:
    """−(log Σ π_k α0_k + log ρ): little evidence is a high score."""
    return -_with_rho(belief, belief.log_total_evidence())


def bare_evidence(belief: Belief) -> Tensor:
    """−log Σ π_k α0_k, the density scaler left out (the paper's ρ = 1)."""
    return -belief.log_total_evidence()


def max_alpha(belief: Belief) -> Tensor:
    """−log max_c Σ π_k α_kc − log ρ: the evidence of the strongest class."""
    log_alpha = dirichlet.log_concentration(belief.log_p, belief.need("log_evidence"))
    return -_with_rho(belief, dirichlet.log_mixture(log_alpha, belief.log_weight).amax(dim=-1))


def vacuity(belief: Belief) -> Tensor:
    """W / (W + ρ·e) in [0, 1]: prior mass W over prior mass plus evidence e.

    With a prior in α (EDL) e = α0 − W, so that without ρ this is the usual C/α0; without one (α =
    exp u) W = C and e = α0.
    """
    total = belief.log_total_evidence().exp()
    prior = torch.full_like(total, float(belief.log_p.shape[-1]))
    if belief.log_prior is not None:
        prior = prior * belief.log_prior.exp()
        total = (total - prior).clamp_min(0)
    if belief.log_rho is not None:
        total = total * belief.log_rho.exp()
    return prior / (prior + total)


def dissonance(belief: Belief) -> Tensor:
    """Σ_k π_k Σ_c b_c Σ_{j≠c} b_j Bal(b_j, b_c) / Σ_{j≠c} b_j: evidence that contradicts itself.

    b_c is the belief mass (α_c − prior)/α0 and Bal(a, b) = 1 − |a − b|/(a + b) = 2 min(a, b)/(a +
    b): next to a mass near one the difference would lose the small ones. Every pair of classes is
    visited, in blocks of bounded memory. Beyond 2,000 classes sums of exponentials stand for the
    pairs: O(C) an input, to nine digits.
    """
    log_evidence = belief.need("log_evidence")
    mass = belief.log_p.exp()
    if belief.log_prior is not None:
        prior = torch.exp(belief.log_prior - log_evidence).unsqueeze(-1)
        mass = (mass - prior).clamp_min(0)
    rows = mass.flatten(0, 1).sort(dim=-1).values  # (B·K, C), ascending
    classes = rows.shape[1]
    many = classes > _PAIRED
    step = max(1, _BLOCK // (classes if many else classes**2))
    conflicting = _conflicting_of_many if many else _conflicting
    share = torch.cat([conflicting(part) for part in torch.split(rows, step)])
    return _average(belief, share.view_as(log_evidence))


def _conflicting(mass: Tensor) -> Tensor:
    """Dissonance (R,) of ascending belief masses (R, C).

    With m_c = Σ_{j≠c} b_j it is the sum over pairs j < c of 2 b_j² b_c/(b_j + b_c)·(1/m_j + 1/m_c).
    """
    tiny = torch.finfo(mass.dtype).tiny  # in a denominator; the numerator is zero there
    others = _sum_before(mass) + _sum_before(mass.flip(-1)).flip(-1)
    inverse = 1 / others.clamp_min(tiny)  # (R, C)
    square, size = mass.square(), mass.clamp_min(tiny)
    factors = torch.stack([square, square * inverse], dim=-1)  # (R, C, 2)
    classes = mass.shape[-1]
    width = max(1, min(classes, _BLOCK // (len(mass) * classes)))
    total = mass.new_zeros(len(mass))
    for start in range(0, classes, width):
        part, below = slice(start, start + width), slice(start)
        here = size[:, part, None]
        near = torch.reciprocal(here + size[:, None, part]).tril(-1) @ factors[:, part]
        far = torch.reciprocal(here + size[:, None, below]) @ factors[:, below]
        pairs = near + far  # (R, width, 2)
        terms = mass[:, part] * (pairs[..., 0] * inverse[:, part] + pairs[..., 1])
        total = total + 2 * terms.sum(dim=-1)
    return total


def _conflicting_of_many(mass: Tensor) -> Tensor:
    """As `_conflicting`, by 1/x = ∫ exp(s − x·eˢ) ds, which parts b_j from b_c in 1/(b_j + b_c).

    The trapezoidal rule with steps of 0.35 is exact to 10⁻¹⁰ for x from 10⁻¹⁸ to 2; masses are in
    units of the largest.
    """
    tiny = torch.finfo(mass.dtype).tiny
    top = mass[:, -1:].clamp_min(tiny)
    mass = mass / top
    others = _sum_before(mass) + _sum_before(mass.flip(-1)).flip(-1)
    inverse = 1 / others.clamp_min(tiny)
    total = mass.new_zeros(len(mass))
    for rate in torch.arange(-25, 46, 0.35, dtype=torch.float64).exp().tolist():
        fading = torch.exp(-rate * mass)
        square = mass.square() * fading
        pairs = _sum_before(square * inverse) + inverse * _sum_before(square)
        total = total + 0.35 * rate * (mass * fading * pairs).sum(dim=-1)
    return 2 * top.squeeze(1) * total


def _sum_before(values: Tensor) -> Tensor:
    """The sum of all values before each one of the last dimension."""
    return functional.pad(values, (1, 0)).cumsum(dim=-1)[..., :-1]


def differential_entropy(belief: Belief) -> Tensor:
    """Σ π_k h(Dir(α_k)), a lower bound on the differential entropy of the mixture (C4).

    Not for the GEM methods: as α_c goes to 0 it goes to −∞, and theirs does far from the data, so
    that inputs without evidence look certain (AUROC of 0 to 15 on noise, inverted and shuffled
    digits). It ranks as it should where α_c is at least 1, as that of EDL is.
    """
    inner = dirichlet.differential_entropy(belief.log_p, belief.need("log_evidence"))
    return _average(belief, inner)


def differential_entropy_upper(belief: Belief) -> Tensor:
    """Σ π_k h(Dir(α_k)) + H(π), an upper bound on the same, and inverted with it."""
    return differential_entropy(belief) + dirichlet.entropy(belief.log_weight)


def conflict(belief: Belief, mix: float = 0.5) -> Tensor:
    """(1 − λ)·Σ_c between-head variance + λ·Σ_c within-head variance of p_c (C4)."""
    between, within = dirichlet.class_variance(
        belief.log_p, belief.log_weight, belief.need("log_evidence")
    )
    return (1 - mix) * between.sum(dim=-1) + mix * within.sum(dim=-1)


# -- energy and density -------------------------------------------------------------------------


def energy(belief: Belief) -> Tensor:
    """The learned energy E(z); trained to be high off the support."""
    return belief.need("energy")


def logit_energy(belief: Belief) -> Tensor:
    """−log Σ_k π_k Σ_c exp u_kc, the energy of the logits."""
    return dirichlet.logit_energy(belief.need("logits"), belief.log_weight)


def density(belief: Belief) -> Tensor:
    """−log p(z)."""
    return -belief.need("log_density")


def unfamiliarity(belief: Belief) -> Tensor:
    """−log of the familiarity: evidence, energy and density in one number, 0 or more."""
    return -belief.need("log_familiarity")


_NEEDS: dict[Score, str | None] = {  # score -> the field of a belief that it cannot do without
    max_prob: None,
    entropy: None,
    expected_entropy: None,
    disagreement: None,
    mutual_information: None,
    gated_mutual_information: None,
    paper_mutual_information: None,
    evidence: "log_evidence",
    bare_evidence: "log_evidence",
    max_alpha: "log_evidence",
    vacuity: "log_evidence",
    dissonance: "log_evidence",
    differential_entropy: "log_evidence",
    differential_entropy_upper: "log_evidence",
    conflict: "log_evidence",
    energy: "energy",
    logit_energy: "logits",
    density: "log_density",
    unfamiliarity: "log_familiarity",
}
MAIN = (
    "max_prob",
    "entropy",
    "expected_entropy",
    "disagreement",
    "mutual_information",
    "evidence",
    "energy",
    "unfamiliarity",
)
"""The scores that files, graphs and answers hold, where the method has them."""

SCORES: dict[str, Score] = {score.__name__: score for score in _NEEDS}


def available(belief: Belief) -> list[str]:
    """The names in `SCORES` for which this belief has what they need."""
    return [
        name
        for name, score in SCORES.items()
        if (field := _NEEDS[score]) is None or getattr(belief, field) is not None
    ]


def score_of(belief: Belief, name: str) -> Tensor:
    """A score (N,) by its name in `SCORES`, or that of a detector in the belief's `extra`."""
    if name in belief.extra:
        return belief.extra[name]
    if name in SCORES:
        return SCORES[name](belief)
    known = ", ".join([*SCORES, *belief.extra])
    raise InputError(f"unknown score {name!r}; known: {known}")


# -- the decomposition --------------------------------------------------------------------------


@dataclass(frozen=True)
class Uncertainty:
    """An exact split of H(p̂), every part (B,) and non-negative.

    `aleatoric` Σ w_k E_k[H] remains if p were known; `within` Σ w_k MI_k is each head's doubt about
    its own p; `between` is the Jensen-Shannon divergence of the gated heads.
    """

    total: Tensor
    aleatoric: Tensor
    within: Tensor
    between: Tensor

    @property
    def epistemic(self) -> Tensor:
        """Within-head + between-head (B,)."""
        return self.within + self.between


def uncertainty(belief: Belief) -> Uncertainty:
    """Split the entropy of p̂ into aleatoric + within-head + between-head, gate included.

    The gated mixture is itself a mixture of Dir(α0_k·p̂_k) with weights w_k (C5), and for a mixture
    of Dirichlets H(p̂) = Σ w_k E_k[H] + Σ w_k MI_k + JSD exactly. The post-hoc temperature acts on
    p̂ alone and is left out here.
    """
    gated = belief.gated()
    between = disagreement(gated)
    return Uncertainty(
        total=dirichlet.entropy(dirichlet.log_mixture(gated.log_p, gated.log_weight)),
        aleatoric=expected_entropy(gated),
        within=torch.zeros_like(between) if gated.log_evidence is None else _within(gated),
        between=between,
    )


SCORE_LABELS = {
    "max_prob": "1 − max p",
    "entropy": "entropy",
    "evidence": "evidence score",
    "bare_evidence": "evidence without ρ",
    "max_alpha": "largest α",
    "logit_energy": "energy of the logits",
    "unfamiliarity": "unfamiliarity",
    "vacuity": "vacuity",
    "dissonance": "dissonance",
    "disagreement": "disagreement",
    "mutual_information": "mutual information",
}


def score_label(name: str) -> str:
    """A score in words; a name that is not ours may come from a file."""
    return SCORE_LABELS.get(name, printable(name.replace("_", " ")))
