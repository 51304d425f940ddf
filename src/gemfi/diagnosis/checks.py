"""`diagnose`: a table of checks, each a measure with a limit and a remedy.

To add a check, write a measure and a row of `CHECKS`. A measure is a function of a `Subject` and of
the parts that the row needs; it returns the number with its meaning, or the reason why the number
does not apply. Shares lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor

from gemfi import dirichlet, losses
from gemfi.belief import Belief
from gemfi.data import Role, Split, require_role
from gemfi.detectors import knn_distance, observe
from gemfi.diagnosis import measures
from gemfi.diagnosis.health import Finding, Health
from gemfi.model import Model
from gemfi.outliers import NONE, OutlierConfig
from gemfi.spectral import SpectralLayer

NO_EVIDENCE: Final = 0.01
"""Evidence below this share of the prior's mass (C without a prior) is none: vacuity above 0.99."""
CONFIDENT: Final = 0.9
"""The confidence from which an error counts as confident: who reads 0.9 relies on it."""
FEWEST_ERRORS: Final = 10
"""Below this many errors, one input moves their share by more than ten points."""
FEWEST_EPOCHS: Final = 6
"""Their later half are three records: two moves, the fewest that can be there and back."""
GATE_EDGE: Final = 0.01
"""A learned gate within this share of its range from a bound has next to no slope left."""
GATE_CLOSED: Final = 0.01
"""An energy's gate below this leaves a hundredth of the evidence."""
ENERGY_EDGE: Final = 1e-4
"""σ(E) this close to a bound tells two energies apart no longer."""
FOLLOWS: Final = 0.2
"""Rank correlation from which one number follows another: 4 % of the variance of the ranks."""
FEWEST_INPUTS: Final = 20
"""Inputs of a rank correlation: with fewer, 0.45 and more comes about by chance."""
NEIGHBOURS: Final = 10
"""The neighbour whose distance measures support."""

_ITERATIONS = 100  # of the power iteration, which leaves a convolution's norm within 1 %


# -- what is diagnosed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A model, and what it says of the inputs of a split.

    Attributes:
        model: in evaluation mode or not; only its weights are looked at.
        belief: on the inputs, in float64, as `model.predict` returns it.
        labels: (N,) of the inputs.
        distance: (N,) to the training features; None without a reference.
        norms: layer -> the largest norm of its operators, and the bound where it is normalised.
        history: records of training, one for each epoch; None where they are not at hand.
    """

    model: Model
    belief: Belief
    labels: Tensor
    distance: Tensor | None
    norms: Mapping[str, tuple[float, float | None]]
    history: Sequence[Mapping[str, Any]] | None

    @property
    def components(self) -> int:
        """K."""
        return self.belief.log_p.shape[1]

    @cached_property
    def heads(self) -> measures.Heads | None:
        """How the components differ; None of one."""
        return None if self.components == 1 else measures.heads(self.belief)

    @property
    def energy(self) -> Tensor | None:
        """The learned energy (N,); None without one."""
        return self.belief.energy

    @property
    def gate(self) -> Tensor | None:
        """The gate (N, 1) or (N, C); None without one."""
        return None if self.belief.log_gate is None else self.belief.log_gate.exp()

    @property
    def gated_by_energy(self) -> bool:
        """Whether the gate follows from the energy and scales the evidence; others are learned."""
        return self.belief.log_gate is not None and self.belief.log_gate.shape[1] == 1

    @property
    def log_evidence(self) -> Tensor | None:
        """Log Σπ_kα0_k (N,), ρ left out; None without evidence."""
        return None if self.belief.log_evidence is None else self.belief.log_total_evidence()

    @property
    def wrong(self) -> Tensor:
        """(N,) whether the label is wrong."""
        label = self.belief.labels()
        return label != self.labels.to(label.device)

    def setting(self, name: str, default: Any = None) -> Any:
        """A field of the method's configuration, as the head uses it, or the default.

        A weight that the configuration leaves open follows from the number of classes.
        """
        chosen: dict[str, float] = getattr(self.model.head, "weights", {})
        return chosen.get(name, getattr(self.model.head.config, name, default))


def layer_norms(model: Model) -> dict[str, tuple[float, float | None]]:
    """Layer -> the largest norm of its operators in evaluation, and its bound or None."""
    return {
        name: (
            float(layer.norms(_ITERATIONS).max()),
            None if layer.spectral.kind == "off" else layer.spectral.bound,
        )
        for name, layer in model.named_modules()
        if isinstance(layer, SpectralLayer)
    }


# -- measures -------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A number, what it says in one sentence, and whether it is shown in percent."""

    value: float
    meaning: str
    unit: Literal["number", "share"] = "number"


