"""The header of schema 1: the spec of a run, the facts of its data, and notes of its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gemfi.backbones import Blueprint
from gemfi.bundle.description import Description
from gemfi.errors import InputError
from gemfi.plain import from_plain
from gemfi.runs.facts import TaskFacts
from gemfi.runs.spec import RunSpec


def description(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The same as the present schema has it."""
    for key in ("spec", "facts", "about"):
        if not isinstance(plain.get(key), Mapping):
            raise InputError(f"header: field {key} is missing")
    spec = RunSpec.from_plain(plain["spec"], "header.spec")
    facts = from_plain(TaskFacts, plain["facts"], "header.facts")
    with torch.device("meta"):
        model = spec.build(facts.num_classes, facts.normalisation)
    about = dict(plain["about"])
    found = Description(
        method=spec.method,
        config=spec.head,
        backbone=Blueprint(spec.backbone, spec.backbone_options),
        network=type(model.backbone).__name__,
        num_features=model.head.num_features,
        class_names=facts.class_names,
        sample_shape=facts.sample_shape,
        sample_dtype=facts.sample_dtype,
        channels=None if model.input_mean is None else len(model.input_mean),
        feature_names=facts.feature_names,
        metrics={"validation": about.pop("validation", {})},
        provenance={**about, "spec": plain["spec"], "facts": plain["facts"]},
    )
    return found.to_plain()
