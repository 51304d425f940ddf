"""A model and its policy as one module, from a batch of raw inputs to named outputs."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch
from torch import Tensor, nn

from gemfi._config import to_plain
from gemfi._files import to_json
from gemfi._version import __version__
from gemfi.belief import Belief
from gemfi.data.columns import Columns
from gemfi.decisions import Policy, Reference, Verdict
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.scores import MAIN, SCORES, available, score_of
from gemfi.spectral import OFF, SpectralLayer

Outputs = dict[str, Tensor]

BLOCKED: Final = "dissonance"
"""The score that is computed in blocks, whose number depends on the batch."""


class Deployed(nn.Module):
    """Everything between a raw input and a decision: scaling, network, scores, p-value, verdict.

        >>> Deployed(model, policy)(images)["decision"]

    The network and the head run in the dtype of their weights, and all that follows in float64, as
    `model.predict` and a policy have it. The model is copied. Outputs, each of (B,) but the first:

    - `probs` (B, C) and `label`, the most probable class;
    - the scores of `gemfi.scores.MAIN` that the method has, and its own epistemic score. Higher is
      more uncertain: `max_prob` is 1 − max p;
    - with a policy `p_value`, and `decision`: 0 accept, 1 abstain, 2 unfamiliar.

    A NaN in an input has the smallest p-value there is, and is never accepted.
    """

    level: Tensor
    threshold: Tensor

    def __init__(self, model: Model, policy: Policy | None = None) -> None:
        super().__init__()
        model.require_finished("an export")
        check_exportable(model, policy)
        self.model = folded(model)
        self.policy = policy
        self.p_values = None if policy is None else PValues(policy.reference)
        limits = (0.0, 0.0) if policy is None else (policy.level, policy.threshold)
        self.register_buffer("level", torch.tensor(limits[0], dtype=torch.float64))
        self.register_buffer("threshold", torch.tensor(limits[1], dtype=torch.float64))
        belief = self.model.predict(self.example(1))  # to see which scores the method has
        for name in () if policy is None else (policy.score, policy.doubt):
            score_of(belief, name)  # says what is missing
        wanted = dict.fromkeys((*MAIN, self.model.head.named_scores["epistemic"]))
        self.scores = [name for name in wanted if name in available(belief)]
        self.eval()

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one input."""
        shape = self.model.inputs.sample_shape
        if shape is None:
            raise InputError("this model does not know the shape of its inputs")
        return shape

    @property
    def input_dtype(self) -> torch.dtype:
        """Bytes for a model of bytes, otherwise that of the weights."""
        if self.model.inputs.torch_dtype == torch.uint8:
            return torch.uint8
        parameter = next(self.model.parameters(), None)
        return torch.float32 if parameter is None else parameter.dtype

    @property
    def output_names(self) -> list[str]:
        """In the order in which they are given."""
        decided = [] if self.policy is None else ["p_value", "decision"]
        return ["probs", "label", *self.scores, *decided]

    def example(self, count: int = 2) -> Tensor:
        """Inputs of zeros."""
        return torch.zeros(count, *self.sample_shape, dtype=self.input_dtype)

    def forward(self, input: Tensor) -> Outputs:  # noqa: A002 - the name of the graph's input
        """A batch of raw inputs (B, ...) to the outputs by name."""
        belief = self.model(input).to(torch.float64)
        outputs = self._predicted(belief)
        if self.policy is not None and self.p_values is not None:
            p = self.p_values(score_of(belief, self.policy.score), outputs["label"])
            accepted = score_of(belief, self.policy.doubt) <= self.threshold
            verdict = torch.where(accepted, int(Verdict.ACCEPT), int(Verdict.ABSTAIN))
            outputs["p_value"] = p
            outputs["decision"] = torch.where(p <= self.level, int(Verdict.UNFAMILIAR), verdict)
        return outputs

    def predict(self, x: Tensor) -> Outputs:
        """The same by `model.predict` and the policy itself: what every graph is compared with."""
        return self.expected(self.model.predict(x))

    def expected(self, belief: Belief) -> Outputs:
        """The outputs of a belief, with the decisions of the policy itself."""
        outputs = self._predicted(belief)
        if self.policy is not None:
            decisions = self.policy(belief)
            outputs["p_value"] = torch.from_numpy(decisions.p_value)
            outputs["decision"] = torch.from_numpy(decisions.verdict).long()
        return outputs

    def _predicted(self, belief: Belief) -> Outputs:
        log_probs = belief.log_probs()
        outputs = {"probs": log_probs.exp(), "label": log_probs.argmax(dim=1)}
        return outputs | {name: score_of(belief, name) for name in self.scores}