def _share(flags: Tensor, meaning: str) -> Measured:
    """The share of inputs, or values, that are flagged."""
    return Measured(float(flags.to(torch.float64).mean()), meaning, "share")


def _zero_evidence(subject: Subject, log_total: Tensor) -> Measured:
    """Share of inputs with Σπ_kα0_k − W ≤ W/100, where W is the prior's mass.

    Without a prior it is Σπ_kα0_k ≤ C/100, or α within 1 % of one in every class, to which a KL
    pulls that kills all evidence. The energy's gate, a common factor of α, is left out too: where
    it is closed, that is `gate saturation`.
    """
    belief, mass = subject.belief, float(subject.belief.log_p.shape[-1])
    if belief.log_gate is not None and subject.gated_by_energy:
        log_total = log_total - belief.log_gate.squeeze(1)
    total = log_total.exp()
    if belief.log_prior is not None:
        none = total <= (1 + NO_EVIDENCE) * mass * belief.log_prior.exp()
        return _share(none, "inputs with α0 within 1 % of the prior's mass")
    flat = (belief.probs() * mass - 1).abs().amax(dim=-1) <= NO_EVIDENCE
    vacuous = flat & ((total / mass - 1).abs() <= NO_EVIDENCE)
    none = (total <= NO_EVIDENCE * mass) | vacuous
    return _share(none, "inputs with α0 at most 1 % of C, or with α = 1")


def _confident_errors(subject: Subject) -> Measured | str:
    """Share of errors with max p̂ ≥ 0.9."""
    count = int(subject.wrong.sum())
    if count == 0:
        return "no input is misclassified"
    confidence = subject.belief.probs().amax(dim=-1)[subject.wrong]
    meaning = f"of {count} error{'' if count == 1 else 's'}, those with confidence 0.9 or more"
    return _share(confidence >= CONFIDENT, meaning)


def _heads_used(subject: Subject, heads: measures.Heads) -> Measured:
    """Effective number of heads, exp of the entropy of the mean weights."""
    return Measured(heads.used, f"effective number of the {subject.components} heads in use")


def _router_entropy(subject: Subject, _heads: measures.Heads) -> Measured:
    """Mean H(π)/log K of an input: 0 is one head for each, 1 is all heads for each."""
    value = float(losses.mean_entropy(subject.belief.log_weight)) / math.log(subject.components)
    return Measured(value, "of an input's weights, as a share of log K")


