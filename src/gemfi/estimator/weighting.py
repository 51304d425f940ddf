"""How much each sample counts: `sample_weight` times the weight of its class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.utils.class_weight import compute_class_weight

from gemfi.errors import InputError

Floats = npt.NDArray[np.float64]
ClassWeight = Mapping[Any, float] | Literal["balanced"] | None


def total_weight(
    sample_weight: Any, class_weight: ClassWeight, labels: npt.NDArray[Any]
) -> Floats | None:
    """The product of both weights (N,), or None where all samples count alike.

    Args:
        sample_weight: (N,) or None, as the user gave it.
        class_weight: None, `balanced`, or class -> weight; a class that is not named has 1.
        labels: (N,) as the user wrote them.
    """
    weight = _read(sample_weight, len(labels))
    if class_weight is not None:
        counts = np.ones(len(labels), bool) if weight is None else weight > 0
        classes, index = np.unique(labels[counts], return_inverse=True)
        given = None if weight is None else weight[counts]
        _refuse_strangers(class_weight, labels)
        of_class = np.zeros(len(labels))
        of_class[counts] = _of_classes(class_weight, classes, labels[counts], given)[index]
        weight = of_class if weight is None else of_class * weight
    return None if weight is None or (weight == weight[0]).all() else weight


def _read(sample_weight: Any, samples: int) -> Floats | None:
    """Weights (N,) as float64, or None where none were given."""
    if sample_weight is None:
        return None
    try:
        found = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must be numbers, one for each sample") from None
    if found.shape != (samples,):
        raise InputError(
            f"sample_weight must have one number for each of the {samples} samples of X, got shape "
            f"{found.shape}"
        )
    if not (np.isfinite(found) & (found >= 0)).all() or not found.any():
        raise InputError("sample_weight must be finite and not negative, and not all of them zero")
    return found


def _refuse_strangers(class_weight: Mapping[Any, float] | str, labels: npt.NDArray[Any]) -> None:
    known = np.unique(labels).tolist()
    strangers = (
        []
        if isinstance(class_weight, str)
        else [each for each in class_weight if each not in known]
    )
    if strangers:
        raise InputError(
            f"class_weight names the class {strangers[0]!r}, but the classes of y are "
            f"{', '.join(map(repr, known))}"
        )


def _of_classes(
    class_weight: Mapping[Any, float] | str,
    classes: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    sample_weight: Floats | None,
) -> Floats:
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(
                f"class_weight must be None, 'balanced' or a dict of weights by class, got "
                f"{class_weight!r}"
            )
        found = compute_class_weight(
            "balanced", classes=classes, y=labels, sample_weight=sample_weight
        )
        return np.asarray(found, dtype=np.float64)
    found = np.array([class_weight.get(each, 1.0) for each in classes.tolist()], dtype=np.float64)
    if not (np.isfinite(found) & (found > 0)).all():
        raise InputError("class_weight must be finite and above 0; leave a class out of X instead")
    return found