class PValues(nn.Module):
    """Conformal p-values by comparing a score with every score of the reference.

    p = (1 + #{reference ≥ s})/(n + 1), n and the reference those of the predicted class where there
    is a group for each.
    """

    reference: Tensor
    count: Tensor

    def __init__(self, reference: Reference) -> None:
        super().__init__()
        groups = [torch.from_numpy(group) for group in reference.groups]
        counts = torch.tensor([len(group) for group in groups], dtype=torch.float64)
        padded = nn.utils.rnn.pad_sequence(groups, batch_first=True, padding_value=-torch.inf)
        self.is_conditional = reference.is_conditional
        self.register_buffer("reference", padded)  # (G, n)
        self.register_buffer("count", counts)

    def forward(self, score: Tensor, label: Tensor) -> Tensor:
        """P-values (B,) of scores (B,) with predicted labels (B,)."""
        reference, count = self.reference, self.count
        if self.is_conditional:
            reference, count = reference[label], count[label]
        at_least = (reference >= score.unsqueeze(1)).to(torch.float64).sum(dim=1)
        return (1 + torch.minimum(at_least, count)) / (count + 1)  # padding is ≥ −∞ alone


def folded(model: Model) -> Model:
    """A copy in evaluation mode on the CPU, with spectral normalisation multiplied into weights."""
    plain = copy.deepcopy(model).cpu().eval().requires_grad_(requires_grad=False)
    for layer in plain.modules():
        if isinstance(layer, SpectralLayer) and layer.spectral.kind != "off":
            layer.weight = nn.Parameter(layer.normalised_weight(), requires_grad=False)
            layer.spectral = OFF
            for name in ("left", "right", "sigma"):
                delattr(layer, name)
    return plain


def check_exportable(model: Model, policy: Policy | None = None) -> None:
    """Refuse a model that cannot become a graph, and say why."""
    name = model.head.info.name
    if not model.head.info.exportable:
        raise InputError(
            f"the method {name} cannot be exported: its forward pass is no fixed graph"
        )
    if model.tokens is not None:
        raise InputError(
            "this model takes token ids: a graph would need its tokenizer and a fixed length. "
            "Export the network itself with its own tools, or serve it with gemfi serve"
        )
    if model.inputs.sample_shape is None:
        raise InputError(
            "this model does not know the shape of its inputs, which an export fixes: train it "
            "with fit, or set model.inputs = InputSpec(sample_shape=..., sample_dtype=...)"
        )
    if policy is not None and BLOCKED in (policy.score, policy.doubt):
        raise InputError(
            f"the policy decides by {BLOCKED}, which no graph can hold: it is computed in blocks "
            f"whose number depends on the batch. Fit one by another score: {', '.join(SCORES)}"
        )


# -- what a file says of itself, and how it is run without gemfi ----------------------------------

# How columns become numbers, in the order of the metadata `numbers`.
_ENCODING: Final = "a number or its fill, then 1 if it was missing; 1 for the category, else 0"
_SNIPPET: Final = """\
import json
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
about = session.get_modelmeta().custom_metadata_map
classes = json.loads(about["classes"])
x = np.zeros((1, {shape}), np.{dtype})  # raw inputs: scaling and normalisation are in the graph
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(None, {{"input": x}})))
print(classes[outputs["label"][0]], outputs["probs"].max(){decision})
"""


def metadata(
    deployed: Deployed, class_names: tuple[str, ...], name: str, columns: Columns | None = None
) -> dict[str, str]:
    """Texts for the `metadata_props` of a model.

    `columns` are those of a table with categories or missing values, which are not in the graph.
    """
    shape, dtype = _input(deployed)
    what = "raw values: any normalisation is part of the graph"
    if deployed.input_dtype == torch.uint8:
        what = "raw pixels 0 to 255: scaling is part of the graph"
    entries = {
        "gemfi_version": __version__,
        "name": name,
        "method": deployed.model.head.info.name,
        "classes": to_json(list(class_names)),
        "input": f"(batch, {shape}) {dtype}, {what}",
        "scores": "higher is more uncertain; max_prob is 1 - max p, evidence -log of the evidence",
    }
    if columns is not None:
        entries["input"] += f"; they are made from columns: {_ENCODING}"
        entries["columns"] = to_json(to_plain(columns)["columns"])
        entries["numbers"] = to_json(list(columns.outputs))
    if (policy := deployed.policy) is not None:
        facts = {
            "goal": str(policy.goal),
            "score": policy.score,
            "level": policy.level,
            "doubt": policy.doubt,
            "threshold": None if math.isinf(policy.threshold) else policy.threshold,
            "calibration": policy.reference.size,
        }
        entries["policy"] = to_json(facts)
        entries["decision"] = to_json({str(int(verdict)): str(verdict) for verdict in Verdict})
    return entries


def snippet(deployed: Deployed, file: str) -> str:
    """Lines of Python that run a file of this name with onnxruntime alone."""
    shape, dtype = _input(deployed)
    decision = ""
    if deployed.policy is not None:
        decision = f', {[str(verdict) for verdict in Verdict]}[outputs["decision"][0]]'
    return _SNIPPET.format(file=file, shape=shape, dtype=dtype, decision=decision)


def _input(deployed: Deployed) -> tuple[str, str]:
    """Shape and type of one input in words."""
    dtype = str(deployed.input_dtype).removeprefix("torch.")
    return ", ".join(map(str, deployed.sample_shape)), dtype
