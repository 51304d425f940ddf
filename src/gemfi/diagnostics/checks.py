"""One function a number: it returns a finding, or the reason why the number does not apply.

To add a check, write a function `Subject -> Finding | str` and enter it in `CHECKS`; its limit goes
into `limits.py`, what to do about it into `remedies.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from gemfi import dirichlet, losses
from gemfi.diagnostics import limits, measures, remedies
from gemfi.diagnostics.findings import Finding
from gemfi.diagnostics.remedies import Remedy
from gemfi.diagnostics.subject import Subject
from gemfi.diagnostics.weights import (
    backbone_norm,
    energy_temperature,
    head_norm,
    norm_over_bound,
    temperature,
)

Check = Callable[[Subject], Finding | str]

_ONE_HEAD = "one component"
_NO_ENERGY = "the method has no learned energy"
_NO_GATE = "the method has no gate"
_NO_REFERENCE = "no reference given: it needs a split of training data"


def _most(
    subject: Subject, name: str, value: float, limit: float, meaning: str, remedy: Remedy
) -> Finding:
    """A share that should be at most `limit`."""
    healthy = value <= limit
    text = "" if healthy else remedy(subject)
    return Finding(name, value, healthy, meaning, text, f"at most {100 * limit:g} %", "share")


def _share(flags: Tensor) -> float:
    return float(flags.to(torch.float64).mean())


# -- evidence and confidence --------------------------------------------------------------------


def zero_evidence(subject: Subject) -> Finding | str:
    """Share of inputs with Σπ_kα0_k − W ≤ W/100, where W is the prior's mass; ρ left out.

    Without a prior it is Σπ_kα0_k ≤ C/100, or α within 1 % of one in every class, to which a KL
    pulls that kills all evidence. The energy's gate, a common factor of α, is left out too: where
    it is closed, that is `gate_saturation`.
    """
    belief = subject.belief
    if belief.log_evidence is None:
        return "the method has no evidence"
    log_total, mass = belief.log_total_evidence(), float(belief.log_p.shape[-1])
    if subject.log_gate is not None and subject.setting("gate") == "energy":
        log_total = log_total - subject.log_gate.squeeze(1)
    total = log_total.exp()
    if belief.log_prior is None:
        flat = (belief.probs() * mass - 1).abs().amax(dim=-1) <= limits.NO_EVIDENCE
        vacuous = flat & ((total / mass - 1).abs() <= limits.NO_EVIDENCE)
        none = (total <= limits.NO_EVIDENCE * mass) | vacuous
        meaning = "inputs with α0 at most 1 % of C, or with α = 1"
    else:
        none = total <= (1 + limits.NO_EVIDENCE) * mass * belief.log_prior.exp()
        meaning = "inputs with α0 within 1 % of the prior's mass"
    value = _share(none)
    remedy = remedies.more_evidence
    return _most(subject, "zero evidence", value, limits.ZERO_EVIDENCE, meaning, remedy)


def confident_errors(subject: Subject) -> Finding | str:
    """Share of errors with max p̂ ≥ 0.9; judged where there are enough errors."""
    confidence, label = subject.belief.probs().max(dim=-1)
    wrong = label != subject.labels.to(label.device)
    count = int(wrong.sum())
    if count == 0:
        return "no input is misclassified"
    value = _share(confidence[wrong] >= limits.CONFIDENT)
    meaning = f"of {count} error{'' if count == 1 else 's'}, those with confidence 0.9 or more"
    if count < limits.FEWEST_ERRORS:
        return Finding("confident errors", value, True, meaning, unit="share")
    remedy = remedies.fewer_confident_errors
    return _most(subject, "confident errors", value, limits.CONFIDENT_ERRORS, meaning, remedy)


# -- heads and router ---------------------------------------------------------------------------


def heads_used(subject: Subject) -> Finding | str:
    """Effective number of heads, exp of the entropy of the mean weights."""
    count = subject.components
    if count == 1:
        return _ONE_HEAD
    value, least = measures.heads(subject.belief).used, 1 + limits.USED * (count - 1)
    healthy = value >= least
    return Finding(
        "heads used",
        value,
        healthy,
        f"effective number of the {count} heads in use",
        "" if healthy else remedies.more_heads(subject),
        f"at least {least:g}",
    )


def router_entropy(subject: Subject) -> Finding | str:
    """Mean H(π)/log K of an input: 0 is one head for each, 1 is all heads for each."""
    count = subject.components
    if count == 1:
        return _ONE_HEAD
    value = float(losses.mean_entropy(subject.belief.log_weight)) / math.log(count)
    return Finding("router entropy", value, True, "of an input's weights, as a share of log K")


def head_cosine(subject: Subject) -> Finding | str:
    """Mean cosine between the predictions of two heads."""
    if subject.components == 1:
        return _ONE_HEAD
    value = measures.heads(subject.belief).cosine
    return Finding("head cosine", value, True, "mean cosine of two heads' predictions")


def heads_differ(subject: Subject) -> Finding | str:
    """Share of inputs on which not all heads have the same most probable class."""
    if subject.components == 1:
        return _ONE_HEAD
    value = measures.heads(subject.belief).differ
    meaning = "inputs on which the heads' classes differ"
    return Finding("heads differ", value, True, meaning, unit="share")


def head_disagreement(subject: Subject) -> Finding | str:
    """JSD/H of the heads' plain mean: the part of its entropy that is disagreement.

    A cosine near 1 says nothing where all heads are right and sure; this is free of that scale. The
    weights are left out, so that a router that uses one head does not make the others look alike.
    """
    if subject.components == 1:
        return _ONE_HEAD
    log_p = subject.belief.log_p
    equal = torch.full_like(subject.belief.log_weight, -math.log(subject.components))
    entropy = float(losses.mean_entropy(dirichlet.log_mixture(log_p, equal)))
    if entropy == 0:
        return "every head is wholly certain"
    value = float(dirichlet.disagreement(log_p, equal).mean()) / entropy
    healthy = value >= limits.DISAGREEMENT
    return Finding(
        "head disagreement",
        value,
        healthy,
        "part of the entropy that is disagreement",
        "" if healthy else remedies.other_heads(subject),
        f"at least {100 * limits.DISAGREEMENT:g} %",
        "share",
    )


def router_oscillation(subject: Subject) -> Finding | str:
    """Way there and back of the mean weights an epoch, over the later half of training.

    With moves of ½‖π̄_{t+1} − π̄_t‖₁, the sum of them less the move from first to last, over their
    number: a drift in one direction is none.
    """
    if subject.components == 1:
        return _ONE_HEAD
    weights = [each["router"] for each in subject.history or () if "router" in each]
    if not weights:
        return "not recorded: it needs the history of training with validation data"
    if len(weights) < limits.FEWEST_EPOCHS:
        return f"{len(weights)} epochs were recorded, and it needs {limits.FEWEST_EPOCHS}"
    value = _back_and_forth(weights[len(weights) // 2 :])
    meaning = "weight that goes there and back an epoch"
    remedy = remedies.calmer_training
    return _most(subject, "router oscillation", value, limits.OSCILLATION, meaning, remedy)


def _back_and_forth(weights: Sequence[Sequence[float]]) -> float:
    path = torch.tensor(weights, dtype=torch.float64)
    way = path.diff(dim=0).abs().sum() / 2
    net = (path[-1] - path[0]).abs().sum() / 2
    return max(0.0, float(way - net) / (len(path) - 1))  # rounding can leave −1e-17


# -- gate and energy ----------------------------------------------------------------------------


def gate_saturation(subject: Subject) -> Finding | str:
    """Share of gate values within 1 % of its range from a bound; of the energy's gate, below 0.01.

    That one has no lower bound that it could not reach on purpose, and near 1 it is as it should.
    """
    gate = subject.gate
    if gate is None:
        return _NO_GATE
    name = "gate saturation"
    if subject.setting("gate") == "energy":
        value, meaning = _share(gate < limits.CLOSED), "ID inputs with a gate below 0.01"
        return _most(subject, name, value, limits.GATE_CLOSED, meaning, remedies.opener_gate)
    low, high = subject.setting("gate_low", 0.0), subject.setting("gate_high", 1.0)
    edge = limits.GATE_EDGE * (high - low)
    value = _share((gate <= low + edge) | (gate >= high - edge))
    meaning = f"gate values within 1 % of the bounds {low:g}, {high:g}"
    return _most(subject, name, value, limits.GATE_SATURATED, meaning, remedies.freer_gate)


def energy_saturation(subject: Subject) -> Finding | str:
    """Share of energies with σ(E) within 1e-4 of 0 or 1, or with tanh, |E| within 1e-4 of 1."""
    if subject.energy is None:
        return _NO_ENERGY
    if subject.setting("energy_tanh"):
        flat = subject.energy.abs() >= 1 - limits.ENERGY_EDGE
        meaning = "inputs with |tanh| of the energy within 1e-4 of 1"
    else:
        flat = torch.sigmoid(-subject.energy.abs()) <= limits.ENERGY_EDGE
        meaning = "inputs with σ(E) within 1e-4 of 0 or 1"
    value, remedy = _share(flat), remedies.flatter_energy
    return _most(subject, "energy saturation", value, limits.ENERGY_SATURATED, meaning, remedy)


# -- support ------------------------------------------------------------------------------------


def energy_and_support(subject: Subject) -> Finding | str:
    """Rank correlation of the energy with the distance to the training features; positive."""
    if subject.energy is None:
        return _NO_ENERGY
    meaning = "rank correlation of energy and distance to data"
    return _follows(
        subject,
        "energy and support",
        (subject.energy, subject.distance),
        (1, limits.ENERGY_FOLLOWS),
        meaning,
        remedies.better_energy,
    )


def gate_and_energy(subject: Subject) -> Finding | str:
    """Rank correlation of the mean gate with the energy; negative."""
    if subject.gate is None:
        return _NO_GATE
    if subject.energy is None:
        return _NO_ENERGY
    return _follows(
        subject,
        "gate and energy",
        (subject.gate.mean(dim=1), subject.energy),
        (-1, limits.FOLLOWS),
        "rank correlation of gate and energy",
        remedies.better_gate,
    )


def gate_and_support(subject: Subject) -> Finding | str:
    """Rank correlation of the mean gate with the distance to the training features; negative.

    The energy's gate falls with the energy by construction: it is judged there, and not twice.
    """
    if subject.gate is None:
        return _NO_GATE
    found = _follows(
        subject,
        "gate and support",
        (subject.gate.mean(dim=1), subject.distance),
        (-1, limits.FOLLOWS),
        "rank correlation of gate and distance to data",
        remedies.better_gate,
    )
    if subject.setting("gate") != "energy" or isinstance(found, str):
        return found
    return replace(found, healthy=True, remedy="", limit="")


def evidence_and_support(subject: Subject) -> Finding | str:
    """Rank correlation of Σπ_kα0_k with the distance to the training features; not positive.

    Evidence is asked for less than the energy: it may stay as it is away from the data.
    """
    if subject.belief.log_evidence is None:
        return "the method has no evidence"
    return _follows(
        subject,
        "evidence and support",
        (subject.belief.log_total_evidence(), subject.distance),
        (-1, -limits.FOLLOWS),
        "rank correlation of evidence and distance",
        remedies.less_evidence_outside,
    )


def _follows(
    subject: Subject,
    name: str,
    pair: tuple[Tensor, Tensor | None],
    wanted: tuple[Literal[1, -1], float],
    meaning: str,
    remedy: Remedy,
) -> Finding | str:
    """A rank correlation that, times the sign, should be at least the limit."""
    first, second = pair
    if second is None:
        return _NO_REFERENCE
    if len(first) < limits.FEWEST_INPUTS:
        return f"{len(first)} inputs, and a rank correlation needs {limits.FEWEST_INPUTS}"
    value = measures.rank_correlation(first, second)
    if math.isnan(value):
        return "one of the two is the same for all inputs"
    sign, limit = wanted
    healthy = sign * value >= limit
    words = "at least" if sign == 1 else "at most"
    text = "" if healthy else remedy(subject)
    return Finding(name, value, healthy, meaning, text, f"{words} {sign * limit:g}")


CHECKS: dict[str, Check] = {
    "zero evidence": zero_evidence,
    "confident errors": confident_errors,
    "heads used": heads_used,
    "router entropy": router_entropy,
    "router oscillation": router_oscillation,
    "head disagreement": head_disagreement,
    "head cosine": head_cosine,
    "heads differ": heads_differ,
    "gate saturation": gate_saturation,
    "energy saturation": energy_saturation,
    "energy and support": energy_and_support,
    "gate and energy": gate_and_energy,
    "gate and support": gate_and_support,
    "evidence and support": evidence_and_support,
    "temperature": temperature,
    "energy temperature": energy_temperature,
    "norm over bound": norm_over_bound,
    "head norm": head_norm,
    "backbone norm": backbone_norm,
}
"""Name of a finding -> its check, in the order in which they are told."""
