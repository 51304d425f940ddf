"""What a run keeps of each set: arrays, from which every number, table and figure is made.

The arrays of a set have one row an input:

| array | of | holds |
|---|---|---|
| `score/NAME` | every set | each score that the belief allows, higher is more uncertain |
| `detector/NAME` | every set | each detector that was fitted |
| `part/NAME` | every set | distances, heads, router and gate: see `parts` |
| `label` | labelled sets | the class |
| `prediction` | every set | the most probable class |
| `router` | every set, K > 1 | (N, K) weights of the components |
| `log_probs` | validation, test | (N, C) of the predictive distribution |
| `features` | test, OOD sets | (n, D) of the first `FEATURES` |
| `example/NAME` | test, OOD sets | inputs and components of the first `EXAMPLES` |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from gemfi import dirichlet
from gemfi.belief import Belief
from gemfi.data import Role, Split, require_role
from gemfi.detectors import Detector, Observed, knn_distance
from gemfi.evaluation import score_split
from gemfi.model import Model

Arrays = dict[str, npt.NDArray[Any]]

NEIGHBOUR: Final = 10
"""The neighbour to which distances are measured, as in the paper."""

BANK: Final = 5_000
"""Training features to which distances are measured: ranks need no more."""

FEATURES: Final = 400
EXAMPLES: Final = 16


def observed_arrays(
    model: Model,
    split: Split,
    bank: Tensor,
    detectors: Sequence[Detector] = (),
    *,
    log_probs: bool = False,
    examples: bool = False,
) -> Arrays:
    """The arrays of one set.

    Args:
        model: trained.
        split: of any role.
        bank: (M, D) training features.
        detectors: fitted.
        log_probs: keep the predictive distribution.
        examples: keep features, inputs and components of the first inputs.
    """
    scored = score_split(model, split, detectors)
    observed, belief = scored.whole, scored.whole.belief
    tensors = {f"score/{name}": values for name, values in scored.by_score.items()}
    tensors |= {f"part/{name}": values for name, values in parts(observed, bank).items()}
    tensors |= {f"detector/{name}": values for name, values in scored.by_detector.items()}
    tensors["prediction"] = belief.labels()
    if belief.log_weight.shape[1] > 1:
        tensors["router"] = belief.log_weight.exp()
    if split.y is not None:
        tensors["label"] = split.y
    if log_probs:
        tensors["log_probs"] = belief.log_probs()
    if examples:
        tensors["features"] = observed.features[:FEATURES]
        tensors["example/input"] = split.first(EXAMPLES)
        for name in ("log_p", "log_weight", "log_evidence", "log_rho"):
            if (values := getattr(belief, name)) is not None:
                tensors[f"example/{name}"] = values[:EXAMPLES]
    return {name: _compact(values) for name, values in tensors.items()}


def training_bank(model: Model, train: Split) -> Tensor:
    """Features of an even choice of training inputs."""
    require_role(train, (Role.TRAIN,), "distances to training features")
    rows = torch.arange(0, len(train), max(1, -(-len(train) // BANK)))
    return model.embed(train.subset(rows).x)


def parts(observed: Observed, bank: Tensor) -> dict[str, Tensor]:
    """What the parts of a model make of each input, (N,) each.

    `distance` and `distance_raw` are to the tenth nearest training feature, on unit-norm and on
    raw features; `gate` is the mean gate; `between` and `within` the variances whose mixture is
    the conflict score; of several components `cosine` is the mean over their pairs, `differ` the
    share of pairs with another most probable class, `router_entropy` and `router_max` are those of
    their weights.
    """
    belief, z = observed.belief, observed.features
    neighbour = min(NEIGHBOUR, len(bank))
    values = {
        "distance": knn_distance(z, bank, neighbour),
        "distance_raw": knn_distance(z, bank, neighbour, unit=False),
    }
    if belief.log_gate is not None:
        values["gate"] = belief.log_gate.exp().mean(dim=1)
    if belief.log_evidence is not None:
        between, within = dirichlet.class_variance(
            belief.log_p, belief.log_weight, belief.log_evidence
        )
        values |= {"between": between.sum(dim=-1), "within": within.sum(dim=-1)}
    return values | _components(belief)


def _components(belief: Belief) -> dict[str, Tensor]:
    """How the components of each input differ, and how they are weighted."""
    count = belief.log_p.shape[1]
    if count < 2:
        return {}
    first, second = torch.triu_indices(count, count, offset=1)
    direction = functional.normalize(belief.log_p.exp(), dim=-1)
    label = belief.log_p.argmax(dim=-1)
    cosine = (direction[:, first] * direction[:, second]).sum(dim=-1)  # (N, pairs)
    differ = (label[:, first] != label[:, second]).to(torch.float64)
    return {
        "cosine": cosine.mean(dim=1),
        "differ": differ.mean(dim=1),
        "router_entropy": dirichlet.entropy(belief.log_weight),
        "router_max": belief.log_weight.exp().amax(dim=1),
    }


def _compact(values: Tensor) -> npt.NDArray[Any]:
    """Floats as float32, whose relative precision keeps small numbers apart; classes as int16."""
    array: npt.NDArray[Any] = values.detach().cpu().numpy()
    if array.dtype.kind in "iu":
        return array if array.dtype == np.uint8 else array.astype(np.int16)
    largest = np.finfo(np.float32).max  # some scores of far inputs are beyond it
    return np.asarray(np.clip(array, -largest, largest).astype(np.float32))


def named(arrays: Mapping[str, npt.NDArray[Any]], kind: str) -> Arrays:
    """The arrays of a kind, such as `score`, by their own names."""
    return {
        name.removeprefix(f"{kind}/"): array
        for name, array in arrays.items()
        if name.startswith(f"{kind}/")
    }


def constant(arrays: Iterable[npt.NDArray[Any]]) -> bool:
    """Whether arrays hold one number throughout, as disagreement does for one component."""
    known = [array for array in arrays if len(array)]
    return all(bool((array == known[0][0]).all()) for array in known)
