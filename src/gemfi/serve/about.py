"""What GET /v1/model tells of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from gemfi.decisions import Policy
from gemfi.plain import to_plain
from gemfi.serve.answers import finite
from gemfi.serve.service import Service
from gemfi.style import method_label

_FOLDERS: Final = re.compile(r"""(?<![^\s"'])[^\s"']*[\\/]""")  # looked for once a word


def about(service: Service) -> dict[str, Any]:
    """The model, what it takes, how it decides, and the limits of the server."""
    bundle, settings = service.bundle, service.settings
    info, head = bundle.info, bundle.model.head
    return {
        "name": bundle.name,
        "method": info.method,
        "title": method_label(info.method),
        "summary": head.info.summary,
        "paper": head.info.paper,
        "classes": list(info.class_names),
        "feature_names": None if info.feature_names is None else list(info.feature_names),
        "columns": None if bundle.columns is None else to_plain(bundle.columns)["columns"],
        "input": {
            "kind": service.form.kind,
            "shape": list(service.form.shape),
            "dtype": service.form.dtype,
        },
        "policy": None if service.policy is None else policy_about(service.policy),
        "references": {
            name: finite(np.asarray(values, np.float64))
            for name, values in bundle.references.items()
        },
        "metrics": _plain(info.metrics),
        "provenance": _plain(info.provenance),
        "limits": {
            "batch": settings.max_inputs,
            "bytes": settings.max_bytes,
            "pixels": settings.max_pixels,
        },
    }


def policy_about(policy: Policy) -> dict[str, Any]:
    """A policy in plain values."""
    return {
        "score": policy.score,
        "doubt": policy.doubt,
        "level": policy.level,
        "threshold": policy.threshold if math.isfinite(policy.threshold) else None,
        "goal": str(policy.goal),
        "calibration": policy.reference.size,
        "least_level": policy.reference.least_level,
        "facts": dict(policy.facts),
    }


def _plain(value: Any) -> Any:
    """Nested mappings and sequences as dicts and lists, of paths no more than their last part."""
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
