"""`diagnose`: checks of a model, each a measure with a limit and a remedy.

To add one, write a measure with `@check`: a function of a `Subject` that returns a number with its
meaning, or raises `NotApplicable` with the reason. Shares lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from gemfi import dirichlet, losses
from gemfi.belief import Belief
from gemfi.data import AnySplit, Role, require_role
from gemfi.detectors import knn_distance, observe
from gemfi.diagnosis import measures
from gemfi.diagnosis.health import Finding, Health
from gemfi.model import Model
from gemfi.outliers import NONE, OutlierConfig
from gemfi.spectral import SpectralLayer

T = TypeVar("T")

NO_EVIDENCE: Final = 0.01  # of the prior's mass (C without one): vacuity above 0.99
CONFIDENT: Final = 0.9  # who reads 0.9 relies on it
FEWEST_ERRORS: Final = 10  # of fewer, one input moves a share by more than ten points
FEWEST_EPOCHS: Final = 6  # whose later half is two moves, the fewest that can be there and back
GATE_EDGE: Final = 0.01  # of its range: so near a bound, a learned gate has next to no slope left
GATE_CLOSED: Final = 0.01  # an energy's gate that leaves a hundredth of the evidence
ENERGY_EDGE: Final = 1e-4  # so close to a bound, σ(E) tells two energies apart no longer
FOLLOWS: Final = 0.2  # rank correlation from which one number follows another: 4 % of the variance
FEWEST_INPUTS: Final = 20  # of a rank correlation: with fewer, 0.45 and more comes about by chance
NEIGHBOURS: Final = 10  # the neighbour whose distance measures support
_ITERATIONS = 100  # of the power iteration, which leaves a convolution's norm within 1 %


# -- what is diagnosed ----------------------------------------------------------------------------


class NotApplicable(Exception):  # noqa: N818 - an answer, and no error
    """Why a number does not apply to a model."""


def _given(value: T | None, otherwise: str) -> T:
    if value is None:
        raise NotApplicable(otherwise)
    return value


@dataclass(frozen=True)
class Subject:
    """A model, and what it says of N inputs. Properties that the model lacks are not applicable."""

    model: Model  # only its weights are looked at
    belief: Belief  # in float64, as `model.predict` returns it
    labels: Tensor  # (N,)
    distances: Tensor | None  # (N,) to the training features; None without a reference
    norms: Mapping[str, tuple[float, float | None]]  # layer -> its largest norm, and its bound
    history: Sequence[Mapping[str, Any]] | None  # of training, a record an epoch

    @property
    def components(self) -> int:
        """K, if there are several."""
        count = self.belief.log_p.shape[1]
        return _given(None if count == 1 else count, "one component")

    @cached_property
    def heads(self) -> measures.Heads:
        """How the components differ."""
        _ = self.components  # there must be several
        return measures.heads(self.belief)

    @property
    def distance(self) -> Tensor:
        """(N,) to the training features."""
        return _given(self.distances, "no reference given: it needs a split of training data")

    @property
    def energy(self) -> Tensor:
        """The learned energy (N,)."""
        return _given(self.belief.energy, "the method has no learned energy")

    @property
    def gate(self) -> Tensor:
        """The gate (N, 1) or (N, C)."""
        return _given(self.belief.log_gate, "the method has no gate").exp()

    @property
    def gated_by_energy(self) -> bool:
        """Whether the gate follows from the energy and scales the evidence; others are learned."""
        return self.belief.log_gate is not None and self.belief.log_gate.shape[1] == 1

    @property
    def log_evidence(self) -> Tensor:
        """Log Σπ_kα0_k (N,), ρ left out."""
        _given(self.belief.log_evidence, "the method has no evidence")
        return self.belief.log_total_evidence()

    @property
    def wrong(self) -> Tensor:
        """(N,) whether the label is wrong."""
        label = self.belief.labels()
        return label != self.labels.to(label.device)

    def learned(self, name: str) -> float | None:
        """A scalar parameter of the head; None without it."""
        value: Tensor | None = getattr(self.model.head, name, None)
        return None if value is None else float(value.detach())

    def setting(self, name: str, default: Any = None) -> Any:
        """A field of the method's configuration, as the head uses it, or the default.

        A weight that the configuration leaves open follows from the number of classes.
        """
        chosen: dict[str, float] = getattr(self.model.head, "weights", {})
        return chosen.get(name, getattr(self.model.head.config, name, default))


# -- remedies: options that are said if the model at hand has them --------------------------------

Options = tuple[str, ...]
"""Texts, among them settings `name=value`, and `name above` or `name below` of a number.