def _router_oscillation(subject: Subject, _heads: measures.Heads) -> Measured | str:
    """Way there and back of the mean weights an epoch, over the later half of training.

    With moves of ½‖π̄_{t+1} − π̄_t‖₁, the sum of them less the move from first to last, over their
    number: a drift in one direction is none.
    """
    weights = [record["router"] for record in subject.history or () if "router" in record]
    if not weights:
        return "not recorded: it needs the history of training with validation data"
    if len(weights) < FEWEST_EPOCHS:
        return f"{len(weights)} epochs were recorded, and it needs {FEWEST_EPOCHS}"
    path = torch.tensor(weights[len(weights) // 2 :], dtype=torch.float64)
    way = path.diff(dim=0).abs().sum() / 2
    net = (path[-1] - path[0]).abs().sum() / 2
    value = max(0.0, float(way - net) / (len(path) - 1))  # rounding can leave −1e-17
    return Measured(value, "weight that goes there and back an epoch", "share")


def _head_disagreement(subject: Subject, _heads: measures.Heads) -> Measured | str:
    """JSD/H of the heads' plain mean: the part of its entropy that is disagreement.

    A cosine near 1 says nothing where all heads are right and sure; this is free of that scale. The
    weights are left out, so that a router that uses one head does not make the others look alike.
    """
    log_p = subject.belief.log_p
    equal = torch.full_like(subject.belief.log_weight, -math.log(subject.components))
    entropy = float(losses.mean_entropy(dirichlet.log_mixture(log_p, equal)))
    if entropy == 0:
        return "every head is wholly certain"
    value = float(dirichlet.disagreement(log_p, equal).mean()) / entropy
    return Measured(value, "part of the entropy that is disagreement", "share")


def _head_cosine(_subject: Subject, heads: measures.Heads) -> Measured:
    return Measured(heads.cosine, "mean cosine of two heads' predictions")


def _heads_differ(_subject: Subject, heads: measures.Heads) -> Measured:
    return Measured(heads.differ, "inputs on which the heads' classes differ", "share")


def _gate_saturation(subject: Subject, gate: Tensor) -> Measured:
    """Share of gate values within 1 % of its range from a bound; of the energy's gate, below 0.01.

    The energy's gate has no lower bound that it could not reach on purpose, and it should be near
    1 on ID data.
    """
    if subject.gated_by_energy:
        return _share(gate < GATE_CLOSED, "ID inputs with a gate below 0.01")
    low, high = subject.setting("gate_low", 0.0), subject.setting("gate_high", 1.0)
    edge = GATE_EDGE * (high - low)
    flat = (gate <= low + edge) | (gate >= high - edge)
    return _share(flat, f"gate values within 1 % of the bounds {low:g}, {high:g}")


def _energy_saturation(_subject: Subject, energy: Tensor) -> Measured:
    """Share of energies with σ(E) within 1e-4 of 0 or 1."""
    flat = torch.sigmoid(-energy.abs()) <= ENERGY_EDGE
    return _share(flat, "inputs with σ(E) within 1e-4 of 0 or 1")


def _correlation(meaning: str, _subject: Subject, first: Tensor, second: Tensor) -> Measured | str:
    """Rank correlation of two numbers of each input; of a gate, of its mean over the classes."""
    if len(first) < FEWEST_INPUTS:
        return f"{len(first)} inputs, and a rank correlation needs {FEWEST_INPUTS}"
    first = first.mean(dim=1) if first.ndim == 2 else first
    value = measures.rank_correlation(first, second)
    if math.isnan(value):
        return "one of the two is the same for all inputs"
    return Measured(value, meaning)


def _temperature(subject: Subject) -> Measured | str:
    """T of u = h(z)/T."""
    log_temperature: Tensor | None = getattr(subject.model.head, "log_temperature", None)
    if log_temperature is None:
        return "the head has no temperature"
    return Measured(math.exp(float(log_temperature.detach())), "divides the logits")


def _energy_temperature(subject: Subject) -> Measured | str:
    """The learned temperature of the energy."""
    log_temperature: Tensor | None = getattr(subject.model.head, "log_energy_temperature", None)
    if log_temperature is None:
        return "the head has no energy temperature"
    return Measured(math.exp(float(log_temperature.detach())), "divides the energy")


def _norm_over_bound(subject: Subject) -> Measured | str:
    """Largest norm of a normalised layer over its bound."""
    ratios = {
        name: norm / bound for name, (norm, bound) in subject.norms.items() if bound is not None
    }
    if not ratios:
        return "no layer is spectrally normalised"
    name = max(ratios, key=lambda layer: ratios[layer])
    norm, bound = subject.norms[name]
    return Measured(ratios[name], f"largest: {name} has {norm:.2f}, bound {bound:g}")


def _head_norm(subject: Subject) -> Measured | str:
    """Largest norm of a layer of the head that is not normalised."""
    return _free_norm(subject, "head.") or "the head has no layer that is not normalised"


def _backbone_norm(subject: Subject) -> Measured | str:
    """The same below the head; it has no limit, as batch norm rescales what follows."""
    none = "the backbone has no layer of this library that is not normalised"
    return _free_norm(subject, "backbone.") or none


def _free_norm(subject: Subject, prefix: str) -> Measured | None:
    norms = {
        name: norm
        for name, (norm, bound) in subject.norms.items()
        if bound is None and name.startswith(prefix)
    }
    if not norms:
        return None
    name = max(norms, key=lambda layer: norms[layer])
    return Measured(norms[name], f"largest: {name}")


# -- remedies: settings to change that the model at hand really has -------------------------------


def _either(*remedies: str) -> str:
    """Some remedies of which the empty ones do not apply."""
    return ", or ".join(filter(None, remedies))


def _changed(subject: Subject, name: str, direction: str) -> str:
    """Such as `kl_weight above 0.1`; empty if the method has no such setting."""
    value = subject.setting(name)
    return "" if value is None else f"{name} {direction} {value:g}"


def _set(subject: Subject, setting: str) -> str:
    """Such as `sn=true`; empty if the method has no such setting, or has that value already."""
    name, _, value = setting.partition("=")
    now = subject.setting(name, value)
    return "" if str(now).lower() == value else setting


def _more_evidence(subject: Subject) -> str:
    evidence = subject.setting("evidence")
    dying = evidence in ("relu", "softplus")
    return _either(
        f"evidence=exp (now {evidence}, whose units can die)" if dying else "",
        _changed(subject, "kl_weight", "below") if subject.setting("kl_weight") else "",
        "more epochs",
        "normalised inputs",
    )


def _fewer_confident_errors(subject: Subject) -> str:
    stronger = _changed(subject, "kl_weight", "above")
    return _either(stronger, "augmentation", "more weight_decay", "select=best")


def _more_heads(subject: Subject) -> str:
    weight = subject.setting("pi_entropy")
    if weight is None:
        return "fewer components: the others are not used"
    return "pi_entropy=0.1" if weight == 0 else f"pi_entropy above {weight:g}"


def _other_heads(subject: Subject) -> str:
    fewer = _set(subject, "num_components=1")
    if not fewer:
        return "fewer components, or members that are trained apart"
    return _either(_set(subject, "sizes=paper"), _changed(subject, "dropout", "above"), fewer)


def _calmer_training(subject: Subject) -> str:
    entropy = _changed(subject, "pi_entropy", "above")
    return _either("a smaller learning_rate", "a larger batch_size", entropy)


def _freer_gate(subject: Subject) -> str:
    if subject.gated_by_energy:
        return _either(
            _changed(subject, "ebm_weight", "above"), "train with validation data like these"
        )
    if subject.setting("gate_bound") == "clamp":
        return "gate_bound=sigmoid (a clamp has no gradient at its bounds)"
    return _either("gate=energy", _set(subject, "sn=true"))


def _flatter_energy(subject: Subject) -> str:
    return _either(
        _set(subject, "ebm_clip=5.0"),
        _set(subject, "sn=true"),
        _changed(subject, "dropout", "above"),
        "more weight_decay",
    )


def _better_energy(subject: Subject) -> str:
    if subject.setting("ebm_weight") == 0:
        return "ebm_weight=0.03: without it the energy learns nothing"
    outliers: OutlierConfig = subject.setting("outliers", NONE)
    if outliers.kind != "halo":
        return f"outliers.kind=halo (now {outliers.kind})"
    return "more epochs, or a larger learning_rate"


def _better_gate(subject: Subject) -> str:
    if subject.gated_by_energy:
        return _better_energy(subject)
    return "gate=energy, which closes as the energy rises"


def _less_evidence_outside(subject: Subject) -> str:
    outliers: OutlierConfig | None = subject.setting("outliers")
    if outliers is None:
        return "a method with a term on outliers, such as gem-fi"
    if outliers.kind != "halo":
        return f"outliers.kind=halo (now {outliers.kind})"
    return _either(_set(subject, "gate=energy"), "more epochs", "kl_weight above 0")


def _smaller_norm(subject: Subject) -> str:
    return _either(_set(subject, "sn=true"), "more weight_decay")


def _slower_energy(subject: Subject) -> str:
    return _either("a smaller learning_rate", _set(subject, "energy_scaled=false"))


# -- the table ------------------------------------------------------------------------------------

Need = Literal["log_evidence", "heads", "gate", "energy", "distance"]
Limit = float | Callable[[Subject], float | None] | None

_ABSENT: Final[Mapping[Need, str]] = {
    "log_evidence": "the method has no evidence",
    "heads": "one component",
    "gate": "the method has no gate",
    "energy": "the method has no learned energy",
    "distance": "no reference given: it needs a split of training data",
}
"""What a check needs of the subject -> why it is skipped where that is absent."""


@dataclass(frozen=True)
class Check:
    """One row of the table: a number of a model, and what is asked of it.

    Attributes:
        name: of the finding.
        measure: called with the subject and the parts that it needs.
        needs: attributes of `Subject` that must not be None.
        least: the number should be at least this, or what this function of the subject returns;
            None for no such limit.
        most: the number should be at most this, likewise.
        remedy: which settings to change otherwise, or a function of the subject that says so.
    """

    name: str
    measure: Callable[..., Measured | str]
    needs: tuple[Need, ...] = ()
    least: Limit = None
    most: Limit = None
    remedy: str | Callable[[Subject], str] = ""

    def __call__(self, subject: Subject) -> Finding | str:
        """The finding, or the reason why the number does not apply."""
        parts = {need: getattr(subject, need) for need in self.needs}
        for need, part in parts.items():
            if part is None:
                return _ABSENT[need]
        measured = self.measure(subject, *parts.values())
        if isinstance(measured, str):
            return measured
        value, meaning, unit = measured
        least, most = (
            limit(subject) if callable(limit) else limit for limit in (self.least, self.most)
        )
        low = -math.inf if least is None else least
        high = math.inf if most is None else most
        healthy, remedy = low <= value <= high, self.remedy
        if healthy:
            remedy = ""
        elif callable(remedy):
            remedy = remedy(subject)
        return Finding(self.name, value, healthy, meaning, remedy, _range(low, high, unit), unit)


def _range(low: float, high: float, unit: str) -> str:
    """The limits of a finding in words; empty without any."""
    if math.isfinite(low) and math.isfinite(high):
        return f"{low:g} to {high:g}"
    words, limit = ("at most", high) if math.isfinite(high) else ("at least", low)
    if math.isinf(limit):
        return ""
    return f"{words} {100 * limit:g} %" if unit == "share" else f"{words} {limit:g}"


_TABLE: Final = (
    # A twentieth may well be odd inputs; more are a dead region.
    Check("zero evidence", _zero_evidence, ("log_evidence",), most=0.05, remedy=_more_evidence),
    # From a quarter on, no threshold on confidence would catch them.
    Check(
        "confident errors",
        _confident_errors,
        most=lambda subject: 0.25 if int(subject.wrong.sum()) >= FEWEST_ERRORS else None,
        remedy=_fewer_confident_errors,
    ),
    # A quarter of the heads beyond the first: with three heads, 1.5 of them.
    Check(
        "heads used",
        _heads_used,
        ("heads",),
        least=lambda subject: 1 + 0.25 * (subject.components - 1),
        remedy=_more_heads,
    ),
    Check("router entropy", _router_entropy, ("heads",)),
    # A twentieth of the weight that moves there and back is no settling.
    Check(
        "router oscillation",
        _router_oscillation,
        ("heads",),
        most=0.05,
        remedy=_calmer_training,
    ),
    # Below a five-hundredth the heads say one and the same.
    Check("head disagreement", _head_disagreement, ("heads",), 0.002, remedy=_other_heads),
    Check("head cosine", _head_cosine, ("heads",)),
    Check("heads differ", _heads_differ, ("heads",)),
    # The energy's gate: on the data that set it, a twentieth is below a half, no more. A learned
    # gate: from half of the values on, it is a switch and not a gate.
    Check(
        "gate saturation",
        _gate_saturation,
        ("gate",),
        most=lambda subject: 0.05 if subject.gated_by_energy else 0.5,
        remedy=_freer_gate,
    ),
    # From half on, the router and the gate see a constant.
    Check("energy saturation", _energy_saturation, ("energy",), most=0.5, remedy=_flatter_energy),
    # Among familiar inputs distances hardly differ, and an energy that tells unfamiliar ones apart
    # with an AUROC of 99 has 0.1 to 0.3 there. Below zero it has learnt nothing.
    Check(
        "energy and support",
        partial(_correlation, "rank correlation of energy and distance to data"),
        ("energy", "distance"),
        least=0.0,
        remedy=_better_energy,
    ),
    Check(
        "gate and energy",
        partial(_correlation, "rank correlation of gate and energy"),
        ("gate", "energy"),
        most=-FOLLOWS,
        remedy=_better_gate,
    ),
    # The energy's gate falls with the energy by construction: it is judged there, and not twice.
    Check(
        "gate and support",
        partial(_correlation, "rank correlation of gate and distance to data"),
        ("gate", "distance"),
        most=lambda subject: None if subject.gated_by_energy else -FOLLOWS,
        remedy=_better_gate,
    ),
    # Less is asked than of the energy: evidence may stay as it is away from the data.
    Check(
        "evidence and support",
        partial(_correlation, "rank correlation of evidence and distance"),
        ("log_evidence", "distance"),
        most=FOLLOWS,
        remedy=_less_evidence_outside,
    ),
    # Outside these, logits are all at their clip, or all alike, whatever the features say.
    Check("temperature", _temperature, least=0.01, most=10.0, remedy="a smaller learning_rate"),
    Check(
        "energy temperature",
        _energy_temperature,
        least=0.01,
        most=10.0,
        remedy=_slower_energy,
    ),
    # Power iteration leaves a few percent.
    Check(
        "norm over bound",
        _norm_over_bound,
        most=1.05,
        remedy="spectral.refresh(model): the weights moved since the last one",
    ),
    # Features a tenth apart may differ by a whole logit above this.
    Check("head norm", _head_norm, most=10.0, remedy=_smaller_norm),
    Check("backbone norm", _backbone_norm),
)

CHECKS: Final[Mapping[str, Check]] = {check.name: check for check in _TABLE}
"""Name of a finding -> its check, in the order in which they are reported."""


def diagnose(
    model: Model,
    split: Split,
    reference: Split | None = None,
    *,
    history: Sequence[Mapping[str, Any]] | None = None,
) -> Health:
    """Measure a trained model on ID data, and say what is wrong with it and what to do.

    Evidence, errors, heads, router, gate, energy, spectral norms and temperatures are each held to
    a limit (`CHECKS`); what a method does not have is listed with the reason.

        >>> print(diagnose(model, task.validation, task.train))

    Args:
        model: a trained model; it is not changed.
        split: an ID split of role validation or test.
        reference: role train; the distance to its features is what support means here.
        history: of training, as `FitResult.history` has it, for the router's oscillation.
    """
    require_role(split, (Role.VALIDATION, Role.TEST), "a diagnosis as ID data")
    if reference is not None:
        require_role(reference, (Role.TRAIN,), "a diagnosis as reference")
    observed, distance = observe(model, split), None
    if reference is not None:
        known = model.embed(reference)
        distance = knn_distance(observed.features, known, min(NEIGHBOURS, len(known))).to(
            torch.float64
        )
    norms = layer_norms(model)
    subject = Subject(model, observed.belief, split.labels, distance, norms, history)
    results = {name: check(subject) for name, check in CHECKS.items()}
    return Health(
        method=model.head.info.name,
        split=split.name,
        n=len(split),
        findings=tuple(result for result in results.values() if isinstance(result, Finding)),
        skipped={name: result for name, result in results.items() if isinstance(result, str)},
        spectral_norms={name: norm for name, (norm, _) in norms.items()},
    )
