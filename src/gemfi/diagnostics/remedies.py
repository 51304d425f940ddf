"""What to change when a finding is a warning, in settings that the model at hand really has."""

from __future__ import annotations

from collections.abc import Callable

from gemfi.diagnostics.subject import Subject
from gemfi.outliers import NONE, OutlierConfig

Remedy = Callable[[Subject], str]


def more_evidence(subject: Subject) -> str:
    """Against inputs without evidence."""
    found = []
    if subject.setting("evidence") in ("relu", "softplus"):
        found.append(f"evidence=exp (now {subject.setting('evidence')}, whose units can die)")
    if subject.setting("kl_weight"):
        found.append(f"kl_weight below {subject.setting('kl_weight'):g}")
    return _either(*found, "more epochs", "normalised inputs")


def fewer_confident_errors(subject: Subject) -> str:
    """Against confidence lock-in."""
    found = []
    if subject.setting("kl_weight") is not None:
        found.append(f"kl_weight above {subject.setting('kl_weight'):g}")
    return _either(*found, "augmentation", "more weight_decay", "select=best")


def more_heads(subject: Subject) -> str:
    """Against the collapse of the router."""
    weight = subject.setting("pi_entropy")
    if weight is None:
        return "fewer components: the others are not used"
    if weight == 0:
        return "pi_entropy=0.1"
    return _either(f"pi_entropy above {weight:g}", "pi_balance=0.1")


def other_heads(subject: Subject) -> str:
    """Against heads that are all alike."""
    if subject.setting("repulsion") is None:
        return "fewer components, or members that are trained apart"
    return _either(
        f"repulsion above {subject.setting('repulsion'):g}", "sizes=paper", "num_components=1"
    )


def calmer_training(subject: Subject) -> str:
    """Against weights that swing."""
    found = ["a smaller learning_rate", "a larger batch_size"]
    if subject.setting("pi_entropy") is not None:
        found.append(f"pi_entropy above {subject.setting('pi_entropy'):g}")
    return _either(*found)


def freer_gate(subject: Subject) -> str:
    """Against a learned gate at its bounds."""
    if subject.setting("gate_bound") == "clamp":
        return "gate_bound=sigmoid (a clamp has no gradient at its bounds)"
    return _either("gate=energy", "sn=true")


def opener_gate(subject: Subject) -> str:
    """Against an energy's gate that is closed on ID data."""
    weight = subject.setting("ebm_weight", 0.0)
    return _either(f"ebm_weight above {weight:g}", "train with validation data like these")


def flatter_energy(subject: Subject) -> str:
    """Against a saturated energy."""
    if subject.setting("energy_tanh"):
        factor = subject.setting("energy_desaturate")
        return _either(f"energy_desaturate below {factor:g}", "energy_tanh=false")
    return _either("ebm_clip=5", "sn=true")


def better_energy(subject: Subject) -> str:
    """Against an energy that does not follow the distance to the data."""
    if not subject.setting("ebm", default=True):
        return "ebm=true: without it the energy learns nothing"
    outliers: OutlierConfig = subject.setting("outliers", NONE)
    if outliers.kind != "halo":
        return f"outliers.kind=halo (now {outliers.kind})"
    return _either("more epochs", "a larger learning_rate")


def better_gate(subject: Subject) -> str:
    """Against a gate that does not close off the data."""
    if subject.setting("gate") == "energy":
        return better_energy(subject)
    return "gate=energy, which closes as the energy rises"


def less_evidence_outside(subject: Subject) -> str:
    """Against evidence that grows away from the data."""
    outliers: OutlierConfig | None = subject.setting("outliers")
    if outliers is None:
        return "a method with a term on outliers, such as gem-fi"
    if outliers.kind != "halo":
        return f"outliers.kind=halo (now {outliers.kind})"
    if subject.setting("gate") not in (None, "energy"):
        return "gate=energy"
    return _either("more epochs", "kl_weight above 0")


def smaller_norm(subject: Subject) -> str:
    """Against a head of a large norm."""
    found = ["sn=true"] if subject.setting("sn") is False else []
    return _either(*found, "more weight_decay")


def other_temperature(subject: Subject) -> str:
    """Against a temperature that ran away."""
    found = ["a smaller learning_rate"]
    if subject.setting("temperature_learned"):
        found.append("temperature_learned=false")
    return _either(*found)


def other_energy_temperature(subject: Subject) -> str:
    """Against an energy's temperature that ran away."""
    del subject
    return _either("a smaller learning_rate", "energy_scaled=false")


def _either(*remedies: str) -> str:
    return ", or ".join(remedies)
