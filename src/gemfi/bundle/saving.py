"""From a model to the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gemfi._config import to_plain
from gemfi.belief import Belief
from gemfi.bundle.bundle import DOUBT, Bundle, fitted_policy
from gemfi.bundle.container import ENDING, check_ending, write_container
from gemfi.bundle.description import Description
from gemfi.data import Split, require_use
from gemfi.data.columns import Columns
from gemfi.decisions import Goal, Policy, Readings, read_belief
from gemfi.errors import InputError
from gemfi.model import Model
from gemfi.modes import evaluating
from gemfi.runs.record import environment
from gemfi.scores import MAIN, SCORES, available

QUANTILES: Final = 201
REFERENCES: Final = (*MAIN, "density")
"""Scores whose quantiles on calibration data are kept, where the method has them."""

MODEL: Final = "model."
CALIBRATION: Final = "calibration."
REFERENCE: Final = "reference."
POLICY: Final = "policy.reference."


def save(
    path: Path | str,
    model: Model,
    *,
    calibration: Split | Readings | None = None,
    policy: Policy | Goal | str | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Columns | None = None,
    metrics: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write a trained model as one file, whole or not at all.

    Args:
        path: of the file, which ends in `.safetensors`.
        model: a trained model. If its backbone was not given by name, `load` will need the module.
        calibration: a labelled split of role calibration. The bundle remembers its scores, so
            that a policy for any goal can be had from the file alone.
        policy: a policy, or a goal to fit one for, such as `false_alarm=0.05,risk=0.02`.
        class_names: in place of those of the model or the calibration data.
        feature_names: of the columns, where an input is a row of a table.
        columns: or the columns of a table with categories or missing values.
        metrics: numbers to keep with it, JSON values.
        provenance: where it comes from, JSON values; the environment is added.
    """
    path = Path(path)
    check_ending(path)
    bundle = make_bundle(
        path.name.removesuffix(ENDING),
        model,
        calibration=calibration,
        policy=policy,
        class_names=class_names,
        feature_names=feature_names,
        columns=columns,
        metrics=metrics,
        provenance={"environment": to_plain(environment()), **(provenance or {})},
    )
    return write_bundle(path, bundle)


def make_bundle(
    name: str,
    model: Model,
    *,
    calibration: Split | Readings | None = None,
    policy: Policy | Goal | str | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    columns: Columns | None = None,
    metrics: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Bundle:
    """A bundle of a model that is at hand; the arguments are those of `save`."""
    _check_kinds(model, calibration, class_names)
    names = _class_names(model, class_names, calibration)
    if columns is not None:
        feature_names = columns.outputs
    info = _description(model, names, feature_names, columns, metrics or {}, provenance or {})
    score = model.head.named_scores["epistemic"]
    if isinstance(policy, Policy):
        score = policy.score
    observed, references = _observed(model, calibration, score)
    if isinstance(policy, Goal | str):
        if observed is None:
            raise InputError("a goal needs calibration data: give calibration=, or a Policy")
        policy = fitted_policy(observed, Goal.of(policy, {}), score, names)
    return Bundle(name, evaluating(model), info, policy, observed, references)


def write_bundle(path: Path | str, bundle: Bundle) -> Path:
    """Write a bundle as one file.

    Args:
        path: ends in `.safetensors`.
        bundle: what `load` shall give.
    """
    path = Path(path)
    info = bundle.info
    tensors = {f"{MODEL}{name}": each for name, each in bundle.model.state_dict().items()}
    _check_numbers(tensors)
    if bundle.policy is not None:
        plain = bundle.policy.to_plain()
        groups = [torch.tensor(each, dtype=torch.float64) for each in plain.pop("reference")]
        tensors |= {f"{POLICY}{index}": each for index, each in enumerate(groups)}
        info = replace(info, policy=plain)
    if bundle.calibration is not None:
        tensors |= {f"{CALIBRATION}{key}": each for key, each in _arrays(bundle.calibration)}
    for name, values in bundle.references.items():
        tensors[f"{REFERENCE}{name}"] = torch.from_numpy(values)
    write_container(path, info.to_plain(), tensors)
    return path


def _arrays(observed: Readings) -> list[tuple[str, Tensor]]:
    names = ("score", "doubt", "label", "confidence", "wrong")
    found = [(name, getattr(observed, name)) for name in names]
    return [(name, torch.from_numpy(value)) for name, value in found if value is not None]


def _check_kinds(model: Any, calibration: Any, class_names: Any) -> None:
    if not isinstance(model, Model):
        raise InputError(f"a bundle is of a gemfi.Model, got {type(model).__name__}")
    if not isinstance(calibration, Split | Readings | None):
        raise InputError(f"calibration= must be a Split, got {type(calibration).__name__}")
    if isinstance(class_names, str):
        raise InputError(f"class_names= must be a list of names, got the text {class_names!r}")


def _class_names(
    model: Model, given: Sequence[str] | None, calibration: Split | Readings | None
) -> tuple[str, ...]:
    count = model.head.num_classes
    known = given if given is not None else model.class_names
    if known is None and isinstance(calibration, Split):
        known = calibration.class_names
    names = tuple(map(str, range(count))) if known is None else tuple(map(str, known))
    if len(names) != count:
        raise InputError(f"{len(names)} class names for a model of {count} classes")
    return names


def _description(
    model: Model,
    class_names: tuple[str, ...],
    feature_names: Sequence[str] | None,
    columns: Columns | None,
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Description:
    weights = {each.dtype for each in model.parameters()}
    if not weights <= {torch.float32} and not weights <= {torch.float64}:
        found = ", ".join(sorted(str(each) for each in weights))
        raise InputError(
            f"a bundle holds weights of float32 or of float64, got {found}: convert the model "
            "first, with model.float()"
        )
    kind = model.sample_dtype
    info = Description(
        method=model.head.info.name,
        config=model.head.config,
        backbone=model.blueprint,
        network=type(model.backbone).__name__,
        num_features=model.head.num_features,
        class_names=class_names,
        sample_shape=None if model.tokens is not None else model.sample_shape,
        sample_dtype=None if kind is None else str(kind).removeprefix("torch."),
        dtype="float64" if weights == {torch.float64} else "float32",
        channels=None if model.input_mean is None else len(model.input_mean),
        temperature=model.log_temperature is not None,
        feature_names=None if feature_names is None else tuple(map(str, feature_names)),
        columns=None if columns is None or columns.is_plain else columns,
        metrics=dict(metrics),
        provenance=dict(provenance),
    )
    info.check("bundle")
    return info


def _observed(
    model: Model, calibration: Split | Readings | None, score: str
) -> tuple[Readings | None, dict[str, npt.NDArray[np.float64]]]:
    if not isinstance(calibration, Split):
        return calibration, {}
    belief = model.predict(require_use(calibration, "policy"))
    return read_belief(belief, score, DOUBT, calibration), _quantiles(belief)


def _quantiles(belief: Belief) -> dict[str, npt.NDArray[np.float64]]:
    steps = np.linspace(0, 1, QUANTILES)
    known = available(belief)
    return {
        name: np.quantile(SCORES[name](belief).numpy(force=True).astype(np.float64), steps)
        for name in REFERENCES
        if name in known
    }


def _check_numbers(tensors: Mapping[str, Tensor]) -> None:
    for name, each in tensors.items():
        if each.is_floating_point() and bool(torch.isnan(each).any()):
            raise InputError(
                f"{name.removeprefix(MODEL)} holds NaN: did training fail? A bundle of it would "
                "not be loadable"
            )
