"""`diagnose`: the health of a model, the paper's failure modes among it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gemfi.data import Role, Split, require_role
from gemfi.diagnostics import limits
from gemfi.diagnostics.checks import CHECKS
from gemfi.diagnostics.findings import Finding, Health
from gemfi.diagnostics.measures import knn_distance
from gemfi.diagnostics.subject import Subject, ask, layer_norms
from gemfi.model import Model


def diagnose(
    model: Model,
    split: Split,
    reference: Split | None = None,
    *,
    history: Sequence[Mapping[str, Any]] | None = None,
) -> Health:
    """Measure a trained model on ID data, and say what is wrong with it and what to do.

    Evidence, errors, heads, router, gate, energy, spectral norms and temperatures are each held to
    a limit (`gemfi.diagnostics.limits`); what a method does not have is listed with the reason.

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
    z = model.embed(split)
    belief, energy = ask(model.head, z)
    distance = None
    if reference is not None:
        known = model.embed(reference)
        distance = knn_distance(z, known, min(limits.NEIGHBOURS, len(known))).to(torch.float64)
    norms = layer_norms(model)
    subject = Subject(model, belief, energy, split.labels, distance, norms, history)
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for name, check in CHECKS.items():
        found = check(subject)
        if isinstance(found, str):
            skipped[name] = found
        else:
            findings.append(found)
    return Health(
        method=model.head.info.name,
        split=split.name,
        n=len(split),
        findings=tuple(findings),
        skipped=skipped,
        spectral_norms={name: norm for name, (norm, _) in norms.items()},
    )