A setting is said if the method has it with another value, and a number if there is room below.
"""


def _remedy(subject: Subject, options: Options) -> str:
    return ", or ".join(filter(None, (_option(subject, option) for option in options)))


def _option(subject: Subject, option: str) -> str:
    name, _, value = option.partition("=")
    if value and name.isidentifier():
        return "" if str(subject.setting(name, value)).lower() == value else option
    name, _, direction = option.rpartition(" ")
    if direction not in ("above", "below"):
        return option
    now = subject.setting(name)
    return "" if now is None or (direction == "below" and now == 0) else f"{option} {now:g}"


def _more_evidence(subject: Subject) -> Options:
    evidence = subject.setting("evidence")
    options = ("kl_weight below", "more epochs", "normalised inputs")
    if evidence in ("relu", "softplus"):
        return (f"evidence=exp (now {evidence}, whose units can die)", *options)
    return options


def _more_heads(subject: Subject) -> Options:
    weight = subject.setting("pi_entropy")
    if weight is None:
        return ("fewer components: the others are not used",)
    return ("pi_entropy=0.1",) if weight == 0 else ("pi_entropy above",)


def _other_heads(subject: Subject) -> Options:
    if subject.setting("num_components") is None:
        return ("fewer components", "members that are trained apart")
    return ("sizes=paper", "dropout above", "num_components=1")


def _freer_gate(subject: Subject) -> Options:
    if subject.gated_by_energy:
        return ("ebm_weight above", "train with validation data like these")
    if subject.setting("gate_bound") == "clamp":
        return ("gate_bound=sigmoid (a clamp has no gradient at its bounds)",)
    return ("gate=energy", "sn=true")


def _better_energy(subject: Subject) -> Options:
    outliers: OutlierConfig = subject.setting("outliers", NONE)
    if subject.setting("ebm_weight") == 0:
        return ("ebm_weight=0.03: without it the energy learns nothing",)
    if outliers.kind != "halo":
        return (f"outliers.kind=halo (now {outliers.kind})",)
    return ("more epochs", "a larger learning_rate")


def _better_gate(subject: Subject) -> Options:
    if subject.gated_by_energy:
        return _better_energy(subject)
    return ("gate=energy, which closes as the energy rises",)


def _less_evidence_outside(subject: Subject) -> Options:
    outliers: OutlierConfig | None = subject.setting("outliers")
    if outliers is None:
        return ("a method with a term on outliers, such as gem-fi",)
    if outliers.kind != "halo":
        return (f"outliers.kind=halo (now {outliers.kind})",)
    return ("gate=energy", "more epochs", "kl_weight above 0")


# -- checks ---------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A number, what it says in one sentence, and whether it is shown in percent."""

    value: float
    meaning: str
    unit: Literal["number", "share"] = "number"


Measure = Callable[[Subject], Measured]
Limit = float | Callable[[Subject], float | None] | None


@dataclass(frozen=True)
class Check:
    """A number of a model, and what is asked of it."""

    name: str  # of the finding
    measure: Measure
    least: Limit = None  # what it should be at least; None for no such limit
    most: Limit = None
    remedy: Options | Callable[[Subject], Options] = ()

    def __call__(self, subject: Subject) -> Finding | str:
        """The finding, or the reason why the number does not apply."""
        try:
            value, meaning, unit = self.measure(subject)
        except NotApplicable as reason:
            return str(reason)
        least, most = (
            limit(subject) if callable(limit) else limit for limit in (self.least, self.most)
        )
        low = -math.inf if least is None else least
        high = math.inf if most is None else most
        healthy = low <= value <= high
        options = self.remedy(subject) if callable(self.remedy) else self.remedy
        remedy = "" if healthy else _remedy(subject, options)
        return Finding(self.name, value, healthy, meaning, remedy, _range(low, high, unit), unit)


