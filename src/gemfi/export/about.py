"""What a file of ONNX says of itself, and how it is run without gemfi."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from gemfi._config import to_plain
from gemfi._files import to_json
from gemfi._version import __version__
from gemfi.data.columns import Columns
from gemfi.decisions import Verdict
from gemfi.export.deployed import Deployed

SNIPPET: Final = """\
import json
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
about = session.get_modelmeta().custom_metadata_map
classes = json.loads(about["classes"])
x = np.zeros((1, {shape}), np.{dtype})  # {note}
names = [each.name for each in session.get_outputs()]
found = dict(zip(names, session.run(None, {{"input": x}})))
print(classes[found["label"][0]], found["probs"].max(){decision})
"""

ENCODING: Final = "a number or its fill, then 1 if it was missing; 1 for the category, else 0"
"""How columns become numbers, in the order of the metadata `numbers`."""

_DECISION: Final = f', {[str(each) for each in Verdict]}[found["decision"][0]]'


def metadata(
    deployed: Deployed, class_names: tuple[str, ...], name: str, columns: Columns | None = None
) -> dict[str, str]:
    """Texts for the `metadata_props` of a model.

    Args:
        deployed: the module.
        class_names: of its classes.
        name: of the model.
        columns: of a table with categories or missing values, which are not part of the graph.
    """
    head = deployed.model.head
    entries = {
        "gemfi_version": __version__,
        "name": name,
        "method": head.info.name,
        "classes": to_json(list(class_names)),
        "input": input_note(deployed),
        "scores": "higher is more uncertain; max_prob is 1 - max p, evidence -log of the evidence",
    }
    if columns is not None:
        entries["input"] += f"; they are made from columns: {ENCODING}"
        entries["columns"] = to_json(to_plain(columns)["columns"])
        entries["numbers"] = to_json(list(columns.outputs))
    if deployed.policy is not None:
        entries["policy"] = to_json(_policy(deployed))
        entries["decision"] = to_json({str(int(each)): str(each) for each in Verdict})
    return entries


def input_note(deployed: Deployed) -> str:
    """What an input is, in words."""
    shape = ", ".join(map(str, deployed.sample_shape))
    kind = str(deployed.input_dtype).removeprefix("torch.")
    if deployed.input_dtype == torch.uint8:
        return f"(batch, {shape}) uint8, raw pixels 0 to 255: scaling is part of the graph"
    return f"(batch, {shape}) {kind}, raw values: any normalisation is part of the graph"


def snippet(deployed: Deployed, file: str) -> str:
    """Lines of Python that run a file with onnxruntime alone.

    Args:
        deployed: what the file was made of.
        file: its name.
    """
    return SNIPPET.format(
        file=file,
        shape=", ".join(map(str, deployed.sample_shape)),
        dtype=str(deployed.input_dtype).removeprefix("torch."),
        note="raw inputs: scaling and normalisation are part of the graph",
        decision="" if deployed.policy is None else _DECISION,
    )


def _policy(deployed: Deployed) -> dict[str, Any]:
    policy = deployed.policy
    if policy is None:
        return {}
    return {
        "goal": str(policy.goal),
        "score": policy.score,
        "level": policy.level,
        "doubt": policy.doubt,
        "threshold": None if math.isinf(policy.threshold) else policy.threshold,
        "calibration": policy.reference.size,
    }
