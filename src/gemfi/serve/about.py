"""What GET /v1/model tells of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from gemfi._config import to_plain
from gemfi.bundle import Bundle
from gemfi.decisions import Policy
from gemfi.serve.answers import finite
from gemfi.serve.formats import InputFormat

_FOLDERS: Final = re.compile(r"""(?<![^\s"'])[^\s"']*[\\/]""")  # looked for once a word


def about(
    bundle: Bundle, policy: Policy | None, form: InputFormat, limits: dict[str, int]
) -> dict[str, Any]:
    """The model, what it takes, how it decides, and the limits of the server."""
    info, head = bundle.info, bundle.model.head
    return {
        "name": bundle.name,
        "method": info.method,
        "title": head.info.label,
        "summary": head.info.summary,
        "paper": head.info.paper,
        "classes": list(info.class_names),
        "feature_names": None if info.feature_names is None else list(info.feature_names),
        "columns": None if bundle.columns is None else to_plain(bundle.columns)["columns"],
        "input": {
            "kind": form.kind,
            "shape": list(form.shape),
            "dtype": form.dtype,
        },
        "policy": None if policy is None else policy_about(policy),
        "references": {
            name: finite(np.asarray(values, np.float64))
            for name, values in bundle.references.items()
        },
        "metrics": _plain(info.metrics),
        "provenance": _plain(info.provenance),
        "limits": limits,
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


def without_folders(text: str) -> str:
    """A text with no more of each path than its last part."""
    return _FOLDERS.sub("", text)


def _plain(value: Any) -> Any:
    """Nested mappings and sequences as dicts and lists, of paths no more than their last part."""
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return without_folders(value)
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
