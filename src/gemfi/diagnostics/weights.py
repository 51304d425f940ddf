"""Checks of the weights: spectral norms and temperatures."""

from __future__ import annotations

import math
from typing import Any

from gemfi.diagnostics import limits, remedies
from gemfi.diagnostics.findings import Finding
from gemfi.diagnostics.remedies import Remedy
from gemfi.diagnostics.subject import Subject


def norm_over_bound(subject: Subject) -> Finding | str:
    """Largest norm of a normalised layer over its bound."""
    ratios = {
        name: norm / bound for name, (norm, bound) in subject.norms.items() if bound is not None
    }
    if not ratios:
        return "no layer is spectrally normalised"
    name = max(ratios, key=lambda each: ratios[each])
    norm, bound = subject.norms[name]
    healthy = ratios[name] <= limits.OVER_BOUND
    return Finding(
        "norm over bound",
        ratios[name],
        healthy,
        f"largest: {name} has {norm:.2f}, bound {bound:g}",
        "" if healthy else "spectral.refresh(model): the weights moved since the last one",
        f"at most {limits.OVER_BOUND:g}",
    )


def head_norm(subject: Subject) -> Finding | str:
    """Largest norm of a layer of the head that is not normalised."""
    norms = _free(subject, of_head=True)
    if not norms:
        return "the head has no layer that is not normalised"
    name = max(norms, key=lambda each: norms[each])
    healthy = norms[name] < limits.LARGE_NORM
    return Finding(
        "head norm",
        norms[name],
        healthy,
        f"largest: {name}",
        "" if healthy else remedies.smaller_norm(subject),
        f"below {limits.LARGE_NORM:g}",
    )


def backbone_norm(subject: Subject) -> Finding | str:
    """The same below the head: told and not judged, as batch norm rescales what follows."""
    norms = _free(subject, of_head=False)
    if not norms:
        return "the backbone has no layer of this library that is not normalised"
    name = max(norms, key=lambda each: norms[each])
    return Finding("backbone norm", norms[name], True, f"largest: {name}")


def _free(subject: Subject, *, of_head: bool) -> dict[str, float]:
    return {
        name: norm
        for name, (norm, bound) in subject.norms.items()
        if bound is None and name.startswith("head.") == of_head
    }


def temperature(subject: Subject) -> Finding | str:
    """T of u = h(z)/T."""
    return _temperature(subject, "temperature", "log_temperature", remedies.other_temperature)


def energy_temperature(subject: Subject) -> Finding | str:
    """The learned temperature of the energy."""
    remedy = remedies.other_energy_temperature
    return _temperature(subject, "energy temperature", "log_energy_temperature", remedy)


def _temperature(subject: Subject, name: str, field: str, remedy: Remedy) -> Finding | str:
    found: Any = getattr(subject.model.head, field, None)
    if found is None:
        return f"the head has no {name}"
    value = math.exp(float(found.detach()))
    low, high = limits.TEMPERATURES
    healthy = low <= value <= high
    of = "logits" if field == "log_temperature" else "energy"
    text = "" if healthy else remedy(subject)
    return Finding(name, value, healthy, f"divides the {of}", text, f"{low:g} to {high:g}")