def _range(low: float, high: float, unit: str) -> str:
    """The limits of a finding in words; empty without any."""
    if math.isfinite(low) and math.isfinite(high):
        return f"{low:g} to {high:g}"
    words, limit = ("at most", high) if math.isfinite(high) else ("at least", low)
    if math.isinf(limit):
        return ""
    return f"{words} {100 * limit:g} %" if unit == "share" else f"{words} {limit:g}"


CHECKS: Final[dict[str, Check]] = {}
"""Name of a finding -> its check, in the order in which they are reported."""


def check(name: str, **asked: Any) -> Callable[[Measure], Measure]:
    """Make a check of a measure; `asked` are fields of `Check`."""

    def register(measure: Measure) -> Measure:
        CHECKS[name] = Check(name, measure, **asked)
        return measure

    return register


def _share(flags: Tensor, meaning: str) -> Measured:
    """The share of inputs, or values, that are flagged."""
    return Measured(float(flags.to(torch.float64).mean()), meaning, "share")


# A twentieth may well be odd inputs; more are a dead region.
@check("zero evidence", most=0.05, remedy=_more_evidence)
def _zero_evidence(subject: Subject) -> Measured:
    """Share of inputs with Σπ_kα0_k − W ≤ W/100, where W is the prior's mass.

    Without a prior it is Σπ_kα0_k ≤ C/100, or α within 1 % of one in every class, to which a KL
    pulls that kills all evidence. The energy's gate, a common factor of α, is left out: where it is
    closed, that is `gate saturation`.
    """
    log_total, belief = subject.log_evidence, subject.belief
    mass = float(belief.log_p.shape[-1])
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


# From a quarter on, no threshold on confidence would catch them.
@check(
    "confident errors",
    most=lambda subject: 0.25 if int(subject.wrong.sum()) >= FEWEST_ERRORS else None,
    remedy=("kl_weight above", "augmentation", "more weight_decay", "the best epoch (select=best)"),
)
def _confident_errors(subject: Subject) -> Measured:
    """Share of errors with max p̂ ≥ 0.9."""
    count = int(subject.wrong.sum())
    if count == 0:
        raise NotApplicable("no input is misclassified")
    confidence = subject.belief.probs().amax(dim=-1)[subject.wrong]
    meaning = f"of {count} error{'' if count == 1 else 's'}, those with confidence 0.9 or more"
    return _share(confidence >= CONFIDENT, meaning)


# A quarter of the heads beyond the first: with three heads, 1.5 of them.
@check("heads used", least=lambda subject: 0.75 + 0.25 * subject.components, remedy=_more_heads)
def _heads_used(subject: Subject) -> Measured:
    """Effective number of heads, exp of the entropy of the mean weights."""
    words = f"effective number of the {subject.components} heads in use"
    return Measured(subject.heads.used, words)


@check("router entropy")
def _router_entropy(subject: Subject) -> Measured:
    """Mean H(π)/log K of an input: 0 is one head for each, 1 is all heads for each."""
    value = float(losses.mean_entropy(subject.belief.log_weight)) / math.log(subject.components)
    return Measured(value, "of an input's weights, as a share of log K")


# A twentieth of the weight that moves there and back is no settling.
@check(
    "router oscillation",
    most=0.05,
    remedy=("a smaller learning_rate", "a larger batch_size", "pi_entropy above"),
)
def _router_oscillation(subject: Subject) -> Measured:
    """Way there and back of the mean weights an epoch, over the later half of training.

    With moves of ½‖π̄_{t+1} − π̄_t‖₁, the sum of them less the move from first to last, over their
    number: a drift in one direction is none.
    """
    count = subject.components
    weights = [record["router"] for record in subject.history or () if "router" in record]
    if not weights:
        raise NotApplicable("not recorded: it needs the history of training with validation data")
    if len(weights) < FEWEST_EPOCHS:
        raise NotApplicable(f"{len(weights)} epochs were recorded, and it needs {FEWEST_EPOCHS}")
    path = torch.tensor(weights[len(weights) // 2 :], dtype=torch.float64).reshape(-1, count)
    way = path.diff(dim=0).abs().sum() / 2
    net = (path[-1] - path[0]).abs().sum() / 2
    value = max(0.0, float(way - net) / (len(path) - 1))  # rounding can leave −1e-17
    return Measured(value, "weight that goes there and back an epoch", "share")


# Below a five-hundredth the heads say one and the same.
@check("head disagreement", least=0.002, remedy=_other_heads)
def _head_disagreement(subject: Subject) -> Measured:
    """JSD/H of the heads' plain mean: the part of its entropy that is disagreement.

    A cosine near 1 says nothing where all heads are right and sure; this is free of that scale. The
    weights are left out, so that a router that uses one head does not make the others look alike.
    """
    log_p = subject.belief.log_p
    equal = torch.full_like(subject.belief.log_weight, -math.log(subject.components))
    entropy = float(losses.mean_entropy(dirichlet.log_mixture(log_p, equal)))
    if entropy == 0:
        raise NotApplicable("every head is wholly certain")
    value = float(dirichlet.disagreement(log_p, equal).mean()) / entropy
    return Measured(value, "part of the entropy that is disagreement", "share")


@check("head cosine")
def _head_cosine(subject: Subject) -> Measured:
    return Measured(subject.heads.cosine, "mean cosine of two heads' predictions")


@check("heads differ")
def _heads_differ(subject: Subject) -> Measured:
    return Measured(subject.heads.differ, "inputs on which the heads' classes differ", "share")


# The energy's gate: on the data that set it, a twentieth is below a half, no more. A learned gate:
# from half of the values on, it is a switch and not a gate.
@check(
    "gate saturation",
    most=lambda subject: 0.05 if subject.gated_by_energy else 0.5,
    remedy=_freer_gate,
)
def _gate_saturation(subject: Subject) -> Measured:
    """Share of gate values within 1 % of its range from a bound; of the energy's gate, below 0.01.

    The energy's gate has no lower bound that it could not reach on purpose, and it should be near
    1 on ID data.
    """
    gate = subject.gate
    if subject.gated_by_energy:
        return _share(gate < GATE_CLOSED, "ID inputs with a gate below 0.01")
    low, high = subject.setting("gate_low", 0.0), subject.setting("gate_high", 1.0)
    edge = GATE_EDGE * (high - low)
    flat = (gate <= low + edge) | (gate >= high - edge)
    return _share(flat, f"gate values within 1 % of the bounds {low:g}, {high:g}")


# From half on, the router and the gate see a constant.
@check(
    "energy saturation",
    most=0.5,
    remedy=("ebm_clip=5.0", "sn=true", "dropout above", "more weight_decay"),
)
def _energy_saturation(subject: Subject) -> Measured:
    """Share of energies with σ(E) within 1e-4 of 0 or 1."""
    flat = torch.sigmoid(-subject.energy.abs()) <= ENERGY_EDGE
    return _share(flat, "inputs with σ(E) within 1e-4 of 0 or 1")


def _correlation(first: Tensor, second: Tensor, meaning: str) -> Measured:
    """Rank correlation of two numbers of each input; of a gate, of its mean over the classes."""
    if len(first) < FEWEST_INPUTS:
        raise NotApplicable(f"{len(first)} inputs, and a rank correlation needs {FEWEST_INPUTS}")
    first = first.mean(dim=1) if first.ndim == 2 else first
    value = measures.rank_correlation(first, second)
    if math.isnan(value):
        raise NotApplicable("one of the two is the same for all inputs")
    return Measured(value, f"rank correlation of {meaning}")


# Among familiar inputs distances hardly differ, and an energy that tells unfamiliar ones apart with
# an AUROC of 99 has 0.1 to 0.3 there. Below zero it has learnt nothing.
@check("energy and support", least=0.0, remedy=_better_energy)
def _energy_and_support(subject: Subject) -> Measured:
    return _correlation(subject.energy, subject.distance, "energy and distance to data")


@check("gate and energy", most=-FOLLOWS, remedy=_better_gate)
def _gate_and_energy(subject: Subject) -> Measured:
    return _correlation(subject.gate, subject.energy, "gate and energy")


# The energy's gate falls with the energy by construction: it is judged there, and not twice.
@check(
    "gate and support",
    most=lambda subject: None if subject.gated_by_energy else -FOLLOWS,
    remedy=_better_gate,
)
def _gate_and_support(subject: Subject) -> Measured:
    return _correlation(subject.gate, subject.distance, "gate and distance to data")


# Less is asked than of the energy: evidence may stay as it is away from the data.
@check("evidence and support", most=FOLLOWS, remedy=_less_evidence_outside)
def _evidence_and_support(subject: Subject) -> Measured:
    return _correlation(subject.log_evidence, subject.distance, "evidence and distance")


# Outside these, logits are all at their clip, or all alike, whatever the features say.
@check("temperature", least=0.01, most=10.0, remedy=("a smaller learning_rate",))
def _temperature(subject: Subject) -> Measured:
    value = _given(subject.learned("log_temperature"), "the head has no temperature")
    return Measured(math.exp(value), "divides the logits")


@check(
    "energy temperature",
    least=0.01,
    most=10.0,
    remedy=("a smaller learning_rate", "energy_scaled=false"),
)
def _energy_temperature(subject: Subject) -> Measured:
    value = _given(subject.learned("log_energy_temperature"), "the head has no energy temperature")
    return Measured(math.exp(value), "divides the energy")


# Power iteration leaves a few percent.
@check(
    "norm over bound",
    most=1.05,
    remedy=("spectral.refresh(model): the weights moved since the last one",),
)
def _norm_over_bound(subject: Subject) -> Measured:
    """Largest norm of a normalised layer over its bound."""
    ratios = {
        name: norm / bound for name, (norm, bound) in subject.norms.items() if bound is not None
    }
    if not ratios:
        raise NotApplicable("no layer is spectrally normalised")
    name = max(ratios, key=lambda layer: ratios[layer])
    norm, bound = subject.norms[name]
    return Measured(ratios[name], f"largest: {name} has {norm:.2f}, bound {bound:g}")


def _free_norm(subject: Subject, part: str, layer: str) -> Measured:
    """Largest norm of a layer that is not normalised."""
    norms = {
        name: norm
        for name, (norm, bound) in subject.norms.items()
        if bound is None and name.startswith(f"{part}.")
    }
    if not norms:
        raise NotApplicable(f"the {part} has no {layer} that is not normalised")
    name = max(norms, key=lambda name: norms[name])
    return Measured(norms[name], f"largest: {name}")


# Features a tenth apart may differ by a whole logit above this.
@check("head norm", most=10.0, remedy=("sn=true", "more weight_decay"))
def _head_norm(subject: Subject) -> Measured:
    return _free_norm(subject, "head", "layer")


@check("backbone norm")
def _backbone_norm(subject: Subject) -> Measured:
    """No limit: batch norm rescales what follows."""
    return _free_norm(subject, "backbone", "layer of this library")


def diagnose(
    model: Model,
    split: AnySplit,
    reference: AnySplit | None = None,
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
    observed, distances = observe(model, split), None
    if reference is not None:
        known = model.embed(reference)
        neighbour = min(NEIGHBOURS, len(known))
        distances = knn_distance(observed.features, known, neighbour).to(torch.float64)
    norms = {
        name: (
            float(layer.norms(_ITERATIONS).max()),
            None if layer.spectral.kind == "off" else layer.spectral.bound,
        )
        for name, layer in model.named_modules()
        if isinstance(layer, SpectralLayer)
    }
    subject = Subject(model, observed.belief, observed.labels, distances, norms, history)
    results = {name: check(subject) for name, check in CHECKS.items()}
    return Health(
        method=model.head.info.name,
        split=split.name,
        n=len(observed),
        findings=tuple(result for result in results.values() if isinstance(result, Finding)),
        skipped={name: result for name, result in results.items() if isinstance(result, str)},
        spectral_norms={name: norm for name, (norm, _) in norms.items()},
    )
